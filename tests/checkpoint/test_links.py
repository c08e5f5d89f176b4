"""Unchanged blobs are hard-linked; what cannot be linked is written; values have two inodes."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun.checkpoint.fs import Fs
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.record import RecordFields
from jobrun.checkpoint.source import BlobSource
from jobrun.policy import KEEP_ALL, Keep
from jobrun.position import Position
from jobrun.values import Box, Value, adopt

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
