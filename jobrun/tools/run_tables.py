"""The attempts and the slowest tasks of a run as columns of text, for a terminal and a page."""

from __future__ import annotations

from collections.abc import Sequence

from jobrun.core.text import duration
from jobrun.report.attempts import Attempts, PastAttempt
from jobrun.report.formatting import plain
from jobrun.report.summary import OUTCOMES

__all__ = ["attempt_columns", "how_it_ended", "task_columns"]


def attempt_columns(attempts: Sequence[PastAttempt], *, going: bool) -> dict[str, list[str]]:
    """Return the columns by their headers; ``going``: the last attempt has not ended.

    "Slurm job" is among them only if an attempt was one.
    """
    columns = {
        "attempt": [f"{a.number}{f' (only {a.only})' if a.only else ''}" for a in attempts],
        "started (UTC)": [a.started[:19].replace("T", " ") for a in attempts],
        "time": [duration(a.seconds) for a in attempts],
        "Slurm job": [_slurm_job(a) or "-" for a in attempts],
        "from": [
            "init" if a.checkpoint is None else f"checkpoint_{a.checkpoint}" for a in attempts
        ],
        "epochs": [f"{a.epoch + 1}..{a.last}" if a.last > a.epoch else "-" for a in attempts],
        "session": [a.session for a in attempts],
        "ended": ["running" if going and a is attempts[-1] else how_it_ended(a) for a in attempts],
    }
    if not any(a.slurm_job for a in attempts):
        del columns["Slurm job"]
    return columns


def task_columns(past: Attempts, most: int) -> dict[str, list[str]]:
    """Return the columns of the ``most`` slowest tasks by their headers."""
    tasks = past.tasks[:most]
    return {
        "task": [t.task for t in tasks],
        "group": [t.group for t in tasks],
        "total": [duration(t.seconds) for t in tasks],
        "share": [f"{t.seconds / past.seconds:.0%}" if past.seconds > 0 else "" for t in tasks],
        "times": [str(t.times) for t in tasks],
        "mean": [duration(t.seconds / t.times) for t in tasks],
        "longest": [duration(t.longest) for t in tasks],
    }


def how_it_ended(attempt: PastAttempt) -> str:
    """Return how an attempt ended, and why."""
    if not attempt.outcome:
        return "killed or crashed"
    reason = f": {plain(attempt.reason)}" if attempt.reason else ""
    return f"{OUTCOMES.get(attempt.outcome, attempt.outcome)}{reason}"


def _slurm_job(attempt: PastAttempt) -> str:
    """Return the Slurm job of an attempt, ``17_3, requeued twice``; empty outside of Slurm."""
    if not attempt.requeued:
        return attempt.slurm_job
    times = {1: "once", 2: "twice"}.get(attempt.requeued, f"{attempt.requeued} times")
    return f"{attempt.slurm_job}, requeued {times}"
