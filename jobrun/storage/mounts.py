"""The file system of a path: its type, where it is mounted, whether syncfs is reliable on it."""

from __future__ import annotations

import ctypes
import os
import sys

__all__ = ["can_syncfs", "file_system_type", "libc", "mount_point"]

# Local file systems on which syncfs(2) makes all data durable and reports errors.  It does not
# on FUSE (the daemon is not called), and is not guaranteed by network file systems.
_SYNCFS_TYPES = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs"})
_MOUNTS = "/proc/self/mountinfo"


def libc() -> ctypes.CDLL:
    """Return the C library, whose calls set ``ctypes.get_errno()``."""
    return ctypes.CDLL(None, use_errno=True)


def can_syncfs(path: str) -> bool:
    """Return whether syncfs exists, reports errors (Linux 5.8) and is reliable here."""
    if not sys.platform.startswith("linux") or not hasattr(libc(), "syncfs"):
        return False
    release = os.uname().release.split(".")
    if tuple(int("".join(filter(str.isdigit, part)) or 0) for part in release[:2]) < (5, 8):
        return False
    return file_system_type(path) in _SYNCFS_TYPES


def mount_point(path: str) -> str:
    """Return the directory at which the file system of a path is mounted."""
    place = os.path.realpath(path)
    while not os.path.ismount(place):
        place = os.path.dirname(place)
    return place


def file_system_type(path: str) -> str:
    """Return the type of the file system of a path, by the kernel's list of mounts; "" elsewhere.

    Raises OSError if there is nothing.
    """
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(_MOUNTS, encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                left, _, right = line.partition(" - ")
                if left.split(" ", 3)[2] == wanted:
                    return right.split(" ", 1)[0]
    except OSError:
        pass
    return ""
