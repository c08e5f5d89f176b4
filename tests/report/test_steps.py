"""Numbers of steps, as they are read of ``events.jsonl``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from jobrun.core.events import CheckpointLoaded, Event, StepLogged
from jobrun.report.events_file import EventsFile
from jobrun.report.steps import read_steps


def logged(epoch: int, batch: int, loss: float) -> StepLogged:
    return StepLogged("p", "main", epoch, batch, {"loss": loss}, 5)


def loaded(epoch: int, place: str) -> CheckpointLoaded:
    return CheckpointLoaded(epoch, epoch, "c", 0, 0.0, place=place)


def read(folder: Path, *events: Event) -> list[tuple[int, int, float]]:
    file = EventsFile(folder / "events.jsonl")
    for event in events:
        file(event)
    file.close()
    found = read_steps(folder / "events.jsonl")
    return [(row.epoch, row.batch, row.values["loss"]) for row in found]


FIRST = [logged(1, 2, 0.5), logged(1, 4, 0.4), logged(2, 2, 0.3), logged(2, 4, 0.2)]


def test_all_steps_in_order(tmp_path: Path, make: Any) -> None:
    found = read(tmp_path, make.started(), *reversed(FIRST))
    assert found == [(1, 2, 0.5), (1, 4, 0.4), (2, 2, 0.3), (2, 4, 0.2)]
    assert [row.step for row in read_steps(tmp_path / "events.jsonl")] == [2, 4, 7, 9]
    assert read_steps(tmp_path / "none.jsonl") == []


def test_what_is_repeated_is_replaced(tmp_path: Path, make: Any) -> None:
    again = make.started(
        attempt=2, epoch=1, checkpoint=4, place="epoch 2, after batch 3 of pipe 'p'"
    )
    place = loaded(1, "epoch 2, after batch 3 of pipe 'p'")
    found = read(tmp_path, make.started(), *FIRST, again, place, logged(2, 4, 0.1))
    assert found == [(1, 2, 0.5), (1, 4, 0.4), (2, 2, 0.3), (2, 4, 0.1)]


def test_a_history_that_was_left_is_passed_over(tmp_path: Path, make: Any) -> None:
    again = make.started(attempt=2, epoch=1, checkpoint=1, place="epoch 1")
    failed = make.started(attempt=2, epoch=0, checkpoint=0, place="epoch 0")  # before it was loaded
    assert len(read(tmp_path, make.started(), *FIRST, failed)) == 4
    found = read(tmp_path, make.started(), *FIRST, again, loaded(1, "epoch 1"))
    assert found == [(1, 2, 0.5), (1, 4, 0.4)]
    only = make.started(attempt=3, epoch=0, checkpoint=0, place="epoch 0", only="exit")
    assert read(tmp_path, only, loaded(0, "epoch 0")) == [(1, 2, 0.5), (1, 4, 0.4)]


def test_numbers_that_are_not_finite(tmp_path: Path, make: Any) -> None:
    (row,) = read(tmp_path, make.started(), logged(1, 1, math.inf))
    assert row == (1, 1, math.inf)
