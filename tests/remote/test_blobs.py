"""Blobs of a run or checkpoint, here or at a URL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest

from jobrun import CheckpointManager, load_blobs
from jobrun.checkpoint import read_blobs
from jobrun.core.paths import is_url
from jobrun.errors import DamagedError, NotFoundError, UsageError
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
    data = store.read("checkpoint_1/manifest.a.json")
    store.write("checkpoint_1/manifest.a.json", data.replace(b"zarr", b"ZARR"))
    with pytest.raises(DamagedError, match="its checksum is") as caught:
        load_blobs(uploaded, "a:t")
    assert "fallback=True" in caught.value.hint
    assert load_blobs(uploaded, "b:t") == {"b:t": 7}
    assert load_blobs(uploaded, ["a:m/w", "a:t"], fallback=True) == {"a:m/w": 1, "a:t": 7}
    store.write("checkpoint_1/_SUCCESS", b"no record")
    for names in ("b:t", None):
        with pytest.raises(DamagedError, match="checkpoint_1/_SUCCESS"):
            load_blobs(uploaded, names)
    assert load_blobs(uploaded, fallback=True)["b:m/w"] == 1
    for place, more in ((uploaded, {"id": 0}), (join(uploaded, "checkpoint_0"), {})):
        with pytest.raises(UsageError, match="fallback is for the newest"):
            load_blobs(place, fallback=True, **more)


def test_an_upload_that_is_under_way_or_a_copy_is_no_damage(uploaded: str) -> None:
    store = open_store(uploaded)
    if is_url(uploaded):  # in a directory nothing of ours is there without its _SUCCESS
        store.write("checkpoint_5/manifest.a.json", b"{}")
    store.write("checkpoint_6/_SUCCESS", store.read("checkpoint_0/_SUCCESS"))
    for names in ("a:m/w", ["a:m/w", "a:t"]):
        assert load_blobs(uploaded, names)["a:m/w"] == 2
    assert load_blobs(uploaded)["a:m/w"] == 2


def test_one_that_vanishes_while_it_is_read_is_no_damage(
    uploaded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run over there removed it, and has saved another one or not."""
    taken = []
    read = read_blobs.load_from

    def vanishing(place: str, *more: Any) -> Any:
        if not taken:
            taken.append(str(place).rpartition("/")[2])
            system, path = fsspec.core.url_to_fs(str(place))
            system.rm(path, recursive=True)
            raise DamagedError("it is missing", where=place)
        return read(place, *more)

    monkeypatch.setattr(read_blobs, "load_from", vanishing)
    assert load_blobs(uploaded, ["a:m/w", "b:m/w"]) == {"a:m/w": 1, "b:m/w": 1}
    assert taken == ["checkpoint_1"]
