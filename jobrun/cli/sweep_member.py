"""``train --member``: one run of a sweep, in this process, beside others on any machines."""

from __future__ import annotations

from dataclasses import replace

import click

from jobrun.cli.options import RunOptions
from jobrun.cli.running import run_job
from jobrun.cli.signals import Signals
from jobrun.core.plain_text import plain
from jobrun.jobspec.resolve import dump_resolved, with_values
from jobrun.runs.find import sweep_of_spec
from jobrun.tools.sweep import Sweep
from jobrun.tools.sweep_members import member_number, place_of, registered

__all__ = ["run_member"]


def run_member(sweep: Sweep, member: str, options: RunOptions, signals: Signals) -> int:
    """Run the member that ``member`` names, or show what would be done; return the exit code.

    Raises UsageError if there is no such member, LockedError if another process runs it.
    """
    runs_dir, name = options.runs_dir, sweep.job.name
    home = sweep_of_spec(runs_dir, name, sweep.digest)
    number = member_number(sweep.members(home), member)
    placed = (place_of if options.dry_run else registered)(sweep, runs_dir)
    for line in placed.lines:
        click.echo(plain(line), err=True)
    home = placed.home
    chosen = sweep.members(home)[number]
    spec = with_values(sweep.spec, chosen.values)
    request = replace(
        sweep.request,
        command="resume",  # never another run beside it: the sweep decides that
        resolved_text=dump_resolved(spec),
        longer="",
    )
    return run_job(sweep.job_of(chosen), request, home.run(chosen).path, options, signals)
