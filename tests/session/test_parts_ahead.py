"""Parts that are read ahead: the same values and errors, sooner, and nothing is left running."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damages import flip

from jobrun import CheckpointManager, Job, JobRunner, LocalSession, Task
from jobrun.checkpoint.reading import read_part
from jobrun.core.events import CheckpointLoaded, CheckpointSkipped, Event
from jobrun.errors import DamagedError, TaskError
from jobrun.session import parts_ahead
from jobrun.session.parts_ahead import PartsAhead
from jobrun.values.views import view

WAIT = 20  # seconds, after which a test fails that would otherwise hang
CANCELED = "Operation canceled (ECANCELED)"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    with CheckpointManager(tmp_path) as manager:
        manager.save(0, {"main": {"w": np.arange(1 << 18), "n": 3}})
        return manager.path(0)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    yield
    assert not [t for t in threading.enumerate() if t.name.startswith("jobrun-restore")]


def on_reading(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
    """``call()`` after each part that is read here."""

    def read(*args: Any, **options: Any) -> Any:
        try:
            return read_part(*args, **options)
        finally:
            call()

    monkeypatch.setattr(parts_ahead, "read_part", read)


def test_each_part_is_read_ahead_once(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    on_reading(monkeypatch, lambda: threads.append(threading.current_thread().name))
    ahead = PartsAhead()
    ahead.start(saved, ["main", "main"], 1)
    first, second = ahead.take(saved, "main"), ahead.take(saved, "main")
    assert [name.startswith("jobrun-restore") for name in threads] == [True, False]
    assert first["w"] is not second["w"]
    for blobs in (first, second):
        assert np.array_equal(view(blobs["w"]), np.arange(1 << 18))
        assert view(blobs["n"]) == 3
    ahead.stop()


def test_damage_is_an_error_of_who_takes_the_part(saved: Path) -> None:
    flip(saved / "main/w/0")
    ahead = PartsAhead()
    ahead.start(saved, ["main"], 1)
    with pytest.raises(DamagedError, match="checksum"):
        ahead.take(saved, "main")
    ahead.stop()


def test_what_failed_beside_setup_is_read_again(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        if threading.current_thread().name.startswith("jobrun-restore"):
            raise MemoryError

    on_reading(monkeypatch, fail)
    ahead = PartsAhead()
    ahead.start(saved, ["main"], 1)
    assert view(ahead.take(saved, "main")["n"]) == 3
    ahead.stop()


def test_a_part_that_may_not_fit_beside_setup_is_not_read_ahead(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_ahead, "memory_available", lambda: 400)
    ahead = PartsAhead()
    ahead.start(saved, ["main"], 101)
    assert not [t for t in threading.enumerate() if t.name.startswith("jobrun-restore")]
    assert view(ahead.take(saved, "main")["n"]) == 3


def test_reading_that_nobody_waits_for_ends_before_its_next_operation(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, stopped = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def read(*args: Any, **options: Any) -> Any:
        started.set()
        assert stopped.wait(WAIT)
        try:
            return read_part(*args, **options)
        except BaseException as error:
            failed.append(error)
            raise

    monkeypatch.setattr(parts_ahead, "read_part", read)
    ahead = PartsAhead()
    ahead.start(saved, ["main"], 1)
    assert started.wait(WAIT)
    threading.Timer(0.1, stopped.set).start()
    ahead.stop()
    assert [str(e.__cause__) for e in failed] == [f"open of {saved}/_SUCCESS: {CANCELED}"]


# Whole runs.


def add(w: np.ndarray, rows: int) -> np.ndarray:
    return w + rows


def rows() -> int:
    _during["setup"]()
    return 2


_during: dict[str, Callable[[], object]] = {"setup": lambda: None}


def job_of(epochs: int) -> Job:
    with Job("ahead") as job:
        with job.setup:
            Task(rows, out="rows")
        with job.init:
            Task(np.zeros, with_={"shape": 100}, out="w")
        Task(add, ["w", "rows"], out="w")
        job.stop(epochs=epochs)
    return job


def train(run_dir: Path, epochs: int) -> list[Event]:
    events: list[Event] = []
    runner = JobRunner(job_of(epochs), CheckpointManager(run_dir), report=events.append)
    runner.train(LocalSession(1))
    assert np.array_equal(runner.blobs["w"], np.full(100, 2 * epochs))
    return events


def test_a_resume_reads_while_setup_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(tmp_path, 2)
    read, waited = threading.Event(), list[bool]()
    on_reading(monkeypatch, read.set)
    monkeypatch.setitem(_during, "setup", lambda: waited.append(read.wait(WAIT)))
    events = train(tmp_path, 3)
    assert waited == [True]
    assert [e.id for e in events if isinstance(e, CheckpointLoaded)] == [2]


def test_a_damaged_checkpoint_is_skipped_as_ever(tmp_path: Path) -> None:
    train(tmp_path, 2)
    flip(tmp_path / "checkpoint_2/main/w/0")
    events = train(tmp_path, 3)
    kinds = [e for e in events if isinstance(e, CheckpointSkipped | CheckpointLoaded)]
    assert [(type(e), e.id) for e in kinds] == [(CheckpointSkipped, 2), (CheckpointLoaded, 1)]


def test_an_error_of_setup_is_the_one_that_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path, 2)
    flip(tmp_path / "checkpoint_2/main/w/0")

    def fail() -> None:
        raise OSError("no rows")

    monkeypatch.setitem(_during, "setup", fail)
    with pytest.raises(TaskError, match="no rows"):
        train(tmp_path, 3)
