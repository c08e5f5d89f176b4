"""Sources that a user's function makes: an object of items, an iterable, or columns.

An object with ``__len__`` and ``__getitem__`` (a PyTorch dataset of that style) is a table.  What
can only be iterated is a stream, made again for each pass.  A dict of arrays, or an array, is
columns as it is; so is a table of pandas, polars or pyarrow.

A stream is brought back to a place by reading it again up to there, whatever it can do itself: a
``state_dict`` may leave out what the iteration holds (the buffer of a shuffled data set of Hugging
Face, the batches that workers have fetched ahead), and rows would be lost or come twice.  Only who
asks for it goes there by ``state_dict`` and ``load_state_dict``.

An item is a dict of columns, a tuple of them in the order of ``from``, or the value of the one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from jobrun.core.forked import end_if_forked
from jobrun.core.suggestions import did_you_mean_or_all
from jobrun.data.frames import frame_table, is_frame
from jobrun.data.iterator_state import state_from_json, state_to_json
from jobrun.data.select import Matrices, MatrixStream, names_in
from jobrun.data.source import (
    TEXT,
    Columns,
    Cursor,
    Permutation,
    Slow,
    Source,
    Stream,
    Table,
    finished,
    ignore_slow,
)
from jobrun.data.tables import ArrayTable
from jobrun.errors import DataError, TaskError, ValueRefusedError, with_article
from jobrun.model.rows import ColumnNames
from jobrun.values.adoption import adopt
from jobrun.values.boxes import Box

__all__ = ["called_source"]

Fail = Callable[[BaseException], TaskError]
"""Makes an error of one that was raised in the user's code, of any kind: ``sys.exit()`` too."""

_SLOW_SECONDS = 2.0
_STATE = (("state_dict", "load_state_dict"), ("get_state", "set_state"))
"""The methods that read and restore a state: those of torch, and of grain."""


def called_source(
    make: Callable[[], Any],
    wanted: ColumnNames,
    name: str,
    fail: Fail,
    *,
    by_state: bool = False,
) -> Source:
    """Return the source that ``make`` gives; ``wanted`` maps columns to keys of an item.

    A tuple of keys makes a matrix; the parts of an item that is a tuple are then those keys.

    ``by_state``: a stream is brought back to a place by its own state, which is exact.  Raises
    DataError for what is none of the kinds above, or has no such state, and what ``make`` and
    ``fail`` raise.
    """
    single = {c: n for c, n in wanted.items() if isinstance(n, str)}
    if len(single) == len(wanted):
        return _source(make, single, name, fail, by_state)
    plan = dict(wanted)
    source = _source(make, {n: n for n in names_in(plan)}, name, fail, by_state)
    if isinstance(source, Table):
        return Matrices(source, plan)
    assert isinstance(source, Stream)
    return MatrixStream(source, plan)


def _source(
    make: Callable[[], Any], wanted: Mapping[str, str], name: str, fail: Fail, by_state: bool
) -> Source:
    made = make()
    if by_state and _is_table(made):
        raise DataError(
            f"{name}: its rows can be read in any order, so 'resume: state' has no effect",
            hint="remove 'resume'",
        )
    if isinstance(made, np.ndarray):
        made = {next(iter(wanted.values())): made}
    if isinstance(made, Mapping):
        return _columns_of(made, wanted, name)
    if is_frame(made):
        return frame_table(made, wanted, name)
    if _is_map_style(made):
        return ItemTable(made, wanted, name, fail)
    if hasattr(made, "__iter__"):
        return ItemStream(make, made, wanted, name, fail, by_state=by_state)
    raise DataError(
        f"{name} returned {with_article(type(made).__name__)}, which cannot be read row by row",
        hint="return something with __len__ and __getitem__, an iterable, a dict of arrays, or "
        "a table",
    )


def _is_table(made: Any) -> bool:
    return isinstance(made, Mapping | np.ndarray) or is_frame(made) or _is_map_style(made)


def _is_map_style(made: Any) -> bool:
    if any(t.__name__ == "IterableDataset" for t in type(made).__mro__):
        return False  # PyTorch's inherits a __getitem__ that it does not have
    return hasattr(made, "__len__") and hasattr(made, "__getitem__")


def _columns_of(made: Mapping[Any, Any], wanted: Mapping[str, str], name: str) -> Table:
    columns: Columns = {}
    for column, key in wanted.items():
        value = adopt([_part(made, key, name)])
        if not isinstance(value, Box) or value.kind != "array":
            raise DataError(f"{name}: {key!r} is of kind {value.kind!r}, not an array of rows")
        columns[column] = value.value
    return ArrayTable(columns, name)


