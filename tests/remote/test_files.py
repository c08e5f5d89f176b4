"""Reading a checkpoint where it is: all of it, by names, and the chunks of a slice alone."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from jobrun import CheckpointManager
from jobrun.checkpoint.integrity import check_sizes, read_manifest, read_record
from jobrun.checkpoint.reading import read_part
from jobrun.checkpoint.slices import read_slice
from jobrun.errors import DamagedError
from jobrun.remote.files import RemoteFs
from jobrun.remote.store import join, open_store
from jobrun.remote.upload import upload_checkpoint
from jobrun.values.views import view


class Counting(RemoteFs):
    def __init__(self) -> None:
        self.opened: list[str] = []

    def at(self, op: str, path: str) -> None:
        if op in ("open", "read"):
            self.opened.append(path)


@pytest.fixture
def uploaded(tmp_path: Path, place: str) -> str:
    blobs = {"big": np.arange(6_000_000.0).reshape(600, 10_000), "small": {"a": 1, "b": np.ones(3)}}
    with CheckpointManager(tmp_path / "run") as manager:
        manager.save(0, {"main": blobs})
        upload_checkpoint(manager.path(0), open_store(place))
    return join(open_store(place).place, "checkpoint_0")


def test_all_of_it(uploaded: str) -> None:
    found = read_part(uploaded, "main", fs=RemoteFs())
    assert np.array_equal(view(found["big"])[599], np.arange(5_990_000.0, 6_000_000.0))
    assert view(found["small"])["b"].tolist() == [1, 1, 1]
    assert read_record(RemoteFs(), uploaded).epoch == 0


def test_a_slice_fetches_the_chunks_it_touches(uploaded: str) -> None:
    fs = Counting()
    rows = read_slice(uploaded, "main", "big", slice(0, 10), fs=fs)
    assert np.array_equal(rows, np.arange(100_000.0).reshape(10, 10_000))
    chunks = {path for path in fs.opened if path.rpartition("/")[2][0].isdigit()}
    assert len(chunks) == 1


def test_lengths_of_files_are_those_of_the_manifest(uploaded: str) -> None:
    fs = RemoteFs()
    record = read_record(fs, uploaded)
    manifest = read_manifest(fs, uploaded, record, "main")
    sizes = manifest.sizes(uploaded)
    check_sizes(fs, sizes)
    path, size = sizes.popitem()
    with pytest.raises(DamagedError, match="bytes long"):
        check_sizes(fs, {path: size + 1})
    with pytest.raises(DamagedError, match="missing"):
        check_sizes(fs, {f"{path}x": size})


def test_descriptors_are_not_left_open(uploaded: str) -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(3):
        read_part(uploaded, "main", ["small"], fs=RemoteFs())
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 2  # a connection may stay


def test_damage_is_found(uploaded: str) -> None:
    above, _, name = uploaded.rpartition("/")
    store = open_store(above)
    data = bytearray(store.read(f"{name}/main/small/b/0"))
    data[3] ^= 1
    store.write(f"{name}/main/small/b/0", bytes(data))
    with pytest.raises(DamagedError, match="checksum") as caught:
        read_part(uploaded, "main", ["small"], fs=RemoteFs())
    assert str(caught.value.where) == f"{uploaded}/main/small/b/0"
