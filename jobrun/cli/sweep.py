"""``jobrun sweep``: the members of a sweep, with their numbers, states and metrics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from jobrun.cli.options import (
    common,
    completes,
    option,
    runs_dir,
    screen_width,
    sets_option,
    settings,
)

if TYPE_CHECKING:
    from jobrun.errors import UsageError
    from jobrun.runs.sweepdir import SweepDir
    from jobrun.tools.sweep import Sweep

__all__ = ["command", "not_a_sweep", "show_sweep", "stored_sweep"]


@click.command("sweep", short_help="Show the members of a sweep, with their numbers and states.")
@click.argument("sweep", metavar="SWEEP|SPEC", shell_complete=completes("run_or_spec"))
@sets_option
@option("--list", "names", is_flag=True, help="Only numbers and directories, a member a line.")
@runs_dir
@common
def command(sweep: str, sets: tuple[str, ...], names: bool, runs_dir: str) -> None:
    """Show the members of SWEEP, a name or a path, or of a SPEC with a 'matrix'.

    The numbers are those of 'jobrun train SPEC --member N' with the same --set.  The table has what
    is on disk, whichever processes have run it or run it now.
    """
    show_sweep(*_found(sweep, sets, runs_dir), names=names)


def show_sweep(sweep: Sweep, home: SweepDir, *, names: bool = False) -> None:
    """Write the table of a sweep to stdout; ``names``: only the numbers and directories."""
    from jobrun.cli.sweep_table import SweepTable, sweep_summary
    from jobrun.report.formatting import plain
    from jobrun.tools.sweep_rows import rows_on_disk

    members = sweep.members(home)
    if names and not settings().json:
        click.echo("\n".join(f"{n}  {plain(m.directory)}" for n, m in enumerate(members)))
        return
    found = SweepTable(
        name=home.name,
        sweep_dir=str(home.path.absolute()) if home.is_sweep() else None,
        metrics=sweep.metrics,
        best_by=sweep.best_by,
        rows=rows_on_disk(home, members, sweep.job),
        left=[m.directory for m in sweep.left(home) if home.run(m).is_run()],
    )
    if settings().json:
        click.echo(json.dumps(found.to_json()))
    else:
        click.echo("\n".join(sweep_summary(found, screen_width(), numbers=True)))


def _found(argument: str, sets: tuple[str, ...], runs_dir: str) -> tuple[Sweep, SweepDir]:
    """Return the sweep that a user means, and its directory, which need not exist yet."""
    from jobrun.cli.specs import load_spec
    from jobrun.engine.resume_policy import Request
    from jobrun.errors import NotFoundError
    from jobrun.runs.find import find_sweep, sweep_of_spec
    from jobrun.runs.series import fresh_name
    from jobrun.runs.sweepdir import SweepDir
    from jobrun.tools.sweep import Sweep

    if argument.endswith((".yaml", ".yml")) or argument == "-":
        spec = load_spec(argument, sets)
        if spec.matrix is None:
            raise not_a_sweep(argument)
        sweep = Sweep(spec, spec.text, Request("train"))
        home = sweep_of_spec(runs_dir, sweep.job.name, sweep.digest)
        return sweep, home or SweepDir(fresh_name(runs_dir, sweep.job.name))
    found = find_sweep(runs_dir, argument)
    if found is None:
        raise NotFoundError(f"no sweep {argument!r} in {runs_dir}", hint="jobrun runs lists all")
    return stored_sweep(found, sets), found


def not_a_sweep(spec: str) -> UsageError:
    """Return the error of a spec that has no members."""
    from jobrun.errors import UsageError

    hint = "a sweep has a 'matrix': jobrun docs sweeps"
    return UsageError(f"{spec} is not a sweep, so it has no members", hint=hint)


def stored_sweep(home: SweepDir, sets: tuple[str, ...] = ()) -> Sweep:
    """Return the sweep in a directory, with the spec that is kept there."""
    from jobrun.engine.resume_policy import Request
    from jobrun.tools.stored_spec import stored_spec
    from jobrun.tools.sweep import Sweep

    stored = stored_spec(home.home, sets=sets, sweep=home.state())
    return Sweep(stored.spec, stored.text, Request("resume"))