def _part(made: Mapping[Any, Any], key: str, name: str) -> Any:
    try:
        return made[key]
    except KeyError:
        known = [str(k) for k in made]
        hint = did_you_mean_or_all(key, known)
        raise DataError(f"{name}: there is no {key!r}", hint=hint) from None


class _Stack:
    """Items stacked to columns, of dtypes and shapes that the first item of all sets."""

    def __init__(self, wanted: Mapping[str, str], name: str) -> None:
        self.wanted = wanted
        self.name = name
        self.dtypes: dict[str, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}

    def columns(self, items: Iterator[Any], most: int, row: int) -> Columns:
        """Return the columns of at most ``most`` items.

        Each is copied before the next is asked for.
        """
        found: Columns = {}
        count = 0
        for item in items:
            cells = self._cells(item, row + count)
            for column, dtype, value in self._checked(cells, row + count):
                if column not in found:
                    kind: Any = object if dtype == TEXT else dtype
                    found[column] = np.empty((most, *self.shapes[column]), kind)
                found[column][count] = value
            count += 1
            if count == most:
                break
        if not found:
            return self._empty()
        return {c: a[:count] for c, a in found.items()}

    def _empty(self) -> Columns:
        dtypes: dict[str, Any] = {c: d for c, d in self.dtypes.items() if d != TEXT}
        return {
            c: np.empty((0, *self.shapes.get(c, ())), dtypes.get(c, object)) for c in self.wanted
        }

    def _cells(self, item: Any, row: int) -> Sequence[Any]:
        """Return the values of an item, in the order of the columns."""
        if isinstance(item, Mapping):
            return [_part(item, key, f"{self.name}: row {row + 1}") for key in self.wanted.values()]
        if not isinstance(item, tuple) and not (isinstance(item, list) and len(self.wanted) > 1):
            item = (item,)
        if len(item) != len(self.wanted):
            raise DataError(
                f"{self.name}: row {row + 1} has {len(item)} parts, "
                f"but 'from' names {len(self.wanted)} columns"
            )
        parts: Sequence[Any] = item
        return parts

    def _checked(self, cells: Sequence[Any], row: int) -> Iterator[tuple[str, str, Any]]:
        """Yield each column with its dtype and value; raises DataError where an item is another."""
        for column, cell in zip(self.wanted, cells, strict=True):
            array, why = _as_array(cell)
            dtype = array.dtype.str if array.dtype.kind in "biufcmM" else ""
            if isinstance(cell, str | bytes):
                dtype = TEXT
            if not dtype:
                what = with_article(type(cell).__name__)
                raise DataError(
                    f"{self.name}: row {row + 1}, column {column!r}: {what} is not a "
                    f"number, text or array of numbers{why}"
                )
            known = self.dtypes.setdefault(column, dtype)
            shape = self.shapes.setdefault(column, array.shape)
            if (known, shape) != (dtype, array.shape):
                raise DataError(
                    f"{self.name}: row {row + 1}, column {column!r} is of dtype {dtype} and shape "
                    f"{array.shape}, but the rows before are of {known} and {shape}",
                    hint="convert every row alike",
                )
            yield column, dtype, cell if dtype == TEXT else array


def _as_array(cell: Any) -> tuple[Any, str]:
    """Return a value as an array, of dtype object where it is none; and why, if that was said."""
    try:
        return np.asarray(cell), ""
    except Exception as error:  # a value's own __array__ may raise anything
        return np.empty((), object), f": {error}"


class ItemTable(Table):
    """An object with ``__len__`` and ``__getitem__``; ``__getitems__`` is used if it is there."""

    def __init__(self, items: Any, wanted: Mapping[str, str], name: str, fail: Fail) -> None:
        self.name = name
        self._items = items
        self._fail = fail
        self._stack = _Stack(wanted, name)
        self.rows = self._guarded(lambda: len(items))
        if self.rows == 0:
            raise DataError(f"{name}: there are no rows")
        self._columns(range(1))
        self.dtypes = self._stack.dtypes

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._stack.wanted)

    def slice(self, low: int, high: int, step: int = 1) -> Columns:
        """Return rows by their numbers, evenly."""
        return self._columns(range(low, high, step))

    def take(self, rows: Permutation) -> Columns:
        """Return rows by their numbers."""
        return self._columns(rows.tolist())

    def _columns(self, rows: Sequence[int]) -> Columns:
        many = getattr(self._items, "__getitems__", None)
        items = iter(self._many(many, rows)) if many else self._each(rows)
        return finished(self._stack.columns(items, len(rows), rows[0] if len(rows) else 0))

    def _many(self, many: Callable[[list[int]], Any], rows: Sequence[int]) -> list[Any]:
        found: list[Any] = self._guarded(lambda: list(many(list(rows))))
        if len(found) != len(rows):
            raise DataError(
                f"{self.name}: __getitems__ returned {len(found)} items for {len(rows)} rows",
                hint="expected one item for each row, in the same order",
            )
        return found

    def _each(self, rows: Sequence[int]) -> Iterator[Any]:
        for row in rows:
            yield self._guarded(partial(self._items.__getitem__, row))

    def _guarded(self, get: Callable[[], Any]) -> Any:
        try:
            return get()
        except BaseException as error:
            raise self._fail(error) from error


