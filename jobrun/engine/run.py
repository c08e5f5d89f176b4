"""The state that all attempts of a runner share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.graph import Plan
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.conditions.base import Condition
from jobrun.core.events import Report, Stopping
from jobrun.core.paths import start_directory
from jobrun.engine.history import AnyHistory
from jobrun.engine.resume_policy import Request
from jobrun.engine.slurm import SlurmJob, slurm_job
from jobrun.model.job import Job
from jobrun.session.base import Places

__all__ = ["Run"]


@dataclass
class Run:
    """The state shared by all attempts of a runner.

    ``look`` is called periodically on the main thread.  Relative paths of a job without a spec
    begin at ``start``.
    ``interruption`` is why the run is to end early, if it is: the name of a signal, or words.
    """

    analysis: JobAnalysis
    manager: CheckpointManager | None
    request: Request
    report: Report
    conditions: Sequence[tuple[Condition, bool]]
    plans: Mapping[str, Plan]
    history: AnyHistory
    every_task: bool = False
    look: Callable[[], None] = lambda: None
    start: Path = field(default_factory=start_directory)
    interruption: str | None = None
    slurm: SlurmJob = field(default_factory=slurm_job)

    def interrupt(self, reason: str) -> None:
        """Start no new work, save, and end the run; ``reason`` is the name of a signal, or why."""
        if self.interruption is None:
            self.interruption = reason
            self.report(Stopping(reason))

    @property
    def ends_with_slurm(self) -> bool:
        """Whether the run is interrupted before its Slurm job ends."""
        return any(c.interrupts for c, _ in self.conditions)

    @property
    def job(self) -> Job:
        """The job that is run."""
        return self.analysis.job

    def places(self, *, check: bool = False) -> Places:
        """Return the directories of the run; ``check``: whether inputs are checked."""
        request = self.request
        return Places(request.spec_dir, self.history.path, check, self.start, request.folder)

    @cached_property
    def epochs(self) -> int | None:
        """The limit of epochs, if there is one."""
        limits = (c.epoch_limit for c, _ in self.conditions)
        return min((n for n in limits if n is not None), default=None)

    @property
    def walltime(self) -> float | None:
        """The limit of seconds, if there is one."""
        limits = (c.time_limit for c, _ in self.conditions)
        return min((s for s in limits if s is not None), default=None)

    @property
    def may_end_earlier(self) -> bool:
        """Whether there are stop conditions of which nobody knows when they come true."""
        return any(
            c.epoch_limit is None and c.time_limit is None
            for c, fails in self.conditions
            if not fails
        )
