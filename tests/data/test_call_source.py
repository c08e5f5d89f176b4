"""Sources made by functions: columns, objects of items, iterables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import jobrun.data.call_source as module
from jobrun.data.call_source import called_source
from jobrun.data.source import Source, Stream, Table, finished
from jobrun.errors import DataError, TaskError


def fail(error: BaseException) -> TaskError:
    return TaskError(f"failed: {error}")


def source(make: Callable[[], Any], *columns: str) -> Source:
    return called_source(make, {c: c for c in columns or ("x",)}, "job:rows", fail)


def stream(make: Callable[[], Any], *columns: str, by_state: bool = False) -> Stream:
    wanted = {c: c for c in columns or ("x",)}
    found = called_source(make, wanted, "job:rows", fail, by_state=by_state)
    assert isinstance(found, Stream)
    return found


def table(made: Any, *columns: str) -> Table:
    found = source(lambda: made, *columns)
    assert isinstance(found, Table)
    return found


def lists(columns: Any) -> dict[str, Any]:
    return {c: a.tolist() for c, a in finished(columns).items()}


class Dataset:
    """As PyTorch's of map style."""

    def __init__(self, rows: int = 5) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> Any:
        if index >= self.rows:
            raise IndexError(index)
        return np.full(2, index, np.float32), index, f"n{index}"


