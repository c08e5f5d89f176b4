"""Copies of checkpoints: whole, proven, resumable, never over another."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from jobrun import CheckpointManager, load_blobs
from jobrun.errors import NotFoundError, StoreError
from jobrun.remote.store import Store, open_store
from jobrun.remote.upload import UploadStopped, is_uploaded, upload_checkpoint, upload_files
from jobrun.storage.bounded_json import MAX_BYTES


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint of three nodes."""
    blobs = {
        f"trainer_{n}": {"w": np.arange(5.0) + n, "tree": {"a": 1, "b": "x"}} for n in range(3)
    }
    with CheckpointManager(tmp_path / "run") as manager:
        manager.save(0, blobs)
        return manager.path(0)


class Recorder(Store):
    """A store that notes what is written, and can break or spoil it."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.place = inner.place
        self.written: list[str] = []
        self.read_names: set[str] = set()
        self.left: int | None = None
        self.spoil: set[str] = set()

    def write(self, name: str, data: bytes | memoryview) -> None:
        if self.left is not None:
            if self.left == 0:
                raise StoreError("write failed: the network is gone", where=name)
            self.left -= 1
        self.written.append(name)
        if name in self.spoil:
            self.spoil.remove(name)
            data = bytes(len(data))
        self.inner.write(name, data)

    def read(self, name: str, most: int = MAX_BYTES) -> bytes:
        self.read_names.add(name)
        return self.inner.read(name, most)

    def sizes(self, folder: str) -> dict[str, int]:
        return self.inner.sizes(folder)

    def folders(self) -> list[str]:
        return self.inner.folders()


def names(checkpoint: Path) -> list[str]:
    return sorted(
        p.relative_to(checkpoint).as_posix() for p in checkpoint.rglob("*") if p.is_file()
    )


def test_three_parts_absent_before_present_after(checkpoint: Path, place: str) -> None:
    store = open_store(place)
    parts = [f"manifest.trainer_{n}.json" for n in range(3)]
    assert not set(parts) & set(store.sizes("checkpoint_0"))
    assert not is_uploaded(checkpoint, store)
    done = upload_checkpoint(checkpoint, store)
    assert sorted(store.sizes("checkpoint_0")) == names(checkpoint)
    assert set(parts) <= set(store.sizes("checkpoint_0"))
    assert (done.files, done.sent) == (len(names(checkpoint)), len(names(checkpoint)))
    assert is_uploaded(checkpoint, store)
    for name in names(checkpoint):
        assert store.read(f"checkpoint_0/{name}") == (checkpoint / name).read_bytes()
    assert upload_checkpoint(checkpoint, store).sent == 0


def test_success_is_written_last(checkpoint: Path, tmp_path: Path) -> None:
    store = Recorder(open_store(str(tmp_path / "there")))
    upload_checkpoint(checkpoint, store)
    assert store.written[-1] == "checkpoint_0/_SUCCESS"
    assert store.written.count("checkpoint_0/_SUCCESS") == 1


def test_an_upload_that_was_interrupted_anywhere_goes_on(checkpoint: Path, tmp_path: Path) -> None:
    count = len(names(checkpoint))
    for number in range(count):
        store = Recorder(open_store(str(tmp_path / f"there-{number}")))
        store.left = number
        with pytest.raises(StoreError, match="the network is gone"):
            upload_checkpoint(checkpoint, store)
        assert not is_uploaded(checkpoint, store)
        sent = len(store.written)
        store.left = None
        assert upload_checkpoint(checkpoint, store).sent == count - sent
        assert is_uploaded(checkpoint, store)


def test_what_was_spoiled_on_the_way_is_sent_again(checkpoint: Path, tmp_path: Path) -> None:
    store = Recorder(open_store(str(tmp_path / "there")))
    name = "checkpoint_0/trainer_1/w/0"
    assert name.removeprefix("checkpoint_0/") in names(checkpoint)
    store.spoil.add(name)
    upload_checkpoint(checkpoint, store)
    assert store.written.count(name) == 2
    assert store.read(name) == (checkpoint / "trainer_1/w/0").read_bytes()


def test_another_checkpoint_of_that_name_is_never_overwritten(
    checkpoint: Path, tmp_path: Path
) -> None:
    store = open_store(str(tmp_path / "there"))
    upload_checkpoint(checkpoint, store)
    before = {n: store.read(f"checkpoint_0/{n}") for n in store.sizes("checkpoint_0")}
    with CheckpointManager(tmp_path / "other") as manager:
        manager.save(0, {"main": {"w": np.zeros(2)}})
        with pytest.raises(StoreError, match="another checkpoint_0 is already there") as caught:
            upload_checkpoint(manager.path(0), store)
    assert "run.name" in caught.value.hint
    assert before == {n: store.read(f"checkpoint_0/{n}") for n in store.sizes("checkpoint_0")}


def test_a_copy_is_a_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    upload_checkpoint(checkpoint, open_store(str(tmp_path / "there")))
    shutil.rmtree(checkpoint)
    found = load_blobs(tmp_path / "there" / "checkpoint_0", ["trainer_2:w"])
    assert found["trainer_2:w"].tolist() == [2, 3, 4, 5, 6]


def test_small_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    store = open_store(str(tmp_path / "there"))
    upload_files(tmp_path, ("run.json", "spec.yaml"), store)
    assert store.read("run.json") == b"{}"
    with pytest.raises(NotFoundError):
        store.read("spec.yaml")


def test_a_success_that_a_kill_has_torn_is_written_again(checkpoint: Path, place: str) -> None:
    """Not every store writes a file as a whole."""
    store = open_store(place)
    upload_checkpoint(checkpoint, store)
    whole = store.read("checkpoint_0/_SUCCESS")
    for length in (0, len(whole) - 1):
        store.write("checkpoint_0/_SUCCESS", whole[:length])
        assert not is_uploaded(checkpoint, store)
        assert upload_checkpoint(checkpoint, store).sent == 1
        assert store.read("checkpoint_0/_SUCCESS") == whole


def test_it_is_stopped_between_proofs_too(checkpoint: Path, tmp_path: Path) -> None:
    store = Recorder(open_store(str(tmp_path / "there")))
    store.left = len(names(checkpoint)) - 1
    with pytest.raises(StoreError):  # all is sent but ``_SUCCESS``
        upload_checkpoint(checkpoint, store)
    store.read_names.clear()
    with pytest.raises(UploadStopped):
        upload_checkpoint(checkpoint, store, lambda: True)
    assert store.read_names == {"checkpoint_0/_SUCCESS"}
