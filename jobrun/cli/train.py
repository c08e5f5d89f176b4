"""``jobrun train``: train the job of a spec, or resume its run."""

from __future__ import annotations

from pathlib import Path

import click

from jobrun.cli.options import (
    RunOptions,
    code_option,
    common,
    completes,
    option,
    run_options,
    sets_option,
)
from jobrun.cli.signals import Signals
from jobrun.core.invocation import program

__all__ = ["command"]


@click.command("train", short_help="Train the job of a spec, or resume its run.")
@click.argument("spec", type=click.Path(), shell_complete=completes("spec"))
@sets_option
@option("--fresh", is_flag=True, help="Start a new run beside the existing ones.")
@option("--accept-changes", is_flag=True, help="Resume although the job has changed.")
@code_option("The folder of the code, if not the spec's.")
@run_options
@common
def command(
    spec: str,
    sets: tuple[str, ...],
    fresh: bool,
    accept_changes: bool,
    code: str | None,
    options: RunOptions,
) -> int:
    """Train the job of SPEC.

    An interrupted run of it resumes from its last checkpoint; if the run is finished, nothing is
    done.  --fresh starts a new run.  A spec with a 'matrix' is a sweep: all its runs.
    """
    with Signals() as signals:
        from jobrun.analysis.facts import job_facts
        from jobrun.analysis.identity import digest
        from jobrun.cli.running import command_line, run_job
        from jobrun.engine.resume_policy import Request
        from jobrun.jobspec.build import job_of
        from jobrun.jobspec.resolve import dump_resolved, load
        from jobrun.runs.find import run_of_spec, sweep_of_spec
        from jobrun.runs.series import newest_begun

        runs_dir = options.runs_dir
        loaded = load(spec, sets, epochs=options.epochs, folder=code, scheduler=options.scheduler)
        again = command_line(
            "train",
            spec,
            sets=sets,
            code=code,
            epochs=options.epochs,
            scheduler=options.scheduler,
            runs_dir=options.other_runs_dir,
        )
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
            from jobrun.cli.sweep import run_sweep
            from jobrun.tools.sweep import Sweep

            sweep = Sweep(loaded, loaded.text, request)
            seen = newest_begun(runs_dir, sweep.job.name)
            home = None if fresh else sweep_of_spec(runs_dir, sweep.job.name, sweep.digest)
            return run_sweep(sweep, home, options, sets, signals, seen)
        job = job_of(loaded)
        seen = newest_begun(runs_dir, job.name)
        run = None if fresh else run_of_spec(runs_dir, job.name, digest(job_facts(job)))
        return run_job(job, request, run.path if run else None, options, signals, seen)
