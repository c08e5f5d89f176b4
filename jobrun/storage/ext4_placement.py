"""Checkpoints of one run in different places of an ext4 file system.

Every new file gets the first free inode near its directory, but ext4 does not give one away again
for a minute or more after its file was deleted: it looks at each of these first, for every file
that is made.  A run that saves and deletes, over and over, has thousands of them, and all in one
place, since directories are made near the one they are in.  A directory that is marked as the top
of a hierarchy has its directories spread over the disk instead (``chattr +T``; Orlov's allocator).

Measured, checkpoints of 2,000 blobs of 4 KiB, of which two are kept: creating the files of one
took 2.5 to 5 s, nearly all of it computing time of the system, and 0.1 to 0.9 s in a directory that
is so marked.
"""

from __future__ import annotations

import os
import struct
import sys
from contextlib import suppress

if sys.platform == "linux":
    import fcntl

__all__ = ["spread"]

# <linux/fs.h>, where long has 64 bits
_GET_FLAGS = 0x80086601
_SET_FLAGS = 0x40086602
_TOP_OF_HIERARCHY = 0x00020000


def spread(directory: str) -> None:
    """Let the directories that are made in ``directory`` lie apart.

    Nothing is done, and nothing said, where the file system does not know this.
    """
    if sys.platform != "linux" or struct.calcsize("l") != 8:
        return
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            found = fcntl.ioctl(descriptor, _GET_FLAGS, bytes(8))
            (flags,) = struct.unpack("l", found)
            if not flags & _TOP_OF_HIERARCHY:
                fcntl.ioctl(descriptor, _SET_FLAGS, struct.pack("l", flags | _TOP_OF_HIERARCHY))
        finally:
            os.close(descriptor)
