"""``jobrun logs``: the log of a run and the output of its tasks."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from jobrun.cli.options import common, completes, option, runs_dir, settings

if TYPE_CHECKING:
    from jobrun.runs.run_state import RunState
    from jobrun.runs.rundir import RunDir

__all__ = ["command"]


@click.command("logs", short_help="Show the log of a run, and what its tasks printed.")
@click.argument("run", required=False, shell_complete=completes("run_or_spec"))
@click.argument("task", required=False, shell_complete=completes("task"))
@option("-f", "--follow", is_flag=True, help="Follow the log until the run ends.")
@option("--attempt", type=click.IntRange(min=1), metavar="N", help="Only this attempt.")
@option("--since", metavar="TIME", help="Only what is newer than 10m, or than 2026-11-28T10:00.")
@runs_dir
@common
def command(
    run: str | None,
    task: str | None,
    follow: bool,
    attempt: int | None,
    since: str | None,
    runs_dir: str,
) -> int:
    """Show the log of RUN (default: a running one, else the newest), or what TASK printed in it.

    TASK may be a pattern. Each line has its time (UTC), and the task and epoch it is of.
    """
    import json
    from dataclasses import asdict

    from jobrun.core.plain_text import plain
    from jobrun.errors import NotFoundError
    from jobrun.report.log_reader import Wanted, read, since_time
    from jobrun.report.log_reader import follow as follow_log
    from jobrun.runs.find import find_run

    wanted = Wanted(task, attempt, since_time(since) if since else None)
    found = find_run(runs_dir, run)
    path = found.path / "log.txt"
    if not os.path.lexists(path):
        raise NotFoundError("the run has no log.txt", where=found.shown())
    if task is not None:
        _check_task(task, found)
    lines = follow_log(path, wanted, lambda: not found.held()) if follow else read(path, wanted)
    shown = False
    try:
        for text, line, number in lines:
            shown = True
            if settings().json:
                text = json.dumps({**asdict(line), "attempt": number})
            click.echo(plain(text))
    except KeyboardInterrupt:  # the usual way to stop following
        if not follow:
            raise
    if not (shown or settings().quiet or settings().json):
        click.echo("nothing was printed", err=True)
    return 0


def _check_task(task: str, run: RunDir) -> None:
    """Raise NotFoundError if there is no such task, neither in the job nor in the log."""
    from jobrun.core.suggestions import did_you_mean_or_all
    from jobrun.errors import NotFoundError
    from jobrun.report.log_reader import printers

    known = list(dict.fromkeys([*_tasks(run.state()), *printers(run.path / "log.txt")]))
    if not any(name == task or fnmatchcase(name, task) for name in known):
        hint = did_you_mean_or_all(task, known)
        raise NotFoundError(f"no task {task!r}", where=run.shown(), hint=hint)


def _tasks(state: RunState | None) -> list[str]:
    """Return the tasks of the job, from the stored spec."""
    from jobrun.model.job import GROUPS

    facts = state.facts if state is not None else {}
    return [task["name"] for group in GROUPS for task in facts.get(group, ())]
