"""Memory that two processes share, without a name anywhere.

It is an anonymous file that is passed on by its descriptor: whatever ends how, nothing is left.
"""

from __future__ import annotations

import mmap
import os
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["anonymous_file", "mapped"]


def anonymous_file(size: int) -> int:
    """The descriptor of a new file of ``size`` zeros, in memory where the system can do that."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("jobrun")
    else:
        with TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, size)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def mapped(descriptor: int) -> npt.NDArray[Any]:
    """The bytes of a file as a writable array; closes the descriptor."""
    try:
        return np.frombuffer(mmap.mmap(descriptor, 0), np.uint8)
    finally:
        os.close(descriptor)
