"""``jobrun train``: train the job of a spec, or resume its run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from jobrun.cli.options import common, completes, option, run_options, sets_option, settings
from jobrun.cli.signals import Signals
from jobrun.core.invocation import program

__all__ = ["command"]


@click.command("train", short_help="Train the job of a spec, or go on with its run.")
@click.argument("spec", type=click.Path(), shell_complete=completes("spec"))
@sets_option
@option("--fresh", is_flag=True, help="Start a new run beside those that are there.")
@option("--accept-changes", is_flag=True, help="Go on although the job has changed.")
@run_options
@common
def command(
    spec: str,
    sets: tuple[str, ...],
    fresh: bool,
    accept_changes: bool,
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
    """Train the job of SPEC.

    Where a run of it was interrupted, it goes on from its last checkpoint; where one is finished,
    nothing is done.  --fresh starts a new run.  A spec with a 'matrix' is a sweep: all its runs.
    """
    if shapes and not dry_run:
        raise click.UsageError("--shapes is for a dry run: add -n")
    with Signals() as signals:
        from jobrun.analysis.identity import digest, job_facts
        from jobrun.cli.running import Engine, command_line
        from jobrun.cli.watching import Watching
        from jobrun.engine.resume_policy import Request
        from jobrun.jobspec.build import job_of
        from jobrun.jobspec.resolve import dump_resolved, load
        from jobrun.runs.find import newest_begun, run_of_spec, sweep_of_spec

        loaded = load(spec, sets, epochs=epochs, scheduler=scheduler)
        options: dict[str, Any] = {"epochs": epochs, "scheduler": scheduler}
        options["runs_dir"] = None if runs_dir == "runs" else runs_dir
        again = command_line("train", spec, sets=sets, **options)
        request = Request(
            "train",
            accept_changes=accept_changes,
            fresh=fresh,
            folder=Path(loaded.folder),
            spec_path=Path(spec).absolute(),
            spec_text=loaded.text,
            resolved_text=dump_resolved(loaded),
            program=program(),
            again=again,
            afresh=f"{again} --fresh",
        )
        if loaded.matrix is not None:
            if reporters:
                text = "a sweep has no --reporter; its spec names reporters under 'report'"
                raise click.UsageError(text)
            from jobrun.cli.sweep import How, SweepEngine
            from jobrun.tools.sweep import Sweep

            how = How(jobs, threads, check, fail_fast, sets, epochs, runs_dir, progress)
            sweep = Sweep(loaded, loaded.text, request)
            seen = newest_begun(runs_dir, sweep.job.name)
            home = None if fresh else sweep_of_spec(runs_dir, sweep.job.name, sweep.digest)
            whole = SweepEngine(settings(), signals, sweep, how)
            return whole.dry_run(home) if dry_run else whole.run(home, seen)
        job = job_of(loaded)
        seen = newest_begun(runs_dir, job.name)
        run = None if fresh else run_of_spec(runs_dir, job.name, digest(job_facts(job)))
        path = run.path if run else None
        if dry_run:
            from jobrun.cli.dry_run import show_dry_run

            return show_dry_run(job, request, runs_dir, path, threads=threads, shapes=shapes)
        watching = Watching(settings(), progress, reporters)
        engine = Engine(watching, signals, threads=threads, check=check)
        return engine.run(job, request, runs_dir, path, seen)
