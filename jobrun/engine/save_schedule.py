"""Decides when a save is due, by ``checkpoint.every`` and by the user's request."""

from __future__ import annotations

import time

from jobrun.model.policy import CheckpointPolicy

__all__ = ["SaveSchedule"]


class SaveSchedule:
    """The schedule of saves: whether one is due, from the progress since the last.

    Batches are counted along the graph of the tasks (see ``session.base.Control``), not over all
    pipes: where several run at once, a save falls where each has applied as many, whatever the
    threads.  ``applied`` and ``inside`` may be called from any thread while an epoch runs.
    """

    def __init__(self, policy: CheckpointPolicy) -> None:
        self._every = policy.every
        self._batches = 0
        self._before = 0
        self._epoch: int | None = None
        self._time = time.monotonic()
        self._postponed = False
        self._held = False
        self.requested = False
        """A save is requested at the next place where one is possible."""

    def saved(self, epoch: int) -> None:
        """Count from a save made with ``epoch`` epochs completed."""
        self._batches = 0
        self._epoch = epoch
        self._time = time.monotonic()
        self._postponed = self._held = self.requested = False

    def forget(self) -> None:
        """Reset to the initial state: no save made yet."""
        self.saved(0)
        self._epoch = None

    def hold(self) -> None:
        """Allow no other save before the next batch or the epoch's end: nothing has changed."""
        self._held = True
        self.requested = False

    def postpone(self) -> None:
        """Defer the save to the end of the epoch."""
        self._postponed = True

    def begin(self) -> None:
        """Begin a run of an epoch, or of the rest of it: ``applied`` counts its batches from 0."""
        self._before = self._batches

    def applied(self, count: int) -> None:
        """Record that ``count`` batches of the run lie one behind another."""
        if self._before + count > self._batches:
            self._batches = self._before + count
            self._held = False

    def inside(self) -> bool:
        """Return whether to cut an epoch at once, to save.

        Not for ``batches`` alone: then the session itself ends the run, after ``batches_left``.
        """
        if self._postponed or self._held:
            return False
        return self._wanted(batches=bool(self._every.min_gap))

    def _wanted(self, *, batches: bool) -> bool:
        every = self._every
        if self.requested:
            return True
        if batches and every.batches is not None and self._batches >= every.batches:
            return self._gap_over()
        if every.seconds is not None and time.monotonic() - self._time >= every.seconds:
            return self._gap_over()
        return False

    def batches_left(self) -> int | None:
        """Return the number of batches until a save is due; None if not batches alone decide."""
        every = self._every
        if every.batches is None or every.min_gap or self._postponed:
            return None
        return max(1, every.batches - self._batches)

    def after(self, epoch: int) -> bool:
        """Return whether to save after ``epoch`` completed epochs."""
        self._held = False
        if self._epoch is None or self._postponed or self._wanted(batches=True):
            return True
        epochs = self._every.epochs
        return epochs is not None and epoch - self._epoch >= epochs and self._gap_over()

    def _gap_over(self) -> bool:
        return time.monotonic() - self._time >= self._every.min_gap
