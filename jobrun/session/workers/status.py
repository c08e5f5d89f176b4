"""The status of a worker process, in memory shared with the process that started it.

It can be read when the worker cannot answer any more.
"""

from __future__ import annotations

import math
import struct
import time
from typing import Any, NamedTuple

import numpy.typing as npt

__all__ = ["STATUS_BYTES", "Status", "WorkerStatus"]

_FORMAT = struct.Struct("<dqqq")
STATUS_BYTES = _FORMAT.size


class WorkerStatus(NamedTuple):
    """The step that a worker is in (-1: none yet), its try of it, and when that began.

    ``batch`` is its place among those of the question.
    """

    started: float
    batch: int
    step: int
    tries: int


class Status:
    """A place for one ``WorkerStatus``, in ``STATUS_BYTES`` shared bytes.

    The time is written first: a reader in between sees a step that began later than it did.
    """

    def __init__(self, area: npt.NDArray[Any]) -> None:
        self._area = area.data

    def clear(self) -> None:
        """Record that no step has begun."""
        _FORMAT.pack_into(self._area, 0, math.inf, 0, -1, 0)

    def begin(self, batch: int, step: int, tries: int) -> None:
        """Record that a try of a step begins now."""
        _FORMAT.pack_into(self._area, 0, time.monotonic(), batch, step, tries)

    def read(self) -> WorkerStatus:
        """Return the last status."""
        return WorkerStatus(*_FORMAT.unpack_from(self._area, 0))
