"""``jobrun rm``: the removal of runs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from jobrun.cli.options import common, completes, option, runs_dir, settings
from jobrun.core.paths import typed

if TYPE_CHECKING:
    from jobrun.runs.rundir import RunDir
    from jobrun.runs.sweepdir import SweepDir

__all__ = ["command"]


@click.command("rm", short_help="Remove runs.")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=completes("run"))
@option("-y", "--yes", is_flag=True, help="Do not ask.")
@runs_dir
@common
def command(runs: tuple[str, ...], yes: bool, runs_dir: str) -> None:
    """Remove RUN with its checkpoints, metrics and log; a sweep with all its runs.

    A running one is not removed (exit code 8).  It asks first; where nobody can answer, -y is
    required.
    """
    from jobrun.core.text import size
    from jobrun.report.formatting import plain
    from jobrun.tools.remove_runs import remove, space_of

    found = {target.path.absolute(): target for target in (_find(runs_dir, run) for run in runs)}
    if not yes:
        _ask({plain(t.shown()): size(space_of(t.path)) for t in found.values()})
    freed = []
    for target in found.values():
        freed.append(remove(target))
        if not (settings().json or settings().quiet):
            click.echo(f"{plain(target.shown())}: removed, {size(freed[-1])} freed")
    if settings().json:
        names = [typed(target.path) for target in found.values()]
        click.echo(json.dumps({"removed": names, "bytes": sum(freed)}))


def _find(runs_dir: str, argument: str) -> RunDir | SweepDir:
    """Return the run or sweep of a name or path; raises UsageError for a spec."""
    from jobrun.errors import LockedError, UsageError
    from jobrun.runs.find import find_run, find_sweep

    if argument.endswith((".yaml", ".yml")):
        hint = f"jobrun runs --spec {argument} lists its runs"
        raise UsageError(f"{argument} is a spec: name the runs to remove", hint=hint)
    target = find_sweep(runs_dir, argument) or find_run(runs_dir, argument)
    if target.held():
        raise LockedError("it is running, and is not removed", where=target.shown())
    return target


def _ask(sizes: dict[str, str]) -> None:
    """Ask whether to remove these; raises UsageError where nobody can answer."""
    if not sys.stdin.isatty():
        raise click.UsageError("nobody can be asked here: add -y to remove without asking")
    for name, size in sizes.items():
        click.echo(f"{name}  {size}", err=True)
    click.confirm(
        "Remove?" if len(sizes) == 1 else f"Remove these {len(sizes)}?", abort=True, err=True
    )
