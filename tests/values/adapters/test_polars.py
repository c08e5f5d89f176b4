"""Tables and series of polars as values."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest
from adapter_contract import ValueAdapterContract, stored, taken

from jobrun.values.views import view, view_plain

pl = pytest.importorskip("polars")


class Derived(pl.DataFrame):  # type: ignore[misc]
    """A table with something more to it."""


def frame() -> Any:
    day = datetime.date(2024, 2, 29)
    moment = datetime.datetime(2024, 2, 29, 12, 30, 1, 5)
    zoned = pl.Series([moment, None, moment]).dt.replace_time_zone("Europe/Berlin")
    return pl.DataFrame(
        {
            "int": pl.Series([1, 2, 3], dtype=pl.Int16),
            "float": [0.1, -0.0, float("nan")],
            "missing": pl.Series([1.5, None, 2.5], dtype=pl.Float32),
            "bool": [True, None, False],
            "text": ["a", None, "ü" * 30],
            "bytes": [b"\x00", None, b"ab"],
            "category": pl.Series(["u", None, "v"], dtype=pl.Categorical),
            "enum": pl.Series(["u", None, "v"], dtype=pl.Enum(["v", "u"])),
            "day": [day, None, day],
            "time": pl.Series([moment, moment, moment], dtype=pl.Datetime("ms")),
            "zoned": zoned,
            "clock": [datetime.time(1, 2), None, datetime.time(3)],
            "span": [datetime.timedelta(seconds=1), None, datetime.timedelta(2)],
            "list": [[1], None, [2, 3]],
            "struct": [{"a": 1}, None, {"a": 2}],
            "decimal": pl.Series([1, None, 2], dtype=pl.Decimal(10, 2)),
            "null": [None, None, None],
        }
    )


class TestPolars(ValueAdapterContract):
    def values(self) -> dict[str, Any]:
        return {
            "frame": frame(),
            "none": frame().clear(),
            "nothing": pl.DataFrame(),
            "joined": pl.concat([frame(), frame()], rechunk=False),
            "part": frame()[1:],
            "chosen": frame().filter(pl.col("int") > 1),
            "series": pl.Series("x", [1.5, 2.5]),
            "strings": pl.Series("", ["a", "b"]),
        }

    def refused(self) -> dict[str, tuple[Any, str]]:
        objects = pl.DataFrame({"a": [1], "odd": pl.Series([object()], dtype=pl.Object)})
        return {
            "objects": (objects, "column 'odd' is of dtype Object"),
            "derived": (Derived({"a": [1]}), "a Derived, which derives from DataFrame"),
        }

    def same(self, a: Any, b: Any) -> bool:
        if isinstance(a, pl.Series):
            return bool(a.dtype == b.dtype and a.name == b.name and a.equals(b))
        return bool(a.schema == b.schema and a.equals(b))


def test_numbers_are_arrays_for_those_without_the_library() -> None:
    plain = view_plain(stored(pl.DataFrame({"a": [1, 2], "b": [1.5, None]})))
    assert plain["a"].tolist() == [1, 2]
    assert plain["b"]["valid"].tolist() == [True, False]
    assert plain["b"]["values"].tolist() == [1.5, 0]


def test_reading_shares_the_memory_and_a_change_is_of_the_task_alone() -> None:
    value = stored(pl.DataFrame({"a": np.arange(1000.0)}))
    one, two = view(value), view(value)
    assert np.shares_memory(one["a"].to_numpy(), two["a"].to_numpy())
    one[0, "a"] = 7.0
    assert two[0, "a"] == 0.0
    assert view(value)[0, "a"] == 0.0
    assert taken(one)[0]["a"][0] == 7.0
