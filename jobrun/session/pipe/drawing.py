"""Sources whose functions may draw from the global generators that ``state`` names.

They draw from generators of their own, so that what they draw does not depend on how far they are
read ahead, and is the same in a run that resumes.  What is read again from its beginning, up to the
place where a run resumes, has one generator for each pass; all else one for each read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jobrun.data.source import Columns, Cursor, Slow, Stream, ignore_slow
from jobrun.session.generators import Generators, Slot

__all__ = ["DrawingStream"]

SlotOf = Callable[..., Slot]
"""Makes the slot of a pass, or of a pass and a row."""


class DrawingStream(Stream):
    """``stream`` with generators of its own.

    ``slot_of(row)`` makes the slot of a read at a row of the pass of now; ``replayed`` streams have
    that of row 0 for the whole pass.
    """

    def __init__(
        self, stream: Stream, generators: Generators, slot_of: SlotOf, *, replayed: bool
    ) -> None:
        self.name = stream.name
        self.rows = stream.rows
        self._stream = stream
        self._generators = generators
        self._slot_of = slot_of
        self._replayed = replayed

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self._stream.columns

    @property
    def dtypes(self) -> Mapping[str, str]:  # type: ignore[override]
        """The dtypes that are known."""
        return self._stream.dtypes

    def open(self, row: int = 0, mark: Any = None, slow: Slow = ignore_slow) -> Cursor:
        """Open the stream at a row; see Stream."""
        slot = self._slot_of(0 if self._replayed else row)
        with self._generators.using(slot):
            cursor = self._stream.open(row, mark, slow)
        slot_of = (lambda row: slot) if self._replayed else self._slot_of
        return _DrawingCursor(cursor, self._generators, slot_of)


class _DrawingCursor(Cursor):
    def __init__(self, cursor: Cursor, generators: Generators, slot_of: SlotOf) -> None:
        self.row = cursor.row
        self._cursor = cursor
        self._generators = generators
        self._slot_of = slot_of

    def read(self, rows: int) -> Columns:
        with self._generators.using(self._slot_of(self.row)):
            columns = self._cursor.read(rows)
        self.row = self._cursor.row
        return columns

    def mark(self) -> Any:
        return self._cursor.mark()

    def skip(self, rows: int) -> None:
        with self._generators.using(self._slot_of(self.row)):
            self._cursor.skip(rows)
        self.row = self._cursor.row

    def close(self) -> None:
        self._cursor.close()
