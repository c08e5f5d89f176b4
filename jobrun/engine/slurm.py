"""The Slurm job that a run is part of: its id, how often it was requeued, and when it ends.

Slurm sets ``SLURM_JOB_END_TIME``, in seconds since 1970, from version 23.02 on; with an older one
the script of the job sets it.  A run with ``walltime: slurm`` is interrupted before that, as if by
SIGTERM, early enough for its last save.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from jobrun.errors import UsageError

__all__ = ["SlurmJob", "slurm_job", "time_to_stop"]

_END = "SLURM_JOB_END_TIME"
_NOTICE = 60.0
"""The least seconds between the interruption and the end, for the tasks that run and the save."""
_SAVES = 2.0
"""Saves, as long as the longest so far, that must fit into the time left beside ``_NOTICE``."""
_OLDER = f'export {_END}=$(date -d "$(squeue -h -j "$SLURM_JOB_ID" -o %e)" +%s)'


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """The Slurm job according to the environment; ``end`` is its end in seconds since 1970.

    ``id`` is ``17``, or ``17_3`` for a task of an array, and empty outside of Slurm.  ``requeued``
    counts the earlier starts of the job.
    """

    id: str = ""
    requeued: int = 0
    end: float | None = None

    @property
    def end_text(self) -> str:
        """The end of the job, in words; or why it is not known."""
        if self.end is not None:
            return f"the Slurm job ends at {datetime.fromtimestamp(self.end, UTC):%H:%M:%S} UTC"
        if not self.id:
            return f"this is not a Slurm job: {_END} is not set"
        return f"{_END} is not set, as Slurm does from 23.02 on; before 'jobrun': {_OLDER}"


def slurm_job(environ: Mapping[str, str] = os.environ) -> SlurmJob:
    """Return the job of this process; raises UsageError if its end is not a number of seconds."""
    id = environ.get("SLURM_JOB_ID", "")
    if array := environ.get("SLURM_ARRAY_JOB_ID"):
        id = f"{array}_{environ.get('SLURM_ARRAY_TASK_ID', '?')}"
    restarts = environ.get("SLURM_RESTART_COUNT", "")
    requeued = int(restarts) if restarts.isascii() and restarts.isdigit() else 0
    return SlurmJob(id, requeued, _seconds(environ.get(_END, "")))


def _seconds(text: str) -> float | None:
    if not text:
        return None
    try:
        seconds = float(text)
        datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        seconds = math.nan
    if not math.isfinite(seconds):
        raise UsageError(
            f"{_END}: expected seconds since 1970, got {text!r}",
            hint="date +%s -d '2030-01-01 12:00' prints them",
        )
    return seconds


def time_to_stop(end: float, longest_save: float) -> bool:
    """Return whether to stop now so that the state is saved by ``end``.  All are in seconds."""
    return time.time() + _NOTICE + _SAVES * longest_save >= end
