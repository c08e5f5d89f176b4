"""Streams that stand in for others: prints come in pieces, from many threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TextIO

__all__ = ["StandIn", "WholeLines"]

_LONG = 1 << 16


class StandIn:
    """Stands in for ``stream``: ``put`` gets all that is written.

    In a forked child, where nothing shows it, it is written to ``stream``.
    """

    def __init__(self, stream: TextIO, put: Callable[[str], None]) -> None:
        self._stream = stream
        self._put = put
        self._process = os.getpid()

    def write(self, text: str) -> int:
        """Pass on ``text``."""
        if os.getpid() != self._process:
            return self._stream.write(text)
        self._put(text)
        return len(text)

    def flush(self) -> None:
        """Do nothing: all was passed on."""
        if os.getpid() != self._process:
            self._stream.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


class WholeLines(StandIn):
    """Stands in for ``stream``: ``put`` gets each line once it is whole.

    The lines of a thread come in their order.
    """

    def __init__(self, stream: TextIO, put: Callable[[list[str]], None]) -> None:
        super().__init__(stream, self._write)
        self._put_lines = put
        self._begun: dict[int, str] = {}

    def end(self) -> None:
        """Pass on the lines that have not ended."""
        begun, self._begun = list(self._begun.values()), {}
        if begun:
            self._put_lines(begun)

    def _write(self, text: str) -> None:
        thread = threading.get_ident()
        *lines, begun = (self._begun.pop(thread, "") + text).split("\n")
        if begun:  # of a progress bar that never ends its line, only the last state is kept
            self._begun[thread] = begun.rpartition("\r")[2] if len(begun) > _LONG else begun
        if lines:
            self._put_lines(lines)