class ItemStream(Stream):
    """The object that is iterated; ``make`` makes it for each pass."""

    def __init__(
        self,
        make: Callable[[], Any],
        made: Any,
        wanted: Mapping[str, str],
        name: str,
        fail: Fail,
        *,
        by_state: bool = False,
    ) -> None:
        self.name = name
        self.fail = fail
        self.by_state = by_state
        self.stack = _Stack(wanted, name)
        self._make = make
        self._made = [made]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.stack.wanted)

    @property
    def dtypes(self) -> Mapping[str, str]:  # type: ignore[override]
        """The dtype of each column, once a row was read."""
        return self.stack.dtypes

    def open(self, row: int = 0, mark: Any = None, slow: Slow = ignore_slow) -> Cursor:
        """Return a cursor, by the state that ``mark`` holds if that is asked for, else by skipping.

        Raises DataError where there is no state though it is asked for.
        """
        made = self._made.pop() if self._made else self._make()
        if not self.by_state:
            mark = None  # of a run before, which went by it
        try:
            state, items = _begun(made, mark) if self.by_state else (None, iter(made))
        except BaseException as error:
            raise self.fail(error) from error
        if self.by_state and state is None:
            raise DataError(
                f"{self.name} has no state_dict() and load_state_dict() (nor get_state() and "
                "set_state()) for 'resume: state'",
                hint="remove 'resume': it is then read again up to that place",
            )
        cursor = _ItemCursor(self, state, items, row if mark is not None else 0, slow, mark)
        if row and mark is None:
            cursor.skip(row)
        return cursor


def _begun(made: Any, mark: Any) -> tuple[Any, Iterator[Any]]:
    """Return what reads the state, if there is one, and the items from a state on."""
    read = _restored(made, mark)
    items = iter(made)
    return read or _restored(items, mark), items


def _restored(holder: Any, mark: Any) -> Callable[[], Any] | None:
    """Restore the state of ``holder``, and return what reads it; None if it has none."""
    for read, restore in _STATE:
        if hasattr(holder, read) and hasattr(holder, restore):
            if mark is not None:
                getattr(holder, restore)(state_from_json(mark["state"]))
            return getattr(holder, read)  # type: ignore[no-any-return]
    return None


class _ItemCursor(Cursor):
    def __init__(
        self,
        source: ItemStream,
        state: Callable[[], Any] | None,
        items: Iterator[Any],
        row: int,
        slow: Slow,
        mark: Any,
    ) -> None:
        self.row = row
        self._begin = row
        self._mark = mark
        self._source = source
        self._state = state
        self._items = items
        self._slow = slow
        self._owner = os.getpid()

    def read(self, rows: int) -> Columns:
        columns = self._source.stack.columns(self._guarded(), rows, self.row)
        self.row += len(next(iter(columns.values())))
        return columns

    def _guarded(self) -> Iterator[Any]:
        while True:
            try:
                item = next(self._items)
            except StopIteration:
                return
            except BaseException as error:
                raise self._source.fail(error) from error
            finally:
                end_if_forked(self._owner, self._source.name)
            yield item

    def mark(self) -> Any:
        """Return the user's own state.

        At the place that was restored it is the state that was given: a stream of Hugging Face
        returns that of its beginning until it has given a row.
        """
        if self._state is None:
            return None
        if self.row == self._begin and self._mark is not None:
            return self._mark
        try:
            state = self._state()
        except BaseException as error:
            raise self._source.fail(error) from error
        try:
            return {"state": state_to_json(state)}
        except ValueRefusedError as error:
            raise DataError(f"{self._source.name}: {error.message}", hint=error.hint) from error

    def skip(self, rows: int) -> None:
        """Pass over rows, one by one."""
        if rows <= 0:
            return
        start, said = time.monotonic(), False
        wanted = self.row + rows
        for _ in self._guarded():
            self.row += 1
            if self.row == wanted:
                return
            if not said and time.monotonic() - start >= _SLOW_SECONDS:
                said = True
                self._slow(
                    f"{self._source.name} is read again up to row {wanted}, where the run resumes; "
                    "__getitem__ and __len__ would spare it, or 'resume: state' where its "
                    "state_dict() is exact"
                )
        raise DataError(
            f"{self._source.name} ended after {self.row} rows, but {wanted} of them "
            "had been read when this run was saved",
            hint="restore the old data, or start over with --fresh",
        )
