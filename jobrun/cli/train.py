"""``jobrun train``: train the job of a spec, or resume its run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobrun.cli.json_stdout import stdout_for_json
from jobrun.cli.options import (
    RunOptions,
    code_option,
    common,
    completes,
    option,
    run_options,
    sets_option,
    settings,
)
from jobrun.cli.signals import Signals
from jobrun.core.invocation import program

if TYPE_CHECKING:
    from jobrun.engine.resume_policy import Request
    from jobrun.jobspec.resolve import Spec

__all__ = ["command"]


@click.command("train", short_help="Train the job of a spec, or resume its run.")
@click.argument("spec", type=click.Path(), shell_complete=completes("spec"))
@sets_option
@option("--fresh", is_flag=True, help="Start a new run beside the existing ones.")
@option("--accept-changes", is_flag=True, help="Resume although the job has changed.")
@code_option("The folder of the code, if not the spec's; the run remembers it.")
@option(
    "--member",
    metavar="N|VALUES",
    help="Train one run of a sweep: its number from 0, or lr=0.1,hidden=32.",
)
@run_options
@common
def command(
    spec: str,
    sets: tuple[str, ...],
    fresh: bool,
    accept_changes: bool,
    code: str | None,
    member: str | None,
    options: RunOptions,
) -> int:
    """Train the job of SPEC.

    An interrupted run of it resumes from its last checkpoint; if the run is finished, nothing is
    done.  --fresh starts a new run.

    A spec with a 'matrix' is a sweep: all its runs.  With --member it is one of them; any number of
    processes, on all machines that share the directory, run members at once.  'jobrun sweep SPEC'
    lists them.
    """
    with Signals() as signals:
        from jobrun.cli.more_epochs import MORE
        from jobrun.cli.waiting import once_free
        from jobrun.engine.resume_policy import Request
        from jobrun.jobspec.resolve import dump_resolved, load
        from jobrun.jobspec.validate import with_code_problems

        if fresh and member is not None:
            raise click.UsageError(
                "--member trains one run of a sweep, --fresh starts another one; "
                "for a new sweep of that run alone: --fresh --set VAR=VALUE, without --member"
            )
        if options.more_epochs:
            options = _in_total(spec, sets, options, fresh=fresh, accept_changes=accept_changes)
        loaded = load(spec, sets, epochs=options.epochs, folder=code, scheduler=options.scheduler)
        if code is None:
            loaded = _with_remembered_code(loaded, options)
        request = Request(
            "train",
            accept_changes=accept_changes,
            fresh=fresh,
            folder=Path(loaded.folder),
            spec_path=Path(spec).absolute(),
            spec_text=loaded.text,
            resolved_text=dump_resolved(loaded),
            program=program(),
            again=_line(spec, sets, options, code, member),
            afresh=f"{_line(spec, sets, options, code)} --fresh",
            longer=f"{_line(spec, sets, replace(options, epochs=None), code)} {MORE}",
        )
        if loaded.matrix is not None:
            make = partial(_sweep, loaded, request, options, sets, member, signals)
        elif member is not None:
            from jobrun.cli.sweep import not_a_sweep

            raise not_a_sweep(spec)
        else:
            make = partial(_single, loaded, request, options, signals)
        with stdout_for_json(settings().json):
            start = with_code_problems(loaded, make)
        return once_free(start, signals, wait=options.wait)


def _in_total(
    spec: str, sets: tuple[str, ...], options: RunOptions, *, fresh: bool, accept_changes: bool
) -> RunOptions:
    """Return the options with the epochs in total that ``--epochs +N`` asks for."""
    from jobrun.analysis.facts import job_facts
    from jobrun.analysis.identity import digest
    from jobrun.cli.more_epochs import epochs_in_total, not_of_a_sweep
    from jobrun.jobspec.resolve import load
    from jobrun.jobspec.validate import job_of
    from jobrun.runs.find import run_of_spec

    loaded = load(spec, sets)
    if loaded.matrix is not None:
        raise not_of_a_sweep()
    job = job_of(loaded)
    own = digest(job_facts(job))
    run = None if fresh else run_of_spec(options.runs_dir, job.name, own)
    state = run.state() if run is not None else None
    if state is not None and state.over and state.digest != own and not accept_changes:
        run = None  # of another job: a new run starts beside it
    return epochs_in_total(options, run)


def _with_remembered_code(loaded: Spec, options: RunOptions) -> Spec:
    """Return the spec with the folder of the code that its newest run was given."""
    from jobrun.core.paths import resolved
    from jobrun.runs.find import remembered_code

    folder = remembered_code(options.runs_dir, str(loaded.tree["name"]), Path(loaded.path))
    if folder is None or resolved(folder) == resolved(loaded.folder):
        return loaded
    return replace(loaded, folder=str(folder))


def _line(
    spec: str,
    sets: tuple[str, ...],
    options: RunOptions,
    code: str | None,
    member: str | None = None,
) -> str:
    """Return the command that asks for the same again."""
    from jobrun.cli.running import command_line

    return command_line(
        "train",
        spec,
        sets=sets,
        code=code,
        member=member,
        epochs=options.epochs,
        scheduler=options.scheduler,
        runs_dir=options.other_runs_dir,
    )


def _single(
    loaded: Spec, request: Request, options: RunOptions, signals: Signals
) -> Callable[[], int]:
    """Return the start of a single run, which looks for that run on disk each time."""
    from jobrun.analysis.facts import job_facts
    from jobrun.analysis.identity import digest
    from jobrun.cli.running import run_job
    from jobrun.jobspec.validate import job_of
    from jobrun.runs.find import run_of_spec, unfinished_after
    from jobrun.runs.series import newest_begun

    job = job_of(loaded)

    def start() -> int:
        runs_dir = options.runs_dir
        seen = newest_begun(runs_dir, job.name)
        run = None if request.fresh else run_of_spec(runs_dir, job.name, digest(job_facts(job)))
        if run is None:
            return run_job(job, request, None, options, signals, seen)
        newer = unfinished_after(runs_dir, job.name, run)
        asked = replace(request, unfinished=newer.shown() if newer is not None else "")
        return run_job(job, asked, run.path, options, signals, seen)

    return start


def _sweep(
    loaded: Spec,
    request: Request,
    options: RunOptions,
    sets: tuple[str, ...],
    member: str | None,
    signals: Signals,
) -> Callable[[], int]:
    """Return the start of a sweep or one of its members, which looks for it on disk each time."""
    from jobrun.cli.sweep_member import run_member
    from jobrun.cli.sweep_run import run_sweep
    from jobrun.core.notices import notice
    from jobrun.jobspec.unused import idle_in_matrix
    from jobrun.runs.find import sweep_of_spec
    from jobrun.runs.series import newest_begun
    from jobrun.tools.sweep import Sweep

    sweep = Sweep(loaded, loaded.text, request)
    if member is not None:
        return lambda: run_member(sweep, member, options, signals)

    for problem in idle_in_matrix(loaded):
        notice(f"{problem.where}: {problem.message}; {problem.hint}")

    def start() -> int:
        runs_dir, name = options.runs_dir, sweep.job.name
        seen = newest_begun(runs_dir, name)
        home = None if request.fresh else sweep_of_spec(runs_dir, name, sweep.digest)
        return run_sweep(sweep, home, options, sets, signals, seen)

    return start
