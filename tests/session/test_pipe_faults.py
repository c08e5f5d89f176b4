"""A fault in the source, a ``map`` or a ``do`` step, whatever the others do meanwhile.

For every number of threads and several windows: the run ends with the error of the batch that one
thread would have failed at, the batches before it are applied, and no thread is left.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from engine import Driver

from jobrun.errors import TaskError
from jobrun.model.job import Job, Pipe, Task

THREADS = range(1, 9)
WINDOWS = (None, 1, 3, 30)
"""``ahead``: by the threads, nearly none, some, more than there is to read."""
ROWS = 12
STEPS = ("source", "map", "do")


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [t for t in threading.enumerate() if t not in before and t.name.startswith("jobrun")]
    assert not [t for t in left if t.name.startswith("jobrun-ahead")]
    for thread in left:  # of the session: told to end, which may take a moment
        thread.join(20)
        assert not thread.is_alive()


class Staged:
    """A pipe of one row a batch whose three steps do what ``at(step, row)`` does."""

    def __init__(self, at: Callable[[str, int], None], source: str, **pipe: Any) -> None:
        self.at = at
        self.applied: list[int] = []
        self.job = Job("staged", seed=1)
        make = {"stream": self._stream, "items": lambda: _Items(at)}[source]
        with self.job.epoch:
            Pipe(
                ["x"],
                map=[Task(self._map, "x", out="x", name="map")],
                do=[Task(self._do, "x", name="do")],
                call=make,
                **pipe,
            )

    def _stream(self) -> Iterator[int]:
        for row in range(ROWS):
            self.at("source", row)
            yield row

    def _map(self, x: Any) -> Any:
        self.at("map", int(x[0]))
        return x

    def _do(self, x: Any) -> None:
        self.at("do", int(x[0]))
        self.applied.append(int(x[0]))

    def run(self) -> None:
        """Run an epoch; a hang is a failed test."""
        driver = Driver(self.job)
        try:
            driver.start().epochs(1)
        finally:
            driver.session.close()


class _Items:
    def __init__(self, at: Callable[[str, int], None]) -> None:
        self.at = at

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> int:
        self.at("source", row)
        return row


def message(step: str, kind: str, row: int) -> str:
    """What the error of a step says."""
    if step == "source":
        return rf"which pipe 'pipe' reads, failed: {kind}: row {row}(\n|$)"
    return rf"'pipe/{step}' of group 'epoch' in batch {row + 1} failed: {kind}: row {row}(\n|$)"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("ahead", WINDOWS)
def test_an_error_ends_the_pipe_at_its_batch_whatever_is_slow(
    threads: int, ahead: int | None
) -> None:
    for (source, row), fails, slow in product(
        (("stream", 2), ("items", ROWS - 1)), STEPS, (None, *STEPS)
    ):

        def at(
            step: str, number: int, fails: str = fails, slow: Any = slow, row: int = row
        ) -> None:
            if step == slow and abs(number - row) < 3:
                time.sleep(0.001)
            if step == fails and number >= row:  # later ones fail too, and may do so first
                raise ValueError(f"row {number}")

        staged = Staged(at, source, threads=threads, ahead=ahead)
        with pytest.raises(TaskError, match=message(fails, "ValueError", row)):
            staged.run()
        assert staged.applied == list(range(row)), (source, fails, slow)


@pytest.mark.parametrize("threads", THREADS)
def test_the_first_batch_that_fails_counts_where_all_steps_fail(threads: int) -> None:
    """Not the first in time: the source fails at row 9 long before row 6 is applied."""
    rows = {"source": 9, "map": 8, "do": 6}

    def at(step: str, number: int) -> None:
        if number == rows[step]:
            raise ValueError(f"row {number}")

    for ahead in WINDOWS:
        staged = Staged(at, "stream", threads=threads, ahead=ahead)
        with pytest.raises(TaskError, match=message("do", "ValueError", 6)):
            staged.run()
        assert staged.applied == list(range(6))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("source", ["items", "stream"])
@pytest.mark.parametrize("threads", [1, 4])
def test_whatever_is_raised_is_the_error_of_the_step(
    kind: type[BaseException], step: str, source: str, threads: int
) -> None:
    def at(where: str, number: int) -> None:
        if where == step and number == 5:
            raise kind("row 5")

    staged = Staged(at, source, threads=threads)
    name = kind.__name__
    text = message(step, name, 5)
    if (kind, step, source) == (StopIteration, "source", "stream"):
        text = "failed: RuntimeError: generator raised StopIteration"  # Python says it so
    with pytest.raises(TaskError, match=text):
        staged.run()
    assert staged.applied == [0, 1, 2, 3, 4]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("ahead", WINDOWS)
@pytest.mark.parametrize("inside", STEPS)
def test_a_cut_while_a_step_is_slow_ends_the_pipe_after_it(
    threads: int, ahead: int | None, inside: str
) -> None:
    """What is running ends, nothing begins, and the position is that of the batches applied."""
    entered, cut = threading.Event(), threading.Event()
    begun_after: list[str] = []

    def at(step: str, number: int) -> None:
        if cut.is_set():
            begun_after.append(step)
        if step == inside and number == 4 and not entered.is_set():
            entered.set()
            assert cut.wait(20)

    staged = Staged(at, "items", threads=threads, ahead=ahead)
    driver = Driver(staged.job).start()

    def interrupt() -> None:
        assert entered.wait(20)
        cut.set()

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    assert not driver.epoch(cut.is_set)
    interrupter.join()
    applied = staged.applied
    assert applied == list(range(len(applied)))
    assert len(applied) <= 5
    # A batch that was being read may still be prepared; each thread may be about to begin one.
    assert len(begun_after) <= threads + 2
    if applied:
        assert driver.position.pipes["pipe"].batches == len(applied)
        assert driver.position.readers["pipe"].row == len(applied)
    assert driver.epoch()
    assert applied == list(range(ROWS))
    driver.session.close()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("slow", STEPS)
def test_a_task_that_fails_beside_the_pipe_ends_it(threads: int, slow: str) -> None:
    entered, failed = threading.Event(), threading.Event()

    def at(step: str, number: int) -> None:
        if step == slow and number == 3:
            entered.set()
            assert failed.wait(20)

    def fail() -> None:
        assert entered.wait(20)
        failed.set()
        raise ValueError("beside")

    staged = Staged(at, "items", threads=threads, ahead=3, batches_per_epoch=10**9)
    with staged.job.epoch:
        Task(fail)
    with pytest.raises(TaskError, match=r"task 'fail' .* ValueError: beside"):
        staged.run()


@pytest.mark.parametrize("threads", [1, 4])
def test_a_source_that_cannot_be_made_or_measured(threads: int) -> None:
    class NoLength(_Items):
        def __len__(self) -> int:
            raise SystemExit("no length")

    class NoIterator:
        def __iter__(self) -> Iterator[int]:
            raise SystemExit("no iterator")

    def no_source() -> Any:
        raise SystemExit("no source")

    for make, text in (
        (lambda: NoLength(lambda step, row: None), "SystemExit: no length"),
        (NoIterator, "SystemExit: no iterator"),
        (no_source, "SystemExit: no source"),
    ):
        job = Job("j")
        with job.epoch:
            do = Task(lambda x: None, "x", name="do")
            Pipe(["x"], call=make, threads=threads, do=[do])
        driver = Driver(job)
        with pytest.raises(TaskError, match=text):
            driver.start().epochs(1)
        driver.session.close()
