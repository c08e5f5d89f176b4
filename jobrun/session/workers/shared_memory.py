"""Memory that two processes share, and that has no name.

It is an anonymous file that is passed on by its descriptor: however a process ends, nothing is
left.
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
    """Return a descriptor of a new file of ``size`` zeros, in memory where possible."""
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
    """Return the bytes of a file as a writable array; closes the descriptor."""
    try:
        return np.frombuffer(mmap.mmap(descriptor, 0), np.uint8)
    finally:
        os.close(descriptor)
