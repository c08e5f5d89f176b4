"""Blobs of a run or checkpoint, here or at a URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobrun import CheckpointManager, load_blobs
from jobrun.errors import DamagedError, NotFoundError
from jobrun.remote.store import join, open_store
from jobrun.remote.upload import upload_checkpoint


@pytest.fixture
def uploaded(tmp_path: Path, place: str) -> str:
    """Two checkpoints of two nodes."""
    with CheckpointManager(tmp_path / "run") as manager:
        for epoch in (1, 2):
            manager.save(epoch, {n: {"m": {"w": epoch, "b": n}, "t": 7} for n in ("a", "b")})
            upload_checkpoint(manager.path(epoch), open_store(place))
    return place


def test_as_of_a_directory(uploaded: str, tmp_path: Path) -> None:
    wanted = ["b:m/w", "a:m", "b:t"]
    for options in ({}, {"epoch": 1}, {"id": 1}):
        here = load_blobs(tmp_path / "run", wanted, **options)
        assert load_blobs(uploaded, wanted, **options) == here
    assert load_blobs(uploaded) == load_blobs(tmp_path / "run")
    assert load_blobs(uploaded, "a:*") == {"a:m/w": 2, "a:m/b": "a", "a:t": 7}
    assert load_blobs(join(uploaded, "checkpoint_0"), "a:m/w") == {"a:m/w": 1}


def test_what_is_not_there(uploaded: str) -> None:
    with pytest.raises(NotFoundError, match="did you mean 'a:m/w'"):
        load_blobs(uploaded, "a:m/ww")
    with pytest.raises(NotFoundError, match="no checkpoint of epoch 5"):
        load_blobs(uploaded, epoch=5)


def test_what_is_damaged(uploaded: str) -> None:
    store = open_store(uploaded)
    data = store.read("checkpoint_1/a/t/zarr.json")
    store.write("checkpoint_1/a/t/zarr.json", data.replace(b"zarr", b"ZARR"))
    with pytest.raises(DamagedError, match="its checksum is"):
        load_blobs(uploaded, "a:t")
    assert load_blobs(uploaded, "b:t") == {"b:t": 7}
