"""Two names of one array within one tree stay one, in the run and through a resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun import (
    CheckpointManager,
    CheckpointPolicy,
    Job,
    JobRunner,
    LocalSession,
    Pipe,
    Task,
    load_blobs,
)
from jobrun.errors import JobrunError, TaskError
from jobrun.model.options import Load


def tied() -> dict[str, Any]:
    """One array under two keys, and in a list."""
    w = np.zeros(2)
    return {"a": w, "b": w, "l": [w, 1]}


def two() -> tuple[Any, Any]:
    """One array for two blobs."""
    w = np.zeros(2)
    return w, w


def add(s: dict[str, Any]) -> None:
    """Add one to one of the names."""
    s["a"] += 1


def add_to_array(x: Any) -> None:
    """Add one in place."""
    x += 1


def again(s: dict[str, Any]) -> dict[str, Any]:
    """The same tree, read and returned."""
    return s


def job(epochs: int, *, pipe: bool = False, **policy: Any) -> Job:
    """Add one to ``s["a"]`` in each epoch."""
    with Job("tied") as made:
        with made.setup:
            Task(lambda: np.arange(2), out="data")
        with made.init:
            Task(tied, out="s")
        if pipe:
            Pipe({"x": "data"}, do=[Task(add, update="s")], batches_per_epoch=1)
        else:
            Task(add, update="s")
        Task(again, "s", out="s")
        made.stop(epochs=epochs)
        made.checkpoint = CheckpointPolicy(**policy)
    return made


def train(made: Job, path: Path, threads: int = 2) -> dict[str, Any]:
    JobRunner(made, CheckpointManager(path)).train(LocalSession(threads=threads))
    return {name: value.tolist() for name, value in load_blobs(path).items() if name != "s/l/1"}


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("pipe", [False, True])
@pytest.mark.parametrize("policy", [{}, {"link": "never"}, {"background": False}])
def test_both_names_have_two_after_two_epochs(
    tmp_path: Path, threads: int, pipe: bool, policy: Any
) -> None:
    expected = {"s/a": [2, 2], "s/b": [2, 2], "s/l/0": [2, 2]}
    assert train(job(2, pipe=pipe, **policy), tmp_path / "run", threads) == expected
    four = {name: [4, 4] for name in expected}
    assert train(job(4, pipe=pipe, **policy), tmp_path / "run", threads) == four
    assert train(job(4, pipe=pipe, **policy), tmp_path / "whole", threads) == four


def test_a_job_that_starts_from_a_tied_tree_of_another_run(tmp_path: Path) -> None:
    train(job(2), tmp_path / "run")
    with Job("warm") as made:
        with made.init:
            Task(Load(str(tmp_path / "run")), out={"s": "s"}, name="load")
        Task(add, update="s")
        made.stop(epochs=1)
    assert train(made, tmp_path / "warm") == {name: [3, 3] for name in ("s/a", "s/b", "s/l/0")}


def test_separate_blobs_are_not_tied_nor_is_what_is_made_of_them(tmp_path: Path) -> None:
    """In the first run p and q share memory, in a resumed one they do not."""

    def build(epochs: int) -> Job:
        with Job("separate") as made:
            with made.init:
                Task(two, out=["p", "q"])
                Task(tied, out="s")
            Task(lambda p, q: {"a": p, "b": q}, ["p", "q"], out="t", name="make")
            Task(add, update="t", name="add to t")
            Task(lambda t, epoch: t["b"] + epoch, ["t", "epoch"], out="seen", name="see")
            Task(add_to_array, update="p")
            made.stop(epochs=epochs)
            made.checkpoint = CheckpointPolicy(include=["t", "seen"])
        return made

    def run(epochs: int, path: Path) -> dict[str, Any]:
        return {k: v for k, v in train(build(epochs), path).items() if not k.startswith("s/")}

    whole = run(3, tmp_path / "whole")
    for epochs in (1, 2, 3):
        resumed = run(epochs, tmp_path / "resumed")
    assert whole == resumed
    assert (whole["p"], whole["q"], whole["t/a"], whole["t/b"]) == ([3, 3], [0, 0], [3, 3], [0, 0])


def test_an_update_of_one_of_the_names_alone_says_what_to_do(tmp_path: Path) -> None:
    made = job(2)
    with made.epoch:
        Task(add_to_array, update="s/b", name="part")
    with pytest.raises(TaskError) as caught:
        train(made, tmp_path / "run")
    assert "task 'part'" in caught.value.message
    assert "'s/b' is one array with 's/a'" in caught.value.message
    assert "'s' under 'update'" in caught.value.hint


@pytest.mark.parametrize("update", [True, False])
def test_views_that_overlap_are_refused_where_the_tree_is_updated(
    tmp_path: Path, update: bool
) -> None:
    def overlapping() -> dict[str, Any]:
        w = np.zeros(3)
        return {"a": w, "b": w[1:]}

    with Job("overlapping") as made:
        with made.init:
            Task(overlapping, out="s")
        if update:
            Task(add, update="s")
        else:
            Task(again, "s", out="s")
        made.stop(epochs=1)
    if not update:
        assert train(made, tmp_path / "run") == {"s/a": [0, 0, 0], "s/b": [0, 0]}
        return
    with pytest.raises(JobrunError) as caught:
        train(made, tmp_path / "run")
    assert "task 'overlapping' of group 'init'" in caught.value.message
    assert "'s/a' and 's/b' overlap in memory, and 's' is updated in place" in caught.value.message


def test_a_task_that_makes_views_of_what_it_updates_is_told(tmp_path: Path) -> None:
    def tie(s: dict[str, Any]) -> None:
        s["b"] = s["a"]
        s["c"] = s["a"][:1]

    with Job("views") as made:
        with made.init:
            Task(lambda: {"a": np.zeros(3)}, out="s", name="make")
        Task(tie, update="s")
        made.stop(epochs=1)
    with pytest.raises(TaskError, match="'s/a' and 's/c' overlap in memory"):
        train(made, tmp_path / "run")
