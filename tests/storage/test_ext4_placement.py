"""The directories in a run's directory lie apart, where the file system can do that."""

from __future__ import annotations

import errno
import os
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from jobrun import CheckpointManager
from jobrun.storage import ext4_placement as module
from jobrun.storage.ext4_placement import spread

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")

GET, SET, TOP, NO_DUMP = 0x80086601, 0x40086602, 0x20000, 0x40


class FileSystem:
    """Has the flags of one directory, and refuses what it is to refuse."""

    def __init__(self, flags: int = 0, refuses: int = 0) -> None:
        self.flags = flags
        self.refuses = refuses
        self.asked: list[int] = []

    def ioctl(self, descriptor: int, request: int, argument: bytes) -> bytes:
        self.asked.append(request)
        if request == self.refuses:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        if request == SET:
            (self.flags,) = struct.unpack("l", argument)
        return struct.pack("l", self.flags)


@pytest.mark.parametrize(
    ("system", "flags", "asked"),
    [
        (FileSystem(), TOP, [GET, SET]),
        (FileSystem(NO_DUMP), TOP | NO_DUMP, [GET, SET]),
        (FileSystem(TOP | NO_DUMP), TOP | NO_DUMP, [GET]),
        (FileSystem(refuses=GET), 0, [GET]),
        (FileSystem(refuses=SET), 0, [GET, SET]),
    ],
    ids=["none", "others", "marked", "no flags", "not this one"],
)
def test_one_flag_is_added_if_that_can_be(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    system: FileSystem,
    flags: int,
    asked: list[int],
) -> None:
    monkeypatch.setattr(module.fcntl, "ioctl", system.ioctl)
    spread(str(tmp_path))
    assert (system.flags, system.asked) == (flags, asked)


def test_what_is_no_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    spread(str(tmp_path / "file"))
    spread(str(tmp_path / "missing"))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_run_directory_is_marked_and_what_is_in_it_is_not(tmp_path: Path) -> None:
    def marked(directory: Path) -> bool:
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            found = module.fcntl.ioctl(descriptor, GET, bytes(8))
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return bool(struct.unpack("l", found)[0] & TOP)

    (tmp_path / "any").mkdir()
    spread(str(tmp_path / "any"))
    if not marked(tmp_path / "any"):
        pytest.skip("this file system does not know it")
    with CheckpointManager(tmp_path / "run") as manager:
        id = manager.save(1, {"main": {"w": np.zeros(3)}})
    assert marked(tmp_path / "run")
    assert not marked(tmp_path / "run" / f"checkpoint_{id}")
