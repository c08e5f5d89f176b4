"""What a run would do, without doing it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jobrun import CheckpointManager, JobRunner, LocalSession
from jobrun.engine.resume_policy import Request
from jobrun.model.job import Job, Node, Task
from jobrun.model.policy import KEEP_ALL, CheckpointPolicy, Keep
from jobrun.session.base import Places
from jobrun.tools.dry_run import DryRun, dry_run, sizes


def start() -> dict[str, object]:
    return {"w": np.zeros((3, 2), "f4"), "n": 1, "label": "x"}


def step(model: dict[str, object]) -> float:
    return 1.0


def make(keep: Keep = KEEP_ALL, **stop: object) -> Job:
    with Job("j", metrics={"loss": "min"}, checkpoint=CheckpointPolicy(keep=keep)) as job:
        with job.init:
            Task(start, out="model")
        Task(step, update="model", out="loss")
    job.stop(**stop)
    return job


def plan(job: Job, runs: Path, *, run: str | None = None, **request: object) -> DryRun:
    path = runs / run if run else None
    return dry_run(job, Request(**request), str(runs), path)  # type: ignore[arg-type]


def outlook(job: Job, runs: Path, **more: object) -> list[tuple[str, int | None, bool]]:
    return [(o.text, o.earliest, o.can_fire) for o in plan(job, runs, **more).outlook]  # type: ignore[arg-type]


def test_a_fresh_run(tmp_path: Path) -> None:
    planned = plan(make(keep=Keep(last=2), epochs=9), tmp_path)
    assert planned.choice.action == "fresh"
    assert planned.run_dir == tmp_path / "j"
    assert (planned.epoch, planned.epochs, planned.kept) == (0, 9, 3)
    assert planned.persists == ("model",)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_goes_on_and_one_that_is_over(tmp_path: Path) -> None:
    JobRunner(make(epochs=3), CheckpointManager(tmp_path / "j")).train(LocalSession(1))
    before = sorted(tmp_path.rglob("*"))
    assert plan(make(epochs=3), tmp_path, run="j").choice.action == "done"
    planned = plan(make(epochs=5), tmp_path, run="j")
    assert (planned.choice.action, planned.epoch) == ("resume", 3)
    assert planned.outlook[0].progress == "epochs 3/5"
    back = plan(make(epochs=3), tmp_path, run="j", epoch=1)
    assert (back.choice.action, back.choice.rewind, back.epoch) == ("resume", True, 1)
    fresh = plan(make(epochs=3), tmp_path, run="j", fresh=True)
    assert (fresh.choice.action, fresh.run_dir) == ("fresh", tmp_path / "j-2")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("stop", "text", "earliest", "can"),
    [
        ({"patience": {"loss": 4}}, "loss has not improved for 4 epochs", 4, True),
        ({"patience": {"loss": 11}}, "loss has not improved for 11 epochs", 11, False),
        (
            {"patience": {"loss": {"epochs": 4, "start": 3}}},
            "loss has not improved for 4 epochs",
            7,
            True,
        ),
        ({"when": "loss < 1"}, "when loss < 1", 1, True),
        ({"when": "epoch >= 7"}, "when epoch >= 7", 7, True),
        ({"when": "epoch >= 70"}, "when epoch >= 70", None, False),
        ({"when": "elapsed > 5"}, "when elapsed > 5", 1, True),
        ({"walltime": 60}, "after 60 s", 1, True),
        ({"blob": "loss"}, "loss is true", 1, True),
    ],
)
def test_when_a_condition_can_be_true(
    stop: dict[str, object], text: str, earliest: int | None, can: bool, tmp_path: Path
) -> None:
    assert outlook(make(epochs=10, **stop), tmp_path) == [
        ("after epoch 10", 10, True),
        (text, earliest, can),
    ]


def test_patience_that_has_begun(tmp_path: Path) -> None:
    JobRunner(make(epochs=3), CheckpointManager(tmp_path / "j")).train(LocalSession(1))
    found = outlook(make(epochs=10, patience={"loss": 5}), tmp_path, run="j")
    assert found[1] == ("loss has not improved for 5 epochs", 8, True)


def test_sizes_of_what_persists_after_init() -> None:
    found = sizes(make(epochs=1), LocalSession(1), Places())
    assert [(s.name, s.kind, s.shape, s.bytes) for s in found] == [
        ("model/w", "float32", (3, 2), 24),
        ("model/n", "int", (), 8),
        ("model/label", "str", (), 1),
    ]


def test_sizes_name_the_node() -> None:
    with Job("j", nodes=["a", "b"]) as job:
        with job.init, Node("*"):
            Task(start, out="model")
        with job.epoch, Node("*"):
            Task(step, update="model", out="loss")
    job.stop(epochs=1)
    found = sizes(job, LocalSession(1), Places())
    assert [s.name for s in found][::3] == ["a:model/w", "b:model/w"]
