"""Tables, series and indexes of pandas as values."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import pytest
from adapter_contract import ValueAdapterContract, stored

from jobrun.errors import ValueRefusedError
from jobrun.values.adapted import take_apart
from jobrun.values.views import view, view_plain

pd = pytest.importorskip("pandas")


def columns() -> dict[str, Any]:
    """Columns of many dtypes, some with missing values."""
    return {
        "int": np.array([1, 2, 3], np.int16),
        "float": [0.1, -0.0, np.nan],
        "bool": [True, False, True],
        "complex": [1j, 2, 3],
        "text": ["a", None, "ü"],
        "object": pd.Series(["a", None, np.nan], dtype=object),
        "python": pd.array(["a", None, "b"], dtype=pd.StringDtype("python")),
        "Int64": pd.array([1, None, 3], dtype="Int64"),
        "Float32": pd.array([1.5, None, 3], dtype="Float32"),
        "boolean": pd.array([True, None, False], dtype="boolean"),
        "category": pd.Categorical(["u", None, "v"], ["v", "u"], ordered=True),
        "levels": pd.Categorical([3, 1, 3]),
        "time": pd.to_datetime(["2024-02-29", None, "2024-03-01"]),
        "zoned": pd.date_range("2024-03-30", periods=3, tz="Europe/Berlin"),
        "span": pd.to_timedelta([1, None, 3], unit="s"),
        "period": pd.period_range("2024-01", periods=3, freq="M"),
        "interval": pd.interval_range(0.0, 3.0),
    }


def arrow_columns() -> dict[str, Any]:
    pa = pytest.importorskip("pyarrow")
    return {
        "string": pd.array(["a", None, "b"], dtype=pd.StringDtype("pyarrow")),
        "arrow": pd.array([1, None, 3], dtype=pd.ArrowDtype(pa.int8())),
        "lists": pd.array([[1], None, [2, 3]], dtype=pd.ArrowDtype(pa.list_(pa.int64()))),
    }


class Derived(pd.DataFrame):  # type: ignore[misc]
    """A table with something more to it."""


class TestPandas(ValueAdapterContract):
    def values(self) -> dict[str, Any]:
        frame = pd.DataFrame({**columns(), **arrow_columns()})
        rows = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)], names=["k", None])
        twins = pd.DataFrame(np.arange(6.0).reshape(3, 2), columns=["a", "a"])
        numbered = pd.DataFrame(np.arange(6).reshape(3, 2), index=[3, 1, 2])
        noted = pd.DataFrame({"a": [1]}).set_flags(allows_duplicate_labels=False)
        noted.attrs = {"unit": "m", "list": [1, 2]}
        return {
            "frame": frame,
            "multi": pd.DataFrame({"x": [1.0, 2.0, 3.0]}, index=rows),
            "twins": twins,
            "numbered": numbered,
            "pivot": pd.DataFrame(np.eye(3), index=["a", "b", "c"], columns=rows),
            "daily": pd.DataFrame({"x": [1, 2]}, index=pd.date_range("2024", periods=2, freq="D")),
            "noted": noted,
            "rows": pd.DataFrame(index=range(5)),
            "nothing": pd.DataFrame(),
            "none": frame.iloc[:0],
            "series": pd.Series([1.5, 2.5], index=["a", "b"], name=("x", 1)),
            "unnamed": pd.Series(["a", "b"]),
            "index": pd.Index([3, 1, 2], name="k"),
            "range": pd.RangeIndex(2, 9, 3),
            "categories": pd.CategoricalIndex(["a", "b", "a"]),
            "levels": rows,
        }

    def refused(self) -> dict[str, tuple[Any, str]]:
        return {
            "object": (
                pd.DataFrame({"a": [1, 2], "odd": ["x", decimal.Decimal(1)]}),
                "column 'odd' holds Python objects: row 1 is a Decimal, not a string",
            ),
            "sparse": (
                pd.DataFrame({"s": pd.arrays.SparseArray([0, 0, 1])}),
                "column 's' is of dtype Sparse[int64, 0]",
            ),
            "derived": (Derived({"a": [1]}), "a Derived, which derives from DataFrame"),
        }

    def same(self, a: Any, b: Any) -> bool:
        if isinstance(a, pd.Index):
            pd.testing.assert_index_equal(a, b, exact=True)
        elif isinstance(a, pd.Series):
            pd.testing.assert_series_equal(a, b, check_exact=True)
        else:
            pd.testing.assert_frame_equal(
                a, b, check_exact=True, check_freq=True, check_column_type=True
            )
            assert a.attrs == b.attrs
            assert a.flags.allows_duplicate_labels == b.flags.allows_duplicate_labels
        return True


def test_missing_strings_are_the_ones_they_were() -> None:
    back = view(stored(pd.Series(["a", None, np.nan, pd.NA], dtype=object)))
    assert back[1] is None
    assert isinstance(back[2], float)
    assert back[3] is pd.NA


def test_columns_are_arrays_for_those_without_the_library() -> None:
    plain = view_plain(stored(pd.DataFrame({"age": [1, 2], "name": ["a", "b"]})))
    assert plain["data"]["age"].tolist() == [1, 2]
    assert [*plain["data"]] == ["age", "name"]


def test_reading_shares_memory_that_cannot_be_written() -> None:
    value = stored(pd.DataFrame({"a": np.arange(1000.0)}))
    one, two = view(value), view(value)
    assert np.shares_memory(one["a"].to_numpy(), two["a"].to_numpy())
    with pytest.raises(ValueError, match="read-only"):
        one.loc[0, "a"] = 9.0


def test_what_lies_under_missing_values_is_not_saved() -> None:
    mask = np.array([False, True])
    forms = [
        take_apart(pd.Series(pd.arrays.IntegerArray(np.array([7, rest]), mask))) for rest in (1, 2)
    ]
    assert [form[0]["data"]["values"].tolist() for form in forms if form] == [[7, 0], [7, 0]]


def test_a_zone_that_is_not_known_by_name_is_refused() -> None:
    import datetime

    zone = datetime.timezone(datetime.timedelta(hours=2), "ours")
    with pytest.raises(ValueRefusedError, match="time zone 'ours' of column 't'"):
        take_apart(pd.DataFrame({"t": pd.date_range("2024", periods=2, tz=zone)}))
