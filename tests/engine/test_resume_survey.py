"""Whether a checkpoint holds what ``init`` of a job that has changed writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from jobrun import CheckpointManager, Job, Node, Task
from jobrun.engine.resume_survey import refuse_missing_blobs
from jobrun.errors import RunRefusedError


def refuse(
    path: Path, blobs: Mapping[str, Mapping[str, object]], outs: Mapping[str, Sequence[str]]
) -> None:
    """Ask of a checkpoint with ``blobs``, and of a job whose ``init`` writes ``outs``, per node."""
    manager = CheckpointManager(path)
    with manager:
        manager.save(1, blobs)
    job = Job("j", nodes=list(outs) if len(outs) > 1 else None)
    with job.init:
        for node, names in outs.items():
            for name in names:
                if len(outs) > 1:
                    with Node(node):
                        Task(dict, out=name, name=f"make-{name}")
                else:
                    Task(dict, out=name, name=f"make-{name.replace('/', '-')}")
    record = manager.find()
    refuse_missing_blobs(job, manager.path(1), record, {n: n for n in outs})


@pytest.mark.parametrize("out", ["n", "tree", "tree/w", "empty", "none"])
def test_what_is_held(tmp_path: Path, out: str) -> None:
    blobs = {"n": 1, "tree": {"w": 1.0}, "empty": {}, "none": None}
    refuse(tmp_path, {"main": blobs}, {"main": [out]})


@pytest.mark.parametrize(("name", "refused"), [("tree", False), ("tree/w", True), ("n", True)])
def test_what_an_epoch_has_replaced_is_not_missing(
    tmp_path: Path, name: str, refused: bool
) -> None:
    with CheckpointManager(tmp_path) as manager:
        manager.save(1, {"main": {"n": 1, "tree": {"w": 1.0}}})
    job = Job("j")
    with job.init:
        Task(dict, out="tree/v")
    with job.epoch:
        Task(dict, out=name)
    with pytest.raises(RunRefusedError) if refused else nullcontext():
        refuse_missing_blobs(job, manager.path(1), manager.find(), {"main": "main"})


@pytest.mark.parametrize("out", ["m", "tree/v", "t"])
def test_what_is_not(tmp_path: Path, out: str) -> None:
    with pytest.raises(RunRefusedError, match=f"'init' now writes '{out}'") as caught:
        refuse(tmp_path, {"main": {"n": 1, "tree": {"w": 1.0}}}, {"main": ["n", out]})
    assert caught.value.hint == "'init' is not run again, and there are n, tree"


def test_of_nodes(tmp_path: Path) -> None:
    blobs = {"a": {"w": 1}, "b": {"v": 1}}
    with pytest.raises(RunRefusedError, match="'init' now writes 'b:w'"):
        refuse(tmp_path, blobs, {"a": ["w"], "b": ["w", "v"]})
