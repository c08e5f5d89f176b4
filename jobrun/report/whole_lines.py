"""A stream that passes on whole lines: prints come in pieces, from many threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TextIO

__all__ = ["WholeLines"]

_LONG = 1 << 16


class WholeLines:
    """Stands in for ``stream``: ``put`` gets each line once it is whole.

    The lines of a thread come in their order.  In a forked child, which has nobody who shows them,
    it is the stream itself.
    """

    def __init__(self, stream: TextIO, put: Callable[[list[str]], None]) -> None:
        self._stream = stream
        self._put = put
        self._process = os.getpid()
        self._begun: dict[int, str] = {}

    def write(self, text: str) -> int:
        """Pass on the lines that ``text`` completes."""
        if os.getpid() != self._process:
            return self._stream.write(text)
        thread = threading.get_ident()
        *lines, begun = (self._begun.pop(thread, "") + text).split("\n")
        if begun:  # of a progress bar that never ends its line, only the last state is kept
            self._begun[thread] = begun.rpartition("\r")[2] if len(begun) > _LONG else begun
        if lines:
            self._put(lines)
        return len(text)

    def flush(self) -> None:
        """Nothing: what is whole was passed on."""
        if os.getpid() != self._process:
            self._stream.flush()

    def end(self) -> None:
        """Pass on the lines that were begun."""
        begun, self._begun = list(self._begun.values()), {}
        if begun:
            self._put(begun)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)
