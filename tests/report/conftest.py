"""Events of a small run, for the tests of the reporters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace

import pytest
from made_events import Make

from jobrun.core.current_task import CurrentTask, enter


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture
def current() -> Callable[[str], AbstractContextManager[None]]:
    """A context in which this thread runs a task of the first epoch."""

    class Runs:
        def __init__(self, task: str) -> None:
            self.task = task

        def running(self, number: int) -> CurrentTask:
            return SimpleNamespace(group="epoch", epoch=1, task=self.task, node="main")

    @contextmanager
    def running(task: str) -> Iterator[None]:
        enter((Runs(task), 0))
        try:
            yield
        finally:
            enter(None)

    return running


@pytest.fixture(autouse=True)
def started_as_jobrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let messages offer ``jobrun``, whether it is on the PATH of who runs the tests or not."""
    monkeypatch.setattr("sys.argv", ["jobrun-tests"])