class Stateful:
    """An iterator with a state of its own, which draws from it."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.at = 0

    def __iter__(self) -> Stateful:
        return self

    def __next__(self) -> int:
        if self.at == self.rows:
            raise StopIteration
        self.at += 1
        return self.at * 10

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


def test_a_dict_of_arrays_and_an_array_are_columns() -> None:
    found = table({"x": np.arange(3), "y": [[1], [2], [3]], "z": 1}, "x")
    assert (found.rows, found.columns) == (3, ("x",))
    assert table(np.arange(4)).slice(1, 3)["x"].tolist() == [1, 2]
    with pytest.raises(DataError, match="there is no 'xx'") as caught:
        table({"x": np.arange(3)}, "xx")
    assert "'x'" in caught.value.hint
    with pytest.raises(DataError, match="differ in rows"):
        table({"x": np.arange(3), "y": np.arange(4)}, "x", "y")


def test_an_object_of_items_is_a_table() -> None:
    found = table(Dataset(), "v", "i", "t")
    assert found.rows == 5
    assert found.dtypes == {"v": "<f4", "i": "<i8", "t": "text"}
    columns = found.take(np.array([3, 0]))
    assert {c: a.tolist() for c, a in columns.items()} == {
        "v": [[3, 3], [0, 0]],
        "i": [3, 0],
        "t": ["n3", "n0"],
    }
    assert columns["v"].dtype == np.float32
    assert not any(a.flags.writeable for a in columns.values())
    assert found.slice(1, 5, 3)["i"].tolist() == [1, 4]


def test_items_are_fetched_at_once_where_that_can_be() -> None:
    class Batched(Dataset):
        def __getitems__(self, rows: list[int]) -> list[Any]:
            asked.append(rows)
            return [self[r] for r in rows]

    asked: list[list[int]] = []
    table(Batched(), "v", "i", "t").take(np.array([4, 2]))
    assert asked[-1] == [4, 2]


def test_items_that_are_fetched_at_once_are_one_for_each_row() -> None:
    class Short(Dataset):
        def __getitems__(self, rows: list[int]) -> list[Any]:
            return [self[r] for r in rows if r != 2]

    found = table(Short(), "v", "i", "t")
    assert found.take(np.array([1, 4]))["i"].tolist() == [1, 4]
    with pytest.raises(DataError, match="__getitems__ returned 2 items for 3 rows"):
        found.take(np.array([1, 2, 4]))


def test_items_may_be_dicts_tuples_or_single_values() -> None:
    dicts = [{"x": 1, "y": [1.0, 2.0]}, {"y": [3.0, 4.0], "x": 2}]
    assert lists(table(dicts, "y", "x").slice(0, 2)) == {"y": [[1, 2], [3, 4]], "x": [1, 2]}
    assert lists(table([(1, 2), (3, 4)], "a", "b").slice(0, 2)) == {"a": [1, 3], "b": [2, 4]}
    assert lists(table([[1, 2], [3, 4]], "a").slice(0, 2)) == {"a": [[1, 2], [3, 4]]}
    assert lists(table([(1,), (2,)], "a").slice(0, 2)) == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "there are no rows"),
        ([(1, 2)], "row 1 has 2 parts, but 'from' names 1"),
        ([{"y": 1}], "row 1: there is no 'x'"),
        ([None], "row 1, column 'x': a NoneType"),
        (
            [1, 2.5],
            "row 2, column 'x' is of dtype <f8 and shape .*, but the rows .* <i8",
        ),
        ([[1], [1, 2]], r"row 2, column 'x' is of dtype <i8 and shape \(2,\)"),
        ([[[1], [1, 2]]], r"row 1, column 'x': a list is not a number, .* inhomogeneous"),
    ],
)
def test_items_that_are_no_rows(items: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"job:rows: {message}"):
        table(items).slice(0, 2)
    if items:
        with pytest.raises(DataError, match=f"job:rows: {message}"):
            stream(lambda: iter(items)).open().read(2)


def test_something_else_is_refused_with_what_would_do() -> None:
    for made in (None, 3, object()):
        with pytest.raises(DataError, match="cannot be read row by row") as caught:
            table(made)
        assert "iterable" in caught.value.hint


def test_a_stream_is_made_anew_for_each_pass_and_skipped_through() -> None:
    calls = []

    def rows() -> Iterator[int]:
        calls.append(1)
        yield from range(5)

    found = stream(rows)
    for _ in range(2):
        cursor = found.open()
        assert lists(cursor.read(3)) == {"x": [0, 1, 2]}
        assert cursor.mark() is None
        assert lists(cursor.read(3)) == {"x": [3, 4]}
        assert lists(cursor.read(3)) == {"x": []}
    assert len(calls) == 2
    assert lists(found.open(3).read(9)) == {"x": [3, 4]}
    with pytest.raises(DataError, match="ended after 5 rows, but 7"):
        found.open(7)


def test_an_iterable_dataset_is_a_stream_though_it_inherits_getitem() -> None:
    class IterableDataset:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            raise NotImplementedError

        def __iter__(self) -> Iterator[int]:
            return iter((1, 2))

    assert lists(stream(IterableDataset).open().read(3)) == {"x": [1, 2]}


def test_a_state_of_its_own_restores_an_iterator_without_skipping() -> None:
    found = stream(lambda: Stateful(6), by_state=True)
    cursor = found.open()
    cursor.read(4)
    mark = cursor.mark()
    assert mark == {"state": {"at": 4}}
    cursor.read(1)
    again = stream(lambda: Stateful(6), by_state=True).open(4, mark)
    assert again.row == 4
    assert lists(again.read(5)) == {"x": [50, 60]}


def test_an_iterable_that_keeps_the_state_of_its_iteration() -> None:
    class Loader:
        """As torchdata's StatefulDataLoader: the state is loaded, then it is iterated."""

        def __init__(self) -> None:
            self.at = 0

        def __iter__(self) -> Iterator[int]:
            while self.at < 4:
                self.at += 1
                yield self.at

        def state_dict(self) -> dict[str, int]:
            return {"at": self.at}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.at = state["at"]

    cursor = stream(Loader, by_state=True).open()
    cursor.read(1)
    again = stream(Loader, by_state=True).open(1, cursor.mark())
    assert lists(again.read(9)) == {"x": [2, 3, 4]}


