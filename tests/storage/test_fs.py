from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.core.notices import received_by
from jobrun.storage import mounts
from jobrun.storage.fs import Fs, FsError


class ShortWrites(Fs):
    def writev(self, fd: int, buffers: Sequence[memoryview]) -> int:
        return os.write(fd, buffers[0][:3])


def test_short_writes_are_continued(tmp_path: Path) -> None:
    path = tmp_path / "x"
    ShortWrites().write(str(path), [b"hello", b"", memoryview(b" world"), b"!"], sync=True)
    assert path.read_bytes() == b"hello world!"


pieces = st.lists(st.binary(max_size=9), max_size=5)


@given(pieces, st.lists(st.integers(1, 12), min_size=1))
@settings(deadline=None, max_examples=80)
def test_any_part_of_the_buffers_may_be_written_at_a_time(
    buffers: list[bytes], most: list[int]
) -> None:
    """As the kernel does with more than 2 GiB, or on a disk that fills up."""
    limits = cycle(most)

    class Short(Fs):
        def writev(self, fd: int, buffers: Sequence[memoryview]) -> int:
            return os.write(fd, b"".join(buffers)[: next(limits)])

    with TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        Short().write(str(path), buffers, sync=False)
        assert path.read_bytes() == b"".join(buffers)


@given(pieces, st.binary(max_size=9), st.lists(st.integers(1, 12), min_size=1))
@settings(deadline=None, max_examples=80)
def test_any_part_of_the_buffers_may_be_read_at_a_time(
    buffers: list[bytes], more: bytes, most: list[int]
) -> None:
    limits = cycle(most)
    readv = os.readv

    def short(fd: int, views: Sequence[memoryview]) -> int:
        return readv(fd, [views[0][: next(limits)]])

    wanted = b"".join(buffers)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "x"
        path.write_bytes(wanted + more)
        patch.setattr(os, "readv", short)
        views = [memoryview(bytearray(len(b))) for b in buffers]
        fd, size = Fs().open(str(path), 1 << 24)
        assert size == path.stat().st_size
        try:
            assert Fs().read_into(fd, str(path), views) == len(wanted)
            assert b"".join(views) == wanted
            rest = memoryview(bytearray(12))
            assert Fs().read_into(fd, str(path), [rest]) == len(more)
            assert rest[: len(more)] == more
        finally:
            os.close(fd)


def test_a_write_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    class Stuck(Fs):
        def writev(self, fd: int, buffers: Sequence[memoryview]) -> int:
            return 0

    with pytest.raises(FsError, match="nothing was written"):
        Stuck().write(str(tmp_path / "x"), [b"x"], sync=False)


def test_files_are_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("mine")
    with pytest.raises(FsError, match=r"open of .*x: File exists \(EEXIST\)"):
        Fs().write(str(tmp_path / "x"), [b"y"], sync=False)
    assert (tmp_path / "x").read_text() == "mine"


def test_files_have_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        Fs().write(str(tmp_path / "x"), [b"y"], sync=False)
    finally:
        os.umask(old)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("kind", ["a directory", "a symbolic link", "a fifo"])
def test_only_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "a directory":
        path.mkdir()
    elif kind == "a fifo":
        os.mkfifo(path)
    else:
        (tmp_path / "y").write_text("y")
        path.symlink_to(tmp_path / "y")
    calls: list[Callable[[str], object]] = [
        lambda path: Fs().read(path, 100),
        lambda path: list(Fs().sizes([path])),
        lambda path: Fs().open(path, 100),
    ]
    for call in calls:
        with pytest.raises(FsError, match=f"is {kind}, not a file"):
            call(str(path))


def test_no_more_is_read_than_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(100))
    assert len(Fs().read(str(path), 100)) == 100
    with pytest.raises(FsError, match="longer than 99 bytes"):
        Fs().read(str(path), 99)


def test_directories_are_made_with_what_is_above_them(tmp_path: Path) -> None:
    Fs().make_dirs(str(tmp_path / "a/b/c"))
    Fs().make_dirs(str(tmp_path / "a/b/c"))
    assert (tmp_path / "a/b/c").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(FsError, match="mkdir"):
        Fs().make_dirs(str(tmp_path / "file/x"))


def test_syncfs_is_used_where_it_is_known_to_be_honest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = os.stat(tmp_path).st_dev
    line = f"1 2 {os.major(device)}:{os.minor(device)} / / rw - {{}} /dev/x rw\n"
    info = tmp_path / "mountinfo"
    monkeypatch.setattr(mounts, "_MOUNTS", str(info))
    linux58 = os.uname().sysname == "Linux"
    for kind, honest in {"ext4": linux58, "fuse.sshfs": False, "nfs4": False}.items():
        info.write_text("1 2 0:0 / / rw - proc x rw\n" + line.format(kind))
        found = Fs().sync_all(str(tmp_path))
        assert (found is not None) == honest
        if found is not None:
            with found:
                found()
    info.unlink()
    assert Fs().sync_all(str(tmp_path)) is None


@pytest.mark.parametrize("size", [0, 1, 4096, (1 << 20) + 3])
def test_a_whole_file_is_read(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(i % 251 for i in range(size)))
    assert Fs().read(str(path), 1 << 24) == path.read_bytes()


def test_sizes_name_the_file_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    sizes = Fs().sizes([str(tmp_path / "a"), str(tmp_path / "b")])
    assert next(sizes) == 3
    with pytest.raises(FsError, match=r"stat of .*b: No such file"):
        next(sizes)


class NoDirectorySync(Fs):
    """A file system as CIFS is: fsync of a directory fails, that of a file does not."""

    def __init__(self, code: int) -> None:
        self.code = code

    def at(self, op: str, path: str) -> None:
        if op == "fsync" and os.path.isdir(path):
            raise OSError(self.code, os.strerror(self.code))


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_that_does_not_sync_directories(tmp_path: Path, code: int) -> None:
    fs, notices = NoDirectorySync(code), list[str]()
    with received_by(notices.append):
        for name in ("a", "b"):
            fs.make_dirs(str(tmp_path / name / "c"))
            fs.put(str(tmp_path / name / "file"), b"1")
    assert (tmp_path / "a/file").read_bytes() == b"1"
    mount = next(p for p in [tmp_path, *tmp_path.parents] if os.path.ismount(p))
    assert notices == [
        f"{mount} is a file system that does not sync directories ({errno.errorcode[code]}): "
        "a power cut may lose the names of the newest files, whose bytes are synced"
    ]


def test_a_directory_whose_sync_fails_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FsError, match="EIO"):
        NoDirectorySync(errno.EIO).sync_dir(str(tmp_path))


def test_a_file_that_cannot_be_synced_is_an_error(tmp_path: Path) -> None:
    class NoSync(Fs):
        def at(self, op: str, path: str) -> None:
            if op == "fsync":
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    with pytest.raises(FsError, match="EINVAL"):
        NoSync().put(str(tmp_path / "x"), b"1")


def test_a_close_after_reading_that_fails_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fuse-overlayfs does so with files whose first name is gone; the bytes have been read."""
    (tmp_path / "x").write_bytes(b"bytes")
    close = os.close

    def failing(fd: int) -> None:
        close(fd)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "close", failing)
    assert Fs().read(str(tmp_path / "x"), 100) == b"bytes"
    Fs().sync_file(str(tmp_path / "x"))
