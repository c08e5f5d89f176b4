"""What a worker process is doing, in memory that it shares with the process that started it.

It can be read when the worker cannot say anything any more.
"""

from __future__ import annotations

import math
import struct
import time
from typing import Any, NamedTuple

import numpy.typing as npt

__all__ = ["STATUS_BYTES", "Status", "WorkerStatus"]

_FORMAT = struct.Struct("<dqq")
STATUS_BYTES = _FORMAT.size


class WorkerStatus(NamedTuple):
    """The step that a worker is in (-1: none yet), its try of it, and when that began."""

    started: float
    step: int
    tries: int


class Status:
    """A place for one ``WorkerStatus``, in ``STATUS_BYTES`` shared bytes.

    The time is written first: who reads in between sees a step that began later than it did.
    """

    def __init__(self, area: npt.NDArray[Any]) -> None:
        self._area = area.data

    def clear(self) -> None:
        """No step has begun."""
        _FORMAT.pack_into(self._area, 0, math.inf, -1, 0)

    def begin(self, step: int, tries: int) -> None:
        """A try of a step begins now."""
        _FORMAT.pack_into(self._area, 0, time.monotonic(), step, tries)

    def read(self) -> WorkerStatus:
        """What was written last."""
        return WorkerStatus(*_FORMAT.unpack_from(self._area, 0))
