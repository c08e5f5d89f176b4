"""Large files past the page cache: the same bytes, whatever the disk, the length, or what fails."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from jobrun.storage import direct_io
from jobrun.storage.direct_io import SMALLEST
from jobrun.storage.fs import Fs, FsError

pytestmark = pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="no such system")


class Watched(Fs):
    """Notes of each write how long it is and whether it goes past the cache; ``act`` may fail."""

    def __init__(self, act: Callable[[int, bool], int | None] = lambda number, past: None) -> None:
        self.writes: list[tuple[int, bool]] = []
        self._act = act

    def writev(self, fd: int, buffers: Sequence[memoryview]) -> int:
        past = bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)
        self.writes.append((sum(map(len, buffers)), past))
        most = self._act(len(self.writes), past)
        if most is None:
            return os.writev(fd, buffers)
        return os.write(fd, buffers[0][:most]) if most else 0


def made(size: int) -> memoryview:
    return memoryview(np.random.default_rng(size).bytes(size))


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory on a file system that can write past the cache."""
    folder = tmp_path_factory.mktemp("direct")
    watched = Watched()
    watched.write(str(folder / "probe"), [made(SMALLEST)], sync=False)
    if not any(past for _, past in watched.writes):
        pytest.skip("this file system cannot")
    return folder


@pytest.mark.parametrize("more", [-1, 0, 1, 4095, 4096, 4097, SMALLEST, 2 * SMALLEST + 12_345])
def test_files_of_any_length_hold_their_bytes(more: int, tmp_path: Path) -> None:
    data, path = made(SMALLEST + more), tmp_path / "x"
    Fs().write(str(path), [data, b"padding", b"tail"], sync=True)
    assert path.read_bytes() == bytes(data) + b"paddingtail"


def test_all_but_the_end_goes_past_the_cache(disk: Path) -> None:
    watched = Watched()
    watched.write(str(disk / "whole"), [made(3 * SMALLEST + 5000), b"tail"], sync=False)
    assert sum(size for size, past in watched.writes if past) == 3 * SMALLEST + 4096
    assert watched.writes[-1] == (5000 - 4096 + 4, False)


def test_small_files_go_through_the_cache(tmp_path: Path) -> None:
    watched = Watched()
    watched.write(str(tmp_path / "x"), [made(SMALLEST - 1), made(SMALLEST)], sync=False)
    assert watched.writes == [(2 * SMALLEST - 1, False)]


def test_a_disk_that_takes_no_such_writes_gets_others(tmp_path: Path) -> None:
    def act(number: int, past: bool) -> None:
        if past:
            raise OSError(errno.EINVAL, "another alignment is wanted")

    data, path = made(SMALLEST + 100), tmp_path / "x"
    Watched(act).write(str(path), [data, b"tail"], sync=True)
    assert path.read_bytes() == bytes(data) + b"tail"


def test_a_file_system_that_does_not_know_of_it_is_written_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, command: int, value: int = 0) -> int:
        if command == fcntl.F_SETFL:
            raise OSError(errno.EINVAL, "Invalid argument")
        return os.O_WRONLY

    monkeypatch.setattr(direct_io.fcntl, "fcntl", refuse)
    data, path = made(SMALLEST + 100), tmp_path / "x"
    Fs().write(str(path), [data, b"tail"], sync=True)
    assert path.read_bytes() == bytes(data) + b"tail"


@pytest.mark.parametrize("most", [4096, 8192, 5, 4097])
def test_a_short_write_is_continued(most: int, tmp_path: Path) -> None:
    """Also where it leaves the file at a place from which no such write can go on."""
    data, path = made(2 * SMALLEST + 100), tmp_path / "x"

    def act(number: int, past: bool) -> int | None:
        if number != 2 or not past:
            return None
        if most % 4096:  # the kernel itself never does this past the cache
            fcntl.fcntl(fds[-1], fcntl.F_SETFL, os.O_WRONLY)
        return most

    fds: list[int] = []

    class Noting(Watched):
        def writev(self, fd: int, buffers: Sequence[memoryview]) -> int:
            fds.append(fd)
            return super().writev(fd, buffers)

    Noting(act).write(str(path), [data, b"tail"], sync=True)
    assert path.read_bytes() == bytes(data) + b"tail"


def test_a_write_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FsError, match="nothing was written"):
        Watched(lambda number, past: 0).write(str(tmp_path / "x"), [made(SMALLEST)], sync=False)


def test_errors_are_told_and_nothing_is_held(disk: Path) -> None:
    def act(number: int, past: bool) -> None:
        if number == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = len(os.listdir("/proc/self/fd")), direct_io._free.qsize()
    for name in "ab":
        with pytest.raises(FsError, match=r"write of .*: No space left on device"):
            Watched(act).write(str(disk / name), [made(3 * SMALLEST)], sync=True)
    assert (len(os.listdir("/proc/self/fd")), direct_io._free.qsize()) == before


class Joined:
    """Joins what it sees, and ends the file with its length."""

    def __init__(self) -> None:
        self.data = b""

    def see(self, start: int, data: bytes | memoryview) -> None:
        assert start <= len(self.data), "some bytes were left out"
        self.data += bytes(data)[len(self.data) - start :]

    def tail(self) -> bytes:
        return b"%d bytes" % len(self.data)


@pytest.mark.parametrize("size", [0, 5000, SMALLEST, 2 * SMALLEST + 12_345])
@pytest.mark.parametrize("fault", ["", "short", "refused"])
def test_what_is_written_is_seen_and_then_ended(size: int, fault: str, tmp_path: Path) -> None:
    def act(number: int, past: bool) -> int | None:
        if number == 2 and past and fault == "refused":
            raise OSError(errno.EINVAL, "another alignment is wanted")
        return 8192 if number == 2 and past and fault else None

    data, path, sums = made(size), tmp_path / "x", Joined()
    Watched(act).write(str(path), [data, b"padding"], sync=True, sums=sums)
    assert sums.data == bytes(data) + b"padding"
    assert path.read_bytes() == sums.data + sums.tail()
