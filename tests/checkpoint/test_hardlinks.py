"""Unchanged blobs are hard-linked; what cannot be linked is written; values have two inodes."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_helpers import CountingFs

from jobrun.checkpoint import hardlinks
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.part_source import BlobSource
from jobrun.checkpoint.record import RecordFields
from jobrun.core import crc32c
from jobrun.core.position import Position
from jobrun.model.policy import KEEP_ALL, Keep
from jobrun.storage.fs import Fs, FsError
from jobrun.values.adoption import adopt
from jobrun.values.boxes import Box, Value, checksum

CONSTANT = np.arange(1000.0)


class Loop:
    """Saves one blob that never changes and one that does, as a session would."""

    def __init__(self, run_dir: Path, **options: Any) -> None:
        self.manager = CheckpointManager(run_dir, **options)
        self.blobs: dict[str, Value] = {
            "same": adopt([CONSTANT.copy()]),
            "number": adopt([2.5]),
            "tree": adopt([{"a": CONSTANT[:10].copy(), "b": [1, "x"]}]),
        }
        self.fs = options.get("fs", Fs())

    def save(self, epoch: int) -> Any:
        self.blobs["changing"] = adopt([np.full(1000, float(epoch))])
        source = BlobSource({"main": dict(self.blobs)}, self.fs)
        return self.manager.save_snapshot(source, RecordFields(Position(epochs=epoch)))

    def inode(self, id: int, name: str) -> int:
        return os.stat(self.manager.catalog.path(id) / "main" / name).st_ino

    def check(self, id: int, epoch: int) -> None:
        blobs = self.manager.load(id=id).blobs["main"]
        assert blobs["same"].tobytes() == CONSTANT.tobytes()
        assert blobs["number"] == 2.5
        assert blobs["tree"]["a"].tolist() == CONSTANT[:10].tolist()
        assert blobs["tree"]["b"] == [1, "x"]
        assert (blobs["changing"] == epoch).all()


def test_alternate_links_from_the_checkpoint_before_the_parent(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "run")
    saved = [loop.save(epoch) for epoch in range(6)]
    inodes = [loop.inode(id, "same/0") for id in range(6)]
    assert inodes[0] != inodes[1]
    assert inodes == [inodes[0], inodes[1]] * 3
    assert [s.linked > 0 for s in saved] == [False, False, True, True, True, True]
    changing = {loop.inode(id, "changing/0") for id in range(6)}
    assert len(changing) == 6
    for id in range(6):
        loop.check(id, id)


def test_what_is_linked_is_neither_read_nor_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[bytes] = []
    crc = crc32c.crc32c

    def noting(data: Any, *more: Any) -> int:
        hashed.append(bytes(data))
        return crc(data, *more)

    monkeypatch.setattr(crc32c, "crc32c", noting)
    fs = CountingFs()
    loop = Loop(tmp_path / "run", fs=fs)
    for epoch in range(4):
        hashed.clear()
        fs.done.clear()
        loop.save(epoch)
        unchanged = [CONSTANT.tobytes(), CONSTANT[:10].tobytes()]
        assert [data in hashed for data in unchanged] == [epoch < 2] * 2
        assert np.full(1000, float(epoch)).tobytes() in hashed
        ops = {op for op, path in fs.done if "/same/" in path}
        assert ops == ({"open", "write", "fsync", "close"} if epoch < 2 else {"link", "stat"})


def test_parent_links_from_the_parent(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "run", link="parent")
    for epoch in range(4):
        loop.save(epoch)
    assert len({loop.inode(id, "same/0") for id in range(4)}) == 1


def test_never_shares_nothing(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "run", link="never")
    for epoch in range(4):
        assert loop.save(epoch).linked == 0
    assert len({loop.inode(id, "same/0") for id in range(4)}) == 4
    assert len({loop.inode(id, "changing/zarr.json") for id in range(4)}) == 4


@pytest.mark.parametrize(
    ("keep", "different"), [(Keep(last=1), 1), (Keep(last=2), 2), (KEEP_ALL, 2)]
)
def test_inodes_of_a_lasting_value(tmp_path: Path, keep: Keep, different: int) -> None:
    loop = Loop(tmp_path / "run", keep=keep)
    seen = set()
    for epoch in range(6):
        loop.save(epoch)
        seen.add(loop.inode(epoch, "same/0"))
        loop.check(epoch, epoch)
    assert len(seen) == different


def test_metadata_is_shared_where_only_the_values_differ(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "run", link="parent")
    for epoch in range(3):
        loop.save(epoch)
    assert loop.inode(1, "changing/zarr.json") == loop.inode(2, "changing/zarr.json")
    loop.blobs["number"] = adopt([3.5])
    loop.save(3)
    assert loop.inode(2, "number/zarr.json") != loop.inode(3, "number/zarr.json")
    assert loop.manager.load(id=3).blobs["main"]["number"] == 3.5


def test_versions_survive_a_new_process_and_still_link(tmp_path: Path) -> None:
    first = Loop(tmp_path / "run")
    for epoch in range(2):
        first.save(epoch)
    first.manager.close()
    again = Loop(tmp_path / "run")
    again.blobs = dict(again.manager.load().parts["main"])
    again.save(2)
    assert again.inode(2, "same/0") == again.inode(0, "same/0")
    again.check(2, 2)


class Listening(Fs):
    """Notes the manifests that are opened."""

    def __init__(self) -> None:
        self.manifests: list[str] = []

    def at(self, op: str, path: str) -> None:
        if op == "open" and "/checkpoint_" in path and "manifest." in path:
            self.manifests.append(Path(path).parent.name)


@pytest.mark.parametrize("link", ["alternate", "parent"])
def test_what_a_process_has_saved_it_does_not_read_again(tmp_path: Path, link: str) -> None:
    fs = Listening()
    loop = Loop(tmp_path / "run", fs=fs, link=link)
    other = Loop(tmp_path / "other", fs=fs, link=link)
    for epoch in range(5):
        loop.save(epoch)
        other.save(epoch)
    assert fs.manifests == []
    loop.manager.close()
    hardlinks._remembered.clear()
    for epoch in range(5, 9):
        loop.save(epoch)
    assert fs.manifests == (
        ["checkpoint_3", "checkpoint_4"] if link == "alternate" else ["checkpoint_4"]
    )


def test_few_of_the_manifests_of_a_run_are_kept_in_memory(tmp_path: Path) -> None:
    hardlinks._remembered.clear()
    loop = Loop(tmp_path / "run")
    for epoch in range(6):
        loop.save(epoch)
    assert [len(own) for nodes in hardlinks._remembered.values() for own in nodes.values()] == [3]
    for number in range(10):
        Loop(tmp_path / str(number)).save(0)
    assert len(hardlinks._remembered) == 8


def test_metadata_that_are_damaged_are_not_passed_on(tmp_path: Path) -> None:
    """By their length they look whole, and many blobs would share them."""
    with CheckpointManager(tmp_path / "run") as manager:
        for epoch in range(2):
            save_many(manager, epoch)
        for name in ("x0", "y0", "d0"):
            meta = manager.catalog.path(0) / "main" / name / "zarr.json"
            data = bytearray(meta.read_bytes())
            data[20] ^= 1
            meta.write_bytes(data)
        save_many(manager, 2)
        check_many(manager, 2, 2)


class NoLinks(Fs):
    """A file system on which links fail."""

    def __init__(self, code: int) -> None:
        self.code = code

    def at(self, op: str, path: str) -> None:
        if op == "link":
            raise OSError(self.code, os.strerror(self.code))


CANNOT_LINK = [
    errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP, errno.EACCES, errno.ENOSPC, errno.EIO,
]  # fmt: skip


@pytest.mark.parametrize("code", CANNOT_LINK, ids=errno.errorcode.get)
def test_where_links_fail_the_values_are_written(tmp_path: Path, code: int) -> None:
    loop = Loop(tmp_path / "run", fs=NoLinks(code))
    for epoch in range(4):
        assert loop.save(epoch).linked == 0
        loop.check(epoch, epoch)


@pytest.mark.parametrize("harm", ["gone", "cut", "symlink", "manifest"])
def test_a_damaged_source_is_not_passed_on(tmp_path: Path, harm: str) -> None:
    loop = Loop(tmp_path / "run", link="parent")
    loop.save(0)
    chunk = loop.manager.catalog.path(0) / "main" / "same" / "0"
    if harm == "gone":
        chunk.unlink()
    elif harm == "cut":
        os.truncate(chunk, 100)
    elif harm == "symlink":
        moved = tmp_path / "elsewhere"
        shutil.move(chunk, moved)
        chunk.symlink_to(moved)
    else:
        (loop.manager.catalog.path(0) / "manifest.main.json").write_text("{}")
    loop.save(1)
    loop.check(1, 1)


def test_a_value_of_another_run_is_not_taken_for_an_unchanged_one(tmp_path: Path) -> None:
    """Equal names and versions, other kinds: the kind is compared too."""
    loop = Loop(tmp_path / "run", link="parent")
    loop.save(0)
    loop.blobs["number"] = Box(np.float64(2.5), "scalar", 0)
    loop.save(1)
    assert type(loop.manager.load(id=1).blobs["main"]["number"]) is np.float64


def test_retention_of_a_linked_checkpoint_leaves_the_others_whole(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "run", keep=Keep(last=2))
    for epoch in range(8):
        loop.save(epoch)
    assert loop.manager.catalog.ids() == [6, 7]
    loop.check(6, 6)
    loop.check(7, 7)


# Metadata of one dtype and shape, within a checkpoint.


def many(epoch: int) -> dict[str, Value]:
    """Enough blobs to be synced at once: 40 of one form, 10 of another, 10 numbers and dicts."""
    blobs: dict[str, Value] = {f"x{i}": adopt([np.full(3, i + epoch)]) for i in range(40)}
    blobs |= {f"y{i}": adopt([np.full(4, i + epoch)]) for i in range(10)}
    blobs |= {f"n{i}": adopt([float(epoch)]) for i in range(10)}
    return blobs | {f"d{i}": adopt([{"z": np.full(3, epoch)}]) for i in range(10)}


def save_many(manager: CheckpointManager, epoch: int, fs: Fs | None = None) -> Any:
    source = BlobSource({"main": many(epoch)}, fs or Fs())
    return manager.save_snapshot(source, RecordFields(Position(epochs=epoch)))


def metas(manager: CheckpointManager, id: int, prefix: str) -> list[int]:
    """The inodes of the metadata of blobs (the dicts' arrays lie one level deeper)."""
    below = "/z" if prefix == "x" else ""
    folder = manager.catalog.path(id) / "main"
    names = [f"{prefix}{i}" for i in range(10)] + [f"d{i}{below}" for i in range(10) if below]
    return [os.stat(folder / name / "zarr.json").st_ino for name in names]


def bytes_of_earlier(path: Path) -> int:
    """The bytes of a checkpoint that are also in the one two before."""
    before = path.with_name(f"checkpoint_{int(path.name[11:]) - 2}").rglob("*")
    inodes = {p.stat().st_ino for p in before if p.is_file()}
    files = [p.stat() for p in path.rglob("*") if p.is_file()]
    return sum(status.st_size for status in files if status.st_ino in inodes)


def check_many(manager: CheckpointManager, id: int, epoch: int) -> None:
    found = manager.load(id=id).parts["main"]
    wanted = many(epoch)
    assert list(found) == list(wanted)
    assert all(checksum(found[name]) == checksum(wanted[name]) for name in wanted)


@pytest.mark.parametrize("link", ["alternate", "never"])
def test_metadata_that_say_the_same_are_one_file_of_a_checkpoint(tmp_path: Path, link: str) -> None:
    with CheckpointManager(tmp_path / "run", link=link) as manager:
        for epoch in range(3):
            saved = save_many(manager, epoch)
            assert (saved.linked > 0) == (link == "alternate" and epoch == 2)
            assert saved.linked == bytes_of_earlier(saved.path)
            check_many(manager, epoch, epoch)
            assert len(set(metas(manager, epoch, "x"))) == 1
            assert len(set(metas(manager, epoch, "y"))) == 1
            assert len(set(metas(manager, epoch, "d"))) == 1
            assert len(set(metas(manager, epoch, "n"))) == 10  # they hold the value
        assert not {*metas(manager, 0, "x")} & {*metas(manager, 1, "x"), *metas(manager, 1, "y")}


def test_where_an_inode_can_have_few_names_there_are_more_of_them(tmp_path: Path) -> None:
    class FewNames(Fs):
        """As a file system has it that allows an inode four names."""

        def link(self, source: str, target: str) -> None:
            if os.stat(source).st_nlink == 4:
                raise FsError("link", target, OSError(errno.EMLINK, os.strerror(errno.EMLINK)))
            super().link(source, target)

    fs = FewNames()
    with CheckpointManager(tmp_path / "run", fs=fs) as manager:
        for epoch in range(4):
            save_many(manager, epoch, fs)
            check_many(manager, epoch, epoch)
        assert len(set(metas(manager, 0, "y"))) == 3


@pytest.mark.parametrize(("code", "tries"), [(errno.EPERM, 1), (errno.EMLINK, 49 + 9 + 9)])
def test_where_files_have_one_name_only_that_is_tried_once(
    tmp_path: Path, code: int, tries: int
) -> None:
    class Noting(NoLinks):
        tried = 0

        def at(self, op: str, path: str) -> None:
            self.tried += op == "link"
            super().at(op, path)

    fs = Noting(code)
    with CheckpointManager(tmp_path / "run", fs=fs) as manager:
        save_many(manager, 0, fs)
        assert fs.tried == tries
        check_many(manager, 0, 0)
