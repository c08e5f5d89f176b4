"""``jobrun resume``: resume a run from its end or from an earlier checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import click

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
    from jobrun.runs.node_map import NodeMap
    from jobrun.runs.rundir import RunDir
    from jobrun.runs.sweepdir import SweepDir
    from jobrun.tools.stored_spec import StoredSpec

__all__ = ["command"]

_EDITED = "{spec} has changed since; {run} resumes as it was (with the changes: {now})"


@dataclass(frozen=True)
class _Arguments:
    """The arguments that ``resume`` alone has; UsageError if they name two checkpoints."""

    run: str | None
    epoch: int | None
    id: int | None
    only: Literal["exit"] | None
    sets: tuple[str, ...]
    accept_changes: bool
    maps: tuple[str, ...]
    code: str | None
    nodes: int | None = None

    def __post_init__(self) -> None:
        if self.nodes is not None and self.maps:
            text = "--nodes decides which parts the nodes get: use it or --map-node, not both"
            raise click.UsageError(text)
        if self.epoch is not None and self.id is not None:
            raise click.UsageError("a checkpoint is named by --epoch or by --id, not by both")

    @property
    def is_spec(self) -> bool:
        """Whether the run is named by its spec, so that the file as it is now counts."""
        return self.run is not None and self.run.endswith((".yaml", ".yml"))

    @property
    def names_checkpoint(self) -> bool:
        """Whether a checkpoint of one run is meant."""
        return self.epoch is not None or self.id is not None or self.only is not None


@click.command("resume", short_help="Resume a run, from its end or from an earlier checkpoint.")
@click.argument(
    "run", required=False, metavar="[RUN|SPEC|URL]", shell_complete=completes("run_or_spec")
)
@option(
    "--epoch",
    type=click.IntRange(min=0),
    metavar="N",
    help="Go back to the end of epoch N.",
    shell_complete=completes("epoch"),
)
@option(
    "--id",
    type=click.IntRange(min=0),
    metavar="K",
    help="Go back to checkpoint_K.",
    shell_complete=completes("id"),
)
@option(
    "--only",
    type=click.Choice(["exit"]),
    help="Run only download and exit again; the run stays as it is.",
)
@sets_option
@option("--accept-changes", is_flag=True, help="Resume although the job has changed.")
@option(
    "--map-node",
    "maps",
    metavar="OLD=NEW",
    multiple=True,
    help="Give the part of a checkpoint's node to a node of the job.",
)
@option(
    "--nodes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Resume with N nodes; new ones get a copy of the part of the first.",
)
@code_option("The folder of the code, if it has moved.")
@run_options
@common
def command(options: RunOptions, **values: Any) -> int:
    """Resume RUN: a name, a path, or a spec (default: the newest unfinished run).

    With a spec, the file as it is now counts; with a run, the spec that is stored in it.  With
    --epoch or --id later checkpoints move to the run's attempts/.  A sweep resumes as a whole; one
    of its runs, named by its path, by itself.

    The URL of a run or a checkpoint elsewhere (s3://bucket/run) is fetched first: that checkpoint
    alone, or the newest, or the one of --epoch or --id, as a run in the directory of the runs.

    With --only exit the newest checkpoint, or the one of --epoch or --id, is loaded, and setup,
    download and exit are run on it, with the code as it is now.  No checkpoint is written or moved.
    """
    arguments = _Arguments(**values)
    with Signals() as signals:
        from jobrun.cli.more_epochs import epochs_in_total, not_of_a_sweep
        from jobrun.cli.running import run_job
        from jobrun.cli.waiting import once_free
        from jobrun.jobspec.validate import job_of
        from jobrun.jobspec.vars import node_count_setting

        arguments = _fetched(arguments, options)
        run, sweep = _find(arguments, options)
        if options.more_epochs:
            if sweep is not None:
                raise not_of_a_sweep()
            options = epochs_in_total(options, run)
        stored = _stored(arguments, options, run, sweep)
        if arguments.nodes is not None:
            count = node_count_setting(stored.spec.model.nodes, arguments.nodes)
            arguments = replace(arguments, sets=(*arguments.sets, count))
            stored = _stored(arguments, options, run, sweep)
        request = _request(arguments, options, run, stored)
        if sweep is not None:
            from jobrun.cli.sweep_run import run_sweep
            from jobrun.tools.sweep import Sweep

            whole = Sweep(stored.spec, stored.text, request)
            start = lambda: run_sweep(whole, sweep, options, arguments.sets, signals)  # noqa: E731
            return once_free(start, signals, wait=options.wait)
        if stored.edited and not arguments.is_spec and not settings().quiet:
            _report_edited(run, stored, options)
        job = job_of(stored.spec)
        start = lambda: run_job(job, request, run.path, options, signals)  # noqa: E731
        return once_free(start, signals, wait=options.wait)


def _find(arguments: _Arguments, options: RunOptions) -> tuple[RunDir, SweepDir | None]:
    """Return the run to resume; or the sweep, and its directory as a run."""
    from jobrun.runs.find import find_run, find_sweep

    if arguments.run is None:
        _report_unreadable(options.runs_dir)
    sweep = find_sweep(options.runs_dir, arguments.run)
    if sweep is None:
        return find_run(options.runs_dir, arguments.run, unfinished=True), None
    if arguments.names_checkpoint:
        raise click.UsageError(f"a checkpoint belongs to one run, but {sweep.shown()} is a sweep")
    return sweep.home, sweep


def _stored(
    arguments: _Arguments, options: RunOptions, run: RunDir, sweep: SweepDir | None
) -> StoredSpec:
    """Return the spec to resume with; UsageError if it has become a sweep, or none any more."""
    from jobrun.core.paths import shown
    from jobrun.errors import UsageError
    from jobrun.tools.stored_spec import stored_spec

    stored = stored_spec(
        run,
        arguments.run,
        arguments.sets,
        epochs=options.epochs,
        code=arguments.code,
        sweep=sweep.state() if sweep is not None else None,
        scheduler=options.scheduler,
    )
    if (sweep is None) is not (stored.spec.matrix is None):
        what = "is no longer a sweep" if sweep is not None else "is a sweep now"
        hint = f"start it: {_train_line(stored, options, arguments.sets)}"
        text = f"{shown(stored.spec_path)} {what}, so {run.shown()} cannot resume with it"
        raise UsageError(text, hint=hint)
    return stored


def _request(
    arguments: _Arguments, options: RunOptions, run: RunDir, stored: StoredSpec
) -> Request:
    """Return the request to the engine."""
    from jobrun.cli.more_epochs import MORE
    from jobrun.engine.resume_policy import Request
    from jobrun.jobspec.resolve import dump_resolved
    from jobrun.runs.node_map import parse_maps

    return Request(
        "resume",
        epoch=arguments.epoch,
        id=arguments.id,
        accept_changes=arguments.accept_changes,
        nodes=parse_maps(arguments.maps)
        if arguments.nodes is None
        else _resized(arguments, run, stored),
        resized=arguments.nodes is not None,
        folder=stored.folder,
        spec_path=stored.spec_path,
        spec_text=stored.text,
        resolved_text=dump_resolved(stored.spec),
        program=program(),
        only=arguments.only or "",
        again=_resume_line(arguments, options, run),
        afresh=f"{_train_line(stored, options, arguments.sets)} --fresh",
        longer=f"{_resume_line(arguments, replace(options, epochs=None), run)} {MORE}",
    )


def _resized(arguments: _Arguments, run: RunDir, stored: StoredSpec) -> NodeMap:
    """Return the map from the nodes of the checkpoint to those of a spec with other ones."""
    from jobrun.jobspec.validate import job_of
    from jobrun.runs.node_map import resized

    record = run.checkpoint(epoch=arguments.epoch, id=arguments.id)
    return resized(record.nodes if record is not None else (), [*job_of(stored.spec).nodes])


def _resume_line(arguments: _Arguments, options: RunOptions, run: RunDir) -> str:
    """Return the command that asks for the same again."""
    from jobrun.cli.running import command_line

    return command_line(
        "resume",
        arguments.run if arguments.run is not None and arguments.is_spec else run.shown(),
        *(word for text in arguments.maps for word in ("--map-node", text)),
        *(() if arguments.nodes is None else ("--nodes", str(arguments.nodes))),
        sets=arguments.sets if arguments.nodes is None else arguments.sets[:-1],
        epoch=arguments.epoch,
        id=arguments.id,
        only=arguments.only,
        epochs=options.epochs,
        code=arguments.code,
        scheduler=options.scheduler,
        runs_dir=options.other_runs_dir if arguments.is_spec else None,
    )


def _train_line(stored: StoredSpec, options: RunOptions, sets: tuple[str, ...]) -> str:
    """Return the command that trains the spec of the run."""
    from jobrun.cli.running import command_line
    from jobrun.core.paths import shown

    beside = stored.folder == stored.spec_path.parent
    return command_line(
        "train",
        shown(stored.spec_path),
        sets=sets,
        code=None if beside else shown(stored.folder),
        epochs=options.epochs,
        scheduler=options.scheduler,
        runs_dir=options.other_runs_dir,
    )


def _report_edited(run: RunDir, stored: StoredSpec, options: RunOptions) -> None:
    """Report that the spec file has changed, which a resume by the run's name ignores."""
    from jobrun.core.paths import shown
    from jobrun.report.formatting import plain

    spec = shown(stored.spec_path)
    now = _train_line(stored, replace(options, epochs=None), ())
    click.echo(_EDITED.format(spec=plain(spec), run=plain(run.shown()), now=now), err=True)


def _report_unreadable(runs_dir: str) -> None:
    """Report the runs of which it is unknown whether they can be resumed."""
    from jobrun.report.formatting import plain
    from jobrun.runs.find import unreadable

    for found, why in unreadable(runs_dir):
        click.echo(f"warning: {plain(found.shown())} is skipped: {plain(why)}", err=True)


def _fetched(arguments: _Arguments, options: RunOptions) -> _Arguments:
    """Return the arguments with the local path of a run that was named by its URL."""
    from jobrun.core.paths import is_url
    from jobrun.errors import UsageError

    if arguments.run is None or not is_url(arguments.run):
        return arguments
    if options.dry_run:
        raise UsageError(
            f"a dry run does nothing, so {arguments.run} is not fetched",
            hint="without -n it is fetched into the directory of the runs, and resumes",
        )
    return replace(
        arguments, run=_fetch(arguments.run, options.runs_dir, arguments.epoch, arguments.id)
    )


def _fetch(url: str, runs_dir: str, epoch: int | None, id: int | None) -> str:
    """Fetch a run at a URL; return its local path, as ``find_run`` expects it."""
    from jobrun.cli.elsewhere import report_skipped
    from jobrun.core.paths import shown
    from jobrun.core.text import size
    from jobrun.remote.find import find_at
    from jobrun.report.formatting import plain
    from jobrun.runs.fetch import fetch

    found = find_at(url, epoch=epoch, id=id)
    report_skipped(found.skipped)
    run = fetch(found, runs_dir)
    what = f"{found.record.place}, {size(found.record.bytes)}"
    click.echo(f"fetched {plain(shown(found.url))} ({what}) into {plain(run.shown())}", err=True)
    return str(run.path.absolute())
