"""Output of a process as lines."""

from __future__ import annotations

import codecs
from collections.abc import Callable

__all__ = ["LineDecoder"]


class LineDecoder:
    """Takes bytes apart into lines of UTF-8, without their ends; ``keep`` gets each."""

    def __init__(self, keep: Callable[[str], None]) -> None:
        self._keep = keep
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._begun = ""

    def add(self, data: bytes) -> None:
        """The next bytes."""
        self._take(self._decode(data))

    def end(self) -> None:
        """A line that was begun is a line."""
        text = self._decode(b"", True)
        self._take(text + "\n" if self._begun or text else "")

    def _take(self, text: str) -> None:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._keep(line.rstrip("\r"))
