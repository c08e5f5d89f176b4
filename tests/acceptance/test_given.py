"""What was given under ``in`` is what it was when the task ends, or the run says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobrun import CheckpointManager, Job, JobRunner, LocalSession, Task, load_blobs
from jobrun.errors import TaskError


def start_sir() -> dict[str, float]:
    """People of a model of an epidemic."""
    return {"susceptible": 990.0, "infected": 10.0, "recovered": 0.0}


def day_in_place(state: dict[str, float]) -> None:
    """A day of the epidemic, written into the state."""
    new = 0.5 * state["infected"] * state["susceptible"] / 1000
    healed = 0.25 * state["infected"]
    state["susceptible"] -= new
    state["infected"] += new - healed
    state["recovered"] += healed


def day_returned(state: dict[str, float]) -> dict[str, float]:
    """The same, which returns what it changed."""
    day_in_place(state)
    return state


def sir(**how: Any) -> Job:
    """Two days of it."""
    with Job("sir") as job:
        with job.init:
            Task(start_sir, out="state")
        Task(day_returned if "out" in how else day_in_place, name="day", **how)
        job.stop(epochs=2)
    return job


def test_a_state_changed_in_place_under_in_ends_the_run(tmp_path: Path) -> None:
    runner = JobRunner(sir(in_="state"), CheckpointManager(tmp_path / "run"))
    with pytest.raises(TaskError) as caught:
        runner.train(LocalSession(threads=1))
    assert "task 'day' of group 'epoch' failed" in caught.value.message
    assert "the value of key 'susceptible' was replaced" in caught.value.message
    assert "'update'" in caught.value.hint


@pytest.mark.parametrize("how", [{"update": "state"}, {"in_": "state", "out": "state"}])
def test_a_state_that_is_updated_or_returned_has_two_days(tmp_path: Path, how: Any) -> None:
    JobRunner(sir(**how), CheckpointManager(tmp_path / "run")).train(LocalSession(threads=1))
    expected = start_sir()
    for _ in range(2):
        day_in_place(expected)
    assert load_blobs(tmp_path / "run", ["state"])["state"] == expected
