"""Arrays and tables of pyarrow as values."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pytest
from adapter_contract import ValueAdapterContract, stored, taken

from jobrun.values.views import view, view_plain

pa = pytest.importorskip("pyarrow")


def columns() -> dict[str, Any]:
    """Columns of many types, some with missing values."""
    day = datetime.date(2024, 2, 29)
    moment = datetime.datetime(2024, 2, 29, 12, 30, 1, 5)
    return {
        "int": pa.array([1, 2, 3], pa.int16()),
        "float": pa.array([0.1, -0.0, float("nan")]),
        "half": pa.array(np.array([1, 2, 3], np.float16)),
        "missing": pa.array([1.5, None, 2.5]),
        "bool": pa.array([True, None, False]),
        "text": pa.array(["a", "", "ü"]),
        "large": pa.array(["a", None, "b"], pa.large_string()),
        "view": pa.array(["a", None, "b" * 20], pa.string_view()),
        "bytes": pa.array([b"\x00", None, b"ab"]),
        "fixed": pa.array([b"ab", None, b"cd"], pa.binary(2)),
        "day": pa.array([day, None, day]),
        "time": pa.array([moment, None, moment], pa.timestamp("us", "Europe/Berlin")),
        "clock": pa.array([1, None, 3], pa.time64("ns")),
        "span": pa.array([1, None, 3], pa.duration("s")),
        "category": pa.array(["u", "v", "u"]).dictionary_encode(),
        "list": pa.array([[1], None, [2, 3]]),
        "struct": pa.array([{"a": 1}, None, {"a": 2}]),
        "decimal": pa.array([decimal.Decimal("1.5"), None, decimal.Decimal(2)]),
        "null": pa.nulls(3),
    }


class TestPyarrow(ValueAdapterContract):
    def values(self) -> dict[str, Any]:
        found = columns()
        table = pa.table(found).replace_schema_metadata({"k": "v"})
        return {
            "table": table,
            "twins": pa.Table.from_arrays([found["int"], found["text"]], names=["a", "a"]),
            "none": pa.table({"a": pa.array([], pa.int8()), "b": pa.array([], pa.string())}),
            "nothing": pa.table({}),
            "chunks": pa.chunked_array([[1, 2], [3]]),
        }

    def same(self, a: Any, b: Any) -> bool:
        table = isinstance(a, pa.Table)
        # Of two NaN Arrow says that they differ; where they are is in the bytes.
        first, second = (str(x) for x in (a, b)) if table else (a, b)
        return bool(not table or a.schema.equals(b.schema, check_metadata=True)) and (
            first == second or a.equals(b)
        )


@pytest.mark.parametrize("name", columns())
def test_every_type_and_every_part_of_an_array_comes_back(name: str) -> None:
    for array in (columns()[name], columns()[name][1:], columns()[name][:0]):
        back = view(stored(pa.chunked_array([array])))
        assert back.type == array.type
        assert str(back.to_pylist()) == str(array.to_pylist())
        back.validate(full=True)


def test_numbers_are_arrays_for_those_without_the_library() -> None:
    plain = view_plain(stored(pa.table({"a": [1, 2], "b": [1.5, None]})))
    assert plain["a"].tolist() == [1, 2]
    assert plain["b"]["valid"].tolist() == [True, False]
    assert plain["b"]["values"].tolist() == [1.5, 0]


def test_what_lies_under_missing_values_is_not_saved() -> None:
    valid = pa.py_buffer(b"\x01")
    one, two = (
        pa.Array.from_buffers(pa.int8(), 2, [valid, pa.py_buffer(bytes([7, rest]))])
        for rest in (1, 2)
    )
    assert one.equals(two)
    assert taken(pa.table({"a": one}))[0]["a"]["values"].tolist() == [7, 0]
    assert taken(pa.table({"a": two}))[0]["a"]["values"].tolist() == [7, 0]


def test_reading_shares_the_memory() -> None:
    value = stored(pa.table({"a": np.arange(1000.0), "s": ["x"] * 1000}))
    one, two = view(value), view(value)
    for name in ("a", "s"):
        first, second = (t[name].chunk(0).buffers()[1].address for t in (one, two))
        assert first == second
    assert not one["a"].chunk(0).buffers()[1].is_mutable
