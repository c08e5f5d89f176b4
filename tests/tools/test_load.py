"""Blobs and states of a run, read outside of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun import CheckpointManager, Job, JobRunner, Task, list_runs, load_blobs, load_state
from jobrun.errors import NotFoundError, UsageError, ValueRefusedError


class Model:
    """An object with the protocol of PyTorch."""

    def __init__(self) -> None:
        self.w = np.zeros(3)
        self.steps = 0

    def state_dict(self) -> dict[str, Any]:
        return {"w": self.w, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.w, self.steps = state["w"], state["steps"]


class Other:
    """An object that has no state."""


def build() -> Model:
    return Model()


def step(model: Model) -> float:
    model.steps += 1
    model.w += 0.1 * model.steps
    return abs(model.steps - 2.0)


def nothing(event: object) -> None:
    pass


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A run of four epochs, whose best is the second."""
    with Job("fit", state=["model"], metrics={"loss": "min"}) as job:
        with job.setup:
            Task(build, out="model")
        with job.epoch:
            Task(step, update="model", out="loss")
    job.stop(epochs=4)
    JobRunner(job, CheckpointManager(tmp_path / "fit"), report=nothing).train()
    return tmp_path / "fit"


@pytest.mark.parametrize(
    ("which", "steps"),
    [({}, 4), ({"epoch": 1}, 1), ({"id": 3}, 3), ({"best": True}, 2), ({"by": "loss:max"}, 4)],
)
def test_a_state_is_that_of_the_checkpoint(which: dict[str, Any], steps: int, run: Path) -> None:
    model = Model()
    assert load_state(run, "model", model, **which) is model
    assert model.steps == steps
    expected = np.zeros(3)
    for n in range(1, steps + 1):
        expected += 0.1 * n
    assert model.w.tobytes() == expected.tobytes()
    model.w += 1  # its own memory
    assert load_blobs(run, "model/steps", **which)["model/steps"] == steps


def test_of_one_checkpoint_by_its_path(run: Path) -> None:
    assert load_state(run / "checkpoint_1", "model", Model()).steps == 1
    with pytest.raises(UsageError, match="one of them"):
        load_state(run, "model", Model(), epoch=1, best=True)
    with pytest.raises(UsageError, match="not at a URL"):
        load_blobs("s3://bucket/run", best=True)


def test_what_is_no_state(run: Path) -> None:
    with pytest.raises(ValueRefusedError, match="a Other has none"):
        load_state(run, "model", Other())
    with pytest.raises(ValueRefusedError, match="'model/w' has none"):
        load_state(run, "model/w", Model())
    with pytest.raises(NotFoundError):
        load_state(run, "modle", Model())


def test_a_run_is_named_as_in_the_commands(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = run.parent / "home" / "runs"
    runs.parent.mkdir()
    (runs.parent / "mine").mkdir()  # a folder of that name is no run
    shutil.copytree(run, runs / "mine")
    monkeypatch.chdir(runs.parent)
    for name in ("mine", "@latest", list_runs()[0]):
        assert load_blobs(name, "model/steps")["model/steps"] == 4
        assert load_state(name, "model", Model(), best=True).steps == 2
    with pytest.raises(NotFoundError, match="no run 'other'"):
        load_blobs("other")
    with pytest.raises(NotFoundError, match="no run 'other'"):
        load_state("other", "model", Model(), best=True)
