"""Tables of pandas, polars and pyarrow as sources of rows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jobrun.data.call_source import called_source
from jobrun.data.source import Table
from jobrun.errors import DataError, TaskError

COLUMNS: dict[str, Any] = {
    "age": np.arange(6, dtype=np.int16),
    "income": np.arange(6) * 0.5,
    "name": ["a", "b", None, "d", "e", "ü"],
    "flag": [True, False] * 3,
}


def fail(error: BaseException) -> TaskError:
    raise AssertionError(error)


def pandas_frame(columns: dict[str, Any]) -> Any:
    return pytest.importorskip("pandas").DataFrame(columns)


def polars_frame(columns: dict[str, Any]) -> Any:
    return pytest.importorskip("polars").DataFrame(columns)


def arrow_table(columns: dict[str, Any]) -> Any:
    return pytest.importorskip("pyarrow").table(columns)


@pytest.fixture(params=[pandas_frame, polars_frame, arrow_table])
def make(request: pytest.FixtureRequest) -> Callable[[dict[str, Any]], Any]:
    return request.param  # type: ignore[no-any-return]


def read(made: Any, **wanted: str) -> Table:
    found = called_source(lambda: made, wanted, "m:f", fail)
    assert isinstance(found, Table)
    return found


def test_columns_are_read_by_name(make: Callable[[dict[str, Any]], Any]) -> None:
    found = read(make(COLUMNS), x="age", name="name", flag="flag")
    assert (found.rows, found.columns) == (6, ("x", "name", "flag"))
    rows = found.slice(1, 4)
    assert (rows["x"].dtype, rows["x"].tolist()) == (np.int16, [1, 2, 3])
    assert rows["name"].tolist() == ["b", "", "d"]
    assert rows["flag"].tolist() == [False, True, False]
    assert found.take(np.array([5, 0]))["name"].tolist() == ["ü", "a"]
    assert not any(a.flags.writeable for a in rows.values())


def test_a_pattern_makes_a_matrix(make: Callable[[dict[str, Any]], Any]) -> None:
    assert read(make(COLUMNS), m="[ai]*e*").slice(1, 2)["m"].tolist() == [[1.0, 0.5]]


def test_a_column_that_is_not_there(make: Callable[[dict[str, Any]], Any]) -> None:
    with pytest.raises(DataError, match="m:f: there is no column 'agee'") as caught:
        read(make(COLUMNS), x="agee")
    assert "'age'" in caught.value.hint


def test_a_table_without_rows(make: Callable[[dict[str, Any]], Any]) -> None:
    with pytest.raises(DataError, match="the source has no rows"):
        read(make({"a": np.zeros(0)}), x="a")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_common_columns_are_read_without_pyarrow(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(library)
    columns = {k: v for k, v in COLUMNS.items() if k != "name"} | {"name": ["a", "b"] * 3}
    made = {"pandas": pandas_frame, "polars": polars_frame}[library](columns)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    rows = read(made, **{c: c for c in columns}).slice(0, 2)
    assert {c: a.tolist() for c, a in rows.items()} == {
        "age": [0, 1],
        "income": [0.0, 0.5],
        "flag": [True, False],
        "name": ["a", "b"],
    }


def test_other_columns_say_that_they_need_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    pl = pytest.importorskip("polars")
    made = pl.DataFrame({"gap": [1, None], "day": [1, 2]}).cast({"day": pl.Date})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match="read by pyarrow, which is not installed"):
        read(made, x="day")


def test_columns_of_pandas_of_other_dtypes() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "c": pd.Categorical(["u", "v"]),
            "t": pd.date_range("2024-01-01", periods=2, tz="Europe/Berlin"),
            "n": pd.array([1, 2], dtype="Int8"),
            "f": pd.array([1.5, None], dtype="Float32"),
            "gap": pd.array([1, None], dtype="Int8"),
            "odd": [{}, []],
        }
    )
    rows = read(frame, c="c", t="t", n="n", f="f").slice(0, 2)
    assert rows["c"].tolist() == ["u", "v"]
    assert str(rows["t"][0]).startswith("2023-12-31T23:00")
    assert (rows["n"].dtype, rows["f"].dtype) == (np.int8, np.float32)
    assert np.isnan(rows["f"][1])
    with pytest.raises(DataError, match="m:f: row 2, column 'gap': there is no value"):
        read(frame, x="gap")
    with pytest.raises(DataError, match="m:f: row 1, column 'odd': a dict is not a number or text"):
        read(frame, x="odd")
