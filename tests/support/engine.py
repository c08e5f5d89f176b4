"""Drives a job through a session, group by group, as the runner does; and compares blobs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from jobrun.analysis.checks import check
from jobrun.analysis.graph import make_plan
from jobrun.core.events import Event
from jobrun.core.position import Position
from jobrun.model.job import Job
from jobrun.session.base import Control, Places, Session
from jobrun.session.local import LocalSession

T = TypeVar("T")

_open: list[LocalSession] = []


def close_sessions() -> None:
    """Close the local sessions of all drivers: their threads and processes would outlive a test."""
    while _open:
        within(20, _open.pop().close)


def within(seconds: float, call: Callable[[], T]) -> T:
    """``call()`` on a thread of its own; a hang is a failed test, not a hanging suite."""
    result: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            result.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"still running after {seconds} s"
    if errors:
        raise errors[0]
    return result[0]


class Driver:
    """A job on a session, with the position it has come to."""

    def __init__(
        self,
        job: Job,
        threads: int = 2,
        *,
        session: Session | None = None,
        check_inputs: bool = False,
        spec_dir: Path | None = None,
    ) -> None:
        problems = check(job)
        assert not problems, "\n".join(map(str, problems))
        self.job = job
        self.session = session or LocalSession(threads)
        if isinstance(self.session, LocalSession):
            _open.append(self.session)
        self.session.open(job, Places(spec_dir=spec_dir, check=check_inputs))
        self.plans = {name: make_plan(job, job.groups[name]) for name in job.groups}
        self.position = Position()
        self.events: list[Event] = []

    def run(self, group: str, control: Control | None = None) -> Position:
        """Run a group from the position on; the position is not moved."""
        control = control or Control(report=self.events.append)
        return within(15, lambda: self.session.run(self.plans[group], self.position, control))

    def start(self) -> Driver:
        """Run ``setup`` and ``init``."""
        self.run("setup")
        self.run("init")
        return self

    def epoch(
        self,
        cut: Callable[[], bool] = lambda: False,
        batches_left: Callable[[], int | None] | None = None,
    ) -> bool:
        """Run an epoch, or what is left of it; gives whether it is done."""
        control = Control(cut=cut, report=self.events.append)
        if batches_left is not None:
            control.batches_left = batches_left
        reached = self.run("epoch", control)
        if not self.plans["epoch"].finished(reached.tasks):
            self.position = reached
            return False
        self.position = self.position.next_epoch(reached.readers)
        return True

    def epochs(self, count: int) -> Driver:
        """Run so many epochs, and forget their scratch, as between epochs."""
        for _ in range(count):
            assert self.epoch()
            self.session.end_epoch()
        return self

    def blob(self, name: str) -> Any:
        """A blob's value."""
        return self.session.blob(name)


def same(a: Any, b: Any) -> bool:
    """Equal in kind, dtype, shape, key order and bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Mapping):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return np.float64(a).tobytes() == np.float64(b).tobytes()
    return bool(a == b)


def cut_after(batches: int) -> Callable[[], bool]:
    """A ``cut`` that is true at its call number ``batches``, counted from 0, and from then on."""
    calls = iter(range(1 << 30))
    return lambda: next(calls) >= batches
