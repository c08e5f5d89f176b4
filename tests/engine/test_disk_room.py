"""Room for checkpoints: what is kept in all, and when something is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from jobrun import CheckpointManager, Job, JobRunner, LocalSession, Task
from jobrun.core.events import Event, Warned
from jobrun.engine.disk_room import kept_in_all, room_warning
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
    assert room_warning(policy, 99, 10**6, 10**9 + 1) is None
    said = room_warning(policy, 99, 10**6, 10**9 - 1)
    assert said is not None
    assert "100 of 1 MB, 100 MB of the 1 GB" in said
    assert room_warning(CheckpointPolicy(keep=Keep(last=3)), 99, 10**6, 10**7) is None


def test_too_little_room_is_always_said() -> None:
    said = room_warning(CheckpointPolicy(keep=Keep(last=3)), None, 10**9, 3 * 10**9)
    assert said is not None
    assert "may need 4 GB, but only 3 GB are free" in said


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def start() -> np.ndarray:
    return np.zeros(1000)


def nothing(total: np.ndarray) -> None:
    pass


@pytest.mark.parametrize(("free", "said"), [(10**12, 0), (10**5, 1)])
def test_it_is_said_once_before_epoch_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, said: int
) -> None:
    monkeypatch.setattr("jobrun.engine.saver.disk_usage", lambda path: Usage(free, 0, free))
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