def test_a_state_that_nobody_asked_for_is_neither_saved_nor_used() -> None:
    class Fetching(Stateful):
        """As a loader with workers: its state is that of what was fetched, not of what was read."""

        def state_dict(self) -> dict[str, Any]:
            return {"at": self.at + 2}

    cursor = stream(lambda: Fetching(6)).open()
    cursor.read(3)
    assert cursor.mark() is None
    # A run that was saved before, by its state, is brought back by reading it again.
    again = stream(lambda: Fetching(6)).open(3, {"state": {"at": 5}})
    assert again.row == 3
    assert lists(again.read(9)) == {"x": [40, 50, 60]}


def test_without_a_state_in_the_checkpoint_it_is_read_again() -> None:
    """The run before was not resumed by state."""
    again = stream(lambda: Stateful(6), by_state=True).open(4, None)
    assert lists(again.read(9)) == {"x": [50, 60]}
    assert again.mark() == {"state": {"at": 6}}


def test_what_has_no_state_cannot_be_resumed_by_it() -> None:
    with pytest.raises(DataError, match=r"job:rows has no state_dict\(\)"):
        stream(lambda: iter(range(3)), by_state=True).open()
    for made in ({"x": np.arange(3)}, np.arange(3), Dataset()):
        with pytest.raises(DataError, match="its rows can be read in any order") as caught:
            stream(lambda made=made: made, by_state=True)
        assert caught.value.hint == "remove 'resume'"


def test_a_state_that_cannot_be_saved_is_an_error() -> None:
    class Odd(Stateful):
        def state_dict(self) -> dict[str, Any]:
            return {"at": [object()]}

    cursor = stream(lambda: Odd(3), by_state=True).open()
    with pytest.raises(DataError, match=r"its state\['at'\]\[0\] is an object, which cannot"):
        cursor.mark()


def test_a_state_may_be_that_of_an_iterator_of_grain() -> None:
    class Walk:
        def __init__(self) -> None:
            self.at = 0

        def __iter__(self) -> Walk:
            return self

        def __next__(self) -> int:
            if self.at == 6:
                raise StopIteration
            self.at += 1
            return self.at * 10

        def get_state(self) -> bytes:
            return bytes([self.at])

        def set_state(self, state: bytes) -> None:
            self.at = state[0]

    cursor = stream(Walk, by_state=True).open()
    cursor.read(2)
    mark = json.loads(json.dumps(cursor.mark()))
    again = stream(Walk, by_state=True).open(2, mark)
    assert lists(again.read(9)) == {"x": [30, 40, 50, 60]}


def test_an_item_that_is_used_again_by_its_maker_is_copied_first() -> None:
    def rows() -> Iterator[Any]:
        buffer = np.zeros(2)
        for number in range(3):
            buffer[:] = number
            yield buffer

    assert lists(stream(rows).open().read(3)) == {"x": [[0, 0], [1, 1], [2, 2]]}


def test_errors_of_the_user_are_told_as_such() -> None:
    def rows() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    cursor = stream(rows).open()
    with pytest.raises(TaskError, match="failed: no more"):
        cursor.read(2)

    class Bad(Dataset):
        def __getitem__(self, index: int) -> Any:
            raise KeyError("absent")

    with pytest.raises(TaskError, match="failed: 'absent'"):
        table(Bad())

    class Lazy(Dataset):
        def __getitems__(self, rows: list[int]) -> Iterator[Any]:
            yield from map(self.__getitem__, rows)

    with pytest.raises(TaskError, match="failed: 9"):
        table(Lazy(), "v", "i", "t").take(np.array([1, 9]))


def test_skipping_that_takes_a_while_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = stream(lambda: iter(range(100)))
    said: list[str] = []
    found.open(50, None, said.append)
    assert said == []
    monkeypatch.setattr(module, "_SLOW_SECONDS", 0.0)
    stream(lambda: iter(range(100))).open(50, None, said.append)
    assert len(said) == 1
    assert "up to row 50" in said[0]
    assert "state_dict" in said[0]
