"""The reporter ``tensorboard``: metrics for TensorBoard, by tensorboardX, which needs no torch."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from jobrun.core.events import (
    CheckpointLoaded,
    EpochFinished,
    Event,
    RunStarted,
    RunWentBack,
    SaveStarted,
    StepLogged,
)
from jobrun.core.late_imports import importing
from jobrun.core.paths import absolute

__all__ = ["TensorBoard"]

_SECONDS = 1.0
_FOREIGN = re.compile(r"[^\w./-]")


class TensorBoard:
    """Writes every metric with the epoch as its step, and the seconds of each epoch.

    ``logdir`` is ``tensorboard`` in the run's directory unless it is given.  A resumed run writes
    there too: earlier values of epochs that are run again are marked as void, by the session log
    that TensorBoard looks for.  All is on disk after a second, and when the writing of a checkpoint
    begins, so that a kill loses no epoch that is not run again.

    The numbers of ``jobrun.log`` are in its folder ``steps``, which TensorBoard shows as a run of
    its own: their steps are batches.

    It uses tensorboardX's writer of records: the usual SummaryWriter hands over to its own thread,
    and its ``flush`` does not wait for that thread.
    """

    def __init__(self, logdir: str | None = None) -> None:
        self._logdir = logdir
        self._writer: Any = None
        self._steps: Any = None
        self._started: RunStarted | None = None
        self._epoch = 0
        self._opened = 0
        self._again = False
        self._flushed = 0.0
        with importing():
            self._events = import_module("tensorboardX.proto.event_pb2")
            self._summary = import_module("tensorboardX.summary")

    def __call__(self, event: Event) -> None:
        """Write ``event``."""
        if isinstance(event, RunStarted):
            if not event.only:  # else no epoch is run
                self._started = event
                if event.checkpoint is None:  # else later epochs stay until it is loaded
                    self._open(event.epoch, event.attempt > 1)
        elif self._started is None:
            return
        elif isinstance(event, RunWentBack):
            self._open(event.epoch, True)
        elif isinstance(event, CheckpointLoaded):
            if self._writer is None or event.epoch < self._epoch:  # or a fallback
                self._open(event.epoch, True)
        elif isinstance(event, StepLogged):
            self._log_step(event)
        elif isinstance(event, EpochFinished) and self._writer is not None:
            for name, value in {**event.metrics, "epoch_seconds": event.seconds}.items():
                if isinstance(value, bool | int | float):
                    self._write(event.epoch, self._summary.scalar(_tag(name), float(value)))
            self._flush(_SECONDS)
        elif isinstance(event, SaveStarted):
            self._flush()

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._steps is not None:
            self._steps.close()
            self._steps = None

    def _open(self, epoch: int, again: bool) -> None:
        """Open a file for the epochs after ``epoch``; ``again``: some may be in an earlier one."""
        started = self._started
        assert started is not None
        self.close()
        self._epoch = epoch
        self._opened += 1
        folder = _folder(self._logdir, started.run_dir)
        self._again = again
        self._writer = self._opened_in(folder)
        if again:
            restart = self._events.SessionLog(status=self._events.SessionLog.START)
            self._write(epoch + 1, session_log=restart)
        elif started.vars:
            self._write(0, self._summary.text("vars", _table(started.vars)))
        self._flush()

    def _opened_in(self, folder: Path) -> Any:
        """Return a writer of a new file in a folder."""
        assert self._started is not None
        folder.mkdir(parents=True, exist_ok=True)
        # Names are by the second; files of one second must not be one.
        suffix = f".{self._started.attempt}.{self._opened}"
        with importing():
            writer = import_module("tensorboardX.event_file_writer").EventsWriter
        return writer(str(folder / "events"), suffix)

    def _log_step(self, event: StepLogged) -> None:
        """Write the numbers of a step; those that an earlier attempt has from it on are void."""
        assert self._started is not None
        if self._steps is None:
            folder = _folder(self._logdir, self._started.run_dir)
            self._steps = self._opened_in(folder / "steps")
            if self._again:
                restart = self._events.SessionLog(status=self._events.SessionLog.START)
                self._write(event.step, session_log=restart, writer=self._steps)
        for name, value in event.values.items():
            tag = _tag(
                f"{event.task}/{name}"
                if event.node == "main"
                else f"{event.node}/{event.task}/{name}"
            )
            self._write(event.step, self._summary.scalar(tag, value), writer=self._steps)
        self._flush(_SECONDS)

    def _write(
        self, step: int, summary: Any = None, session_log: Any = None, writer: Any = None
    ) -> None:
        event = self._events.Event(
            wall_time=time.time(), step=step, summary=summary, session_log=session_log
        )
        (writer or self._writer).write_event(event)

    def _flush(self, apart: float = 0.0) -> None:
        """Flush to disk, but not twice within ``apart`` seconds."""
        now = time.monotonic()
        if self._writer is not None and now - self._flushed >= apart:
            self._writer.flush()
            if self._steps is not None:
                self._steps.flush()
            self._flushed = now


def _tag(name: str) -> str:
    """Return a name in the form that TensorBoard allows."""
    return _FOREIGN.sub("_", name)


def _folder(logdir: str | None, run_dir: str | None) -> Path:
    if logdir is not None:
        return absolute(logdir)
    if run_dir is None:
        raise ValueError("a run without a directory needs a logdir")
    return Path(run_dir) / "tensorboard"


def _table(values: Mapping[str, Any]) -> str:
    """Return a table in Markdown."""
    return "\n".join(
        ["| var | value |", "|---|---|", *(f"| {k} | {v} |" for k, v in values.items())]
    )
