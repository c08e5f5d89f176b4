"""Room for checkpoints: what is kept in all, and when something is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun import CheckpointManager, Job, JobRunner, LocalSession, Task
from jobrun.core.events import EpochFinished, Event, Warned
from jobrun.engine import saver
from jobrun.engine.disk_room import Room, files_warning, kept_in_all, room_warning, share_warning
from jobrun.model.policy import Best, CheckpointPolicy, Every, Keep


@pytest.mark.parametrize(
    ("policy", "epochs", "expected"),
    [
        (CheckpointPolicy(), 10, 11),
        (CheckpointPolicy(Every(3)), 10, 5),
        (CheckpointPolicy(), None, None),
        (CheckpointPolicy(Every(None, seconds=60)), 10, None),
        (CheckpointPolicy(keep=Keep(last=3)), None, 4),
        (CheckpointPolicy(keep=Keep(last=3, best=Best("loss", 2))), 1000, 6),
        (CheckpointPolicy(keep=Keep(every=10)), 100, 12),
        (CheckpointPolicy(keep=Keep(every=10)), None, None),
        (CheckpointPolicy(keep=Keep(best=Best("loss"))), None, 3),
    ],
)
def test_kept_in_all(policy: CheckpointPolicy, epochs: int | None, expected: int | None) -> None:
    assert kept_in_all(policy, epochs) == expected


def test_a_tenth_is_said_where_all_are_kept() -> None:
    policy = CheckpointPolicy()
    assert room_warning(policy, 99, Room(10**6, 10), Room(10**9 + 1)) == ""
    said = room_warning(policy, 99, Room(10**6), Room(10**9 - 1))
    assert "100 of 1 MB, 100 MB of the 1 GB" in said
    assert room_warning(CheckpointPolicy(keep=Keep(last=3)), 99, Room(10**6), Room(10**7)) == ""


def test_too_little_room_is_always_said() -> None:
    said = room_warning(CheckpointPolicy(keep=Keep(last=3)), None, Room(10**9), Room(3 * 10**9))
    assert "may need 4 GB, but only 3 GB are free" in said


def test_inodes_are_room_too() -> None:
    free, last = Room(10**12, 1000), CheckpointPolicy(keep=Keep(last=3))
    said = room_warning(last, None, Room(10, 300), free)
    assert "up to 4 checkpoints of 300 files may need 1200 inodes" in said
    assert "only 1000 free" in said
    assert room_warning(last, None, Room(10, 250), free) == ""
    said = room_warning(CheckpointPolicy(), 9, Room(10, 11), free)
    assert "up to 10 of 11 files, 110 of the 1000 inodes" in said
    assert room_warning(CheckpointPolicy(), 9, Room(10, 10), free) == ""
    assert room_warning(CheckpointPolicy(), 9, Room(10, 10**9), Room(10**12, None)) == ""


def test_saves_that_take_much_of_the_time_are_said_once_it_can_be_judged() -> None:
    assert share_warning(saves=9, waited=5.0, epochs=8, elapsed=9.9) == ""
    assert share_warning(saves=1, waited=5.0, epochs=8, elapsed=20.0) == ""
    assert share_warning(saves=9, waited=2.0, epochs=8, elapsed=20.0) == ""
    said = share_warning(saves=9, waited=5.0, epochs=8, elapsed=20.0)
    assert said == (
        "9 saves have taken 25% of the time so far; 'checkpoint: {every: 10}' makes it about 5%"
    )


def test_a_run_says_it_once_while_it_is_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saver, "share_warning", lambda saves, *rest: "slow" * (saves > 2))
    with Job("j") as job:
        with job.init:
            Task(lambda: 0, out="n")
        with job.epoch:
            Task(lambda n: n + 1, in_="n", out="n")
    job.stop(epochs=6)
    events: list[Event] = []
    JobRunner(job, CheckpointManager(tmp_path), report=events.append).train(LocalSession(1))
    said = [n for n, e in enumerate(events) if isinstance(e, Warned) and e.message == "slow"]
    assert len(said) == 1
    assert any(isinstance(e, EpochFinished) for e in events[said[0] :]), "before the end"


def test_single_numbers_are_said_to_be_files() -> None:
    assert files_warning(Room(10**9)) == ""
    assert files_warning(Room(100, 499)) == ""
    assert files_warning(Room(600 * 1024, 600)) == ""
    assert files_warning(Room(600 * 90, 600)) == (
        "each checkpoint has 600 files, of 90 B on average: each number in a list or a dict is "
        "one; an np.array of them would be a single one"
    )


@pytest.mark.parametrize(("rows", "said"), [([[0] * 30] * 20, 1), (np.zeros((20, 30)), 0)])
def test_a_list_of_lists_is_said_once(tmp_path: Path, rows: Any, said: int) -> None:
    with Job("rows") as job:
        with job.init:
            Task(lambda: rows, out="rows")
        Task(lambda rows: len(rows), in_="rows", out="n")
        job.stop(epochs=3)
    events: list[Event] = []
    JobRunner(job, CheckpointManager(tmp_path), report=events.append).train()
    assert sum(isinstance(e, Warned) and "np.array" in e.message for e in events) == said


def start() -> np.ndarray:
    return np.zeros(1000)


def nothing(total: np.ndarray) -> None:
    pass


@pytest.mark.parametrize(("free", "said"), [(10**12, 0), (10**5, 1)])
def test_it_is_said_once_before_epoch_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, said: int
) -> None:
    monkeypatch.setattr(saver, "free_room", lambda path: Room(free))
    with Job("room") as job:
        with job.init:
            Task(start, out="total")
        Task(nothing, update="total")
        job.stop(epochs=5)
    events: list[Event] = []
    runner = JobRunner(job, CheckpointManager(tmp_path / "run"), report=events.append)
    runner.train(LocalSession(1))
    found: list[Any] = [e for e in events if isinstance(e, Warned)]
    assert len(found) == said
