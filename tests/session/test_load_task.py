"""Blobs of another run or checkpoint as what a task returns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jobrun import CheckpointManager
from jobrun.core.template import Template
from jobrun.errors import TaskError
from jobrun.model.options import Load
from jobrun.session.base import Places
from jobrun.session.load_task import LoadTask


@pytest.fixture
def run(tmp_path: Path) -> Path:
    manager = CheckpointManager(tmp_path / "other")
    for epoch in range(3):
        manager.save(epoch, {"main": {"w": np.full(2, epoch), "m": {"b": epoch * 0.5}}})
    return tmp_path / "other"


def load(run: str | Template, folder: Path, *wanted: str, epoch: int | None = None) -> object:
    return LoadTask(Load(run, epoch=epoch), wanted, Places(spec_dir=folder), "main")()


def test_the_latest_or_an_epoch_beside_the_spec(run: Path) -> None:
    latest = load("other", run.parent, "w", "m/b")
    assert isinstance(latest, dict)
    assert (latest["w"].tolist(), latest["m/b"]) == ([2, 2], 1.0)
    first = load("other", run.parent, "w", epoch=0)
    assert isinstance(first, dict)
    assert first["w"].tolist() == [0, 0]


def test_a_checkpoint_by_its_path(run: Path) -> None:
    found = load(str(run / "checkpoint_1"), Path("/"), "w")
    assert isinstance(found, dict)
    assert found["w"].tolist() == [1, 1]


def test_what_is_not_there_says_where_and_what_there_is(run: Path) -> None:
    with pytest.raises(TaskError, match=r"other.*no blob") as caught:
        load("other", run.parent, "ww")
    assert "'w'" in caught.value.hint
    with pytest.raises(TaskError, match="no checkpoint of epoch 7"):
        load("other", run.parent, "w", epoch=7)
    with pytest.raises(TaskError, match="gone"):
        load("gone", run.parent, "w")


def test_damage_is_found(run: Path) -> None:
    (chunk,) = (run / "checkpoint_2" / "main" / "w").glob("0")
    data = bytearray(chunk.read_bytes())
    data[0] ^= 1
    chunk.write_bytes(data)
    with pytest.raises(TaskError, match="w"):
        load("other", run.parent, "w")
