"""A file that a user asked for is there as a whole, or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from jobrun.errors import UsageError
from jobrun.storage.atomic_file import whole_file, write_text
from jobrun.storage.fs import Fs


def test_it_has_its_name_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "out put é.txt"
    with whole_file(target) as path:
        path.write_text("new")
        assert path.parent == tmp_path
        assert not target.exists()
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == [target.name]


def test_what_stood_there_stays_where_writing_fails(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    target.write_text("old")

    def half(path: Path) -> None:
        path.write_text("half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), whole_file(target) as path:
        half(path)
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.txt"]


class FullDisk(Fs):
    """A disk that is full when data is made durable."""

    def at(self, op: str, path: str) -> None:
        if op == "fsync":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_refuses(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    with (
        pytest.raises(UsageError, match="cannot be written: No space left") as caught,
        whole_file(target, fs=FullDisk()) as path,
    ):
        path.write_text("x")
    assert caught.value.where == str(target)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("target", ["no/such/out.txt", "folder"])
def test_where_no_file_can_be(target: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError):
        write_text(tmp_path / target, "x")
    assert os.listdir(tmp_path) == ["folder"]


def test_links_are_followed_and_devices_written_to(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"
    write_text(Path("/dev/null"), "x")
    assert not Path("/dev/null").is_file()
