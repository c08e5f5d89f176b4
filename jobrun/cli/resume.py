"""``jobrun resume``: resume a run from its end or from an earlier checkpoint."""

from __future__ import annotations

from typing import Any, Literal

import click

from jobrun.cli.options import common, completes, option, run_options, sets_option, settings
from jobrun.cli.signals import Signals
from jobrun.core.invocation import program

__all__ = ["command"]

_EDITED = "{spec} has changed since; {run} goes on as it was (with the changes: {now})"


@click.command("resume", short_help="Go on with a run, from its end or an earlier checkpoint.")
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
    help="Run no epoch, but download and exit again; the run stays as it is.",
)
@sets_option
@option("--accept-changes", is_flag=True, help="Go on although the job has changed.")
@option(
    "--map-node",
    "maps",
    metavar="OLD=NEW",
    multiple=True,
    help="Give the part of a checkpoint's node to a node of the job.",
)
@option("--code", type=click.Path(), metavar="DIR", help="Where the code is now.")
@run_options
@common
def command(
    run: str | None,
    epoch: int | None,
    id: int | None,
    only: Literal["exit"] | None,
    sets: tuple[str, ...],
    accept_changes: bool,
    maps: tuple[str, ...],
    code: str | None,
    epochs: int | None,
    threads: int | None,
    scheduler: str | None,
    runs_dir: str,
    dry_run: bool,
    shapes: bool,
    check: bool,
    jobs: int,
    fail_fast: bool,
    progress: str | None,
    reporters: tuple[str, ...],
) -> int:
    """Go on with RUN: a name, a path, or a spec (default: the newest unfinished run).

    With a spec, the file as it is now counts; with a run, the spec that is kept in it.  With
    --epoch or --id later checkpoints move to the run's attempts/.  A sweep goes on as a whole; one
    of its runs, named by its path, by itself.

    The URL of a run or a checkpoint elsewhere (s3://bucket/run) is fetched first: that checkpoint
    alone, or the newest, or the one of --epoch or --id, as a run in the directory of the runs.

    With --only exit the newest checkpoint, or the one of --epoch or --id, is loaded, and setup,
    download and exit are run on it, with the code as it is now.  No checkpoint is written or moved.
    """
    if epoch is not None and id is not None:
        raise click.UsageError("a checkpoint is named by --epoch or by --id, not by both")
    if shapes and not dry_run:
        raise click.UsageError("--shapes is for a dry run: add -n")
    with Signals() as signals:
        from jobrun.cli.running import Engine, command_line
        from jobrun.cli.watching import Watching
        from jobrun.core.paths import is_url, shown
        from jobrun.engine.resume_policy import Request
        from jobrun.errors import UsageError
        from jobrun.jobspec.build import job_of
        from jobrun.jobspec.resolve import dump_resolved
        from jobrun.report.formatting import plain
        from jobrun.runs.find import find_run, find_sweep
        from jobrun.runs.node_map import parse_maps
        from jobrun.tools.stored_spec import kept_spec

        if run is not None and is_url(run):
            if dry_run:
                hint = "without -n it is fetched into the directory of the runs, and goes on"
                raise UsageError(f"a dry run does nothing, so that {run} is not fetched", hint=hint)
            run = _fetch(run, runs_dir, epoch, id)
        if run is None:
            _say_unreadable(runs_dir)
        sweep = find_sweep(runs_dir, run)
        if sweep is not None and (epoch is not None or id is not None or only is not None):
            raise click.UsageError(f"a checkpoint is one of a run, and {sweep.shown()} is a sweep")
        found = sweep.home if sweep is not None else find_run(runs_dir, run, unfinished=True)
        state = sweep.state() if sweep is not None else None
        kept = kept_spec(
            found, run, sets, epochs=epochs, code=code, sweep=state, scheduler=scheduler
        )
        options: dict[str, Any] = {"epoch": epoch, "id": id, "only": only, "epochs": epochs}
        options |= {"code": code, "scheduler": scheduler}
        elsewhere = None if runs_dir == "runs" else runs_dir
        by_spec = run is not None and run.endswith((".yaml", ".yml"))
        options["runs_dir"] = elsewhere if by_spec else None
        words = [run if run is not None and by_spec else found.shown()]
        mapped = [word for text in maps for word in ("--map-node", text)]
        spec_path = shown(kept.spec_path)
        anew = {"epochs": epochs, "scheduler": scheduler, "runs_dir": elsewhere}
        request = Request(
            "resume",
            epoch=epoch,
            id=id,
            accept_changes=accept_changes,
            nodes=parse_maps(maps),
            folder=kept.folder,
            spec_path=kept.spec_path,
            spec_text=kept.text,
            resolved_text=dump_resolved(kept.spec),
            program=program(),
            only=only or "",
            again=command_line("resume", *words, *mapped, sets=sets, **options),
            afresh=f"{command_line('train', spec_path, sets=sets, **anew)} --fresh",
        )
        if (sweep is None) is not (kept.spec.matrix is None):
            what = "is no sweep any more" if sweep is not None else "is a sweep now"
            hint = f"start it: {command_line('train', spec_path, sets=sets, **anew)}"
            raise UsageError(f"{spec_path} {what}, and {found.shown()} is not of it", hint=hint)
        if sweep is not None:
            if reporters:
                text = "a sweep has no --reporter; its spec names reporters under 'report'"
                raise click.UsageError(text)
            from jobrun.cli.sweep import How, SweepEngine
            from jobrun.tools.sweep import Sweep

            how = How(jobs, threads, check, fail_fast, sets, epochs, runs_dir, progress)
            whole = SweepEngine(settings(), signals, Sweep(kept.spec, kept.text, request), how)
            return whole.dry_run(sweep) if dry_run else whole.run(sweep)
        if kept.edited and not by_spec and not settings().quiet:
            now = command_line("train", spec_path, runs_dir=elsewhere)
            click.echo(
                _EDITED.format(spec=plain(spec_path), run=plain(found.shown()), now=now), err=True
            )
        job = job_of(kept.spec)
        if dry_run:
            from jobrun.cli.dry_run import show_dry_run

            return show_dry_run(job, request, runs_dir, found.path, threads=threads, shapes=shapes)
        watching = Watching(settings(), progress, reporters)
        engine = Engine(watching, signals, threads=threads, check=check)
        return engine.run(job, request, runs_dir, found.path)


def _say_unreadable(runs_dir: str) -> None:
    """Report the runs of which it is unknown whether they can be resumed."""
    from jobrun.report.formatting import plain
    from jobrun.runs.find import unreadable

    for found, why in unreadable(runs_dir):
        click.echo(f"warning: {plain(found.shown())} is passed over: {plain(why)}", err=True)


def _fetch(url: str, runs_dir: str, epoch: int | None, id: int | None) -> str:
    """Fetch a run at a URL; return its local path, as ``find_run`` expects it."""
    from jobrun.cli.elsewhere import say_skipped
    from jobrun.core.paths import shown
    from jobrun.core.text import size
    from jobrun.remote.find import find_at
    from jobrun.report.formatting import plain
    from jobrun.runs.fetch import fetch

    found = find_at(url, epoch=epoch, id=id)
    say_skipped(found)
    run = fetch(found, runs_dir)
    what = f"{found.record.place}, {size(found.record.bytes)}"
    click.echo(f"fetched {plain(shown(found.url))} ({what}) into {plain(run.shown())}", err=True)
    return str(run.path.absolute())
