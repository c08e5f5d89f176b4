"""Which columns of a file are read: names, patterns that make matrices, and what is not there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.data.select import (
    Matrices,
    common_dtype,
    expand,
    grouped,
    names_in,
    stacked,
)
from jobrun.data.tables import ArrayTable
from jobrun.errors import DataError

NAMES = ["pixel_2", "pixel_1", "label", "a[1]"]


def test_nothing_wanted_is_all_of_them() -> None:
    assert expand({}, NAMES, "lacks") == {n: n for n in NAMES}


def test_columns_have_names_of_their_own_and_patterns_keep_the_order_of_the_file() -> None:
    plan = expand({"y": "label", "x": "pixel_*", "again": "label"}, NAMES, "lacks")
    assert plan == {"y": "label", "x": ("pixel_2", "pixel_1"), "again": "label"}
    assert names_in(plan) == ["label", "pixel_2", "pixel_1"]


def test_a_name_that_looks_like_a_pattern_is_the_name_first() -> None:
    assert expand({"x": "a[1]"}, NAMES, "lacks") == {"x": "a[1]"}


def test_a_pattern_minds_the_case() -> None:
    with pytest.raises(DataError, match=r"d\.csv has no column 'Pixel\*'"):
        expand({"x": "Pixel*"}, NAMES, "d.csv has no column")


def test_what_is_not_there_has_the_nearest_or_a_list() -> None:
    with pytest.raises(DataError, match=r"^d\.npz holds no array 'labl'") as caught:
        expand({"x": "labl"}, NAMES, "d.npz holds no array")
    assert "'label'" in caught.value.hint
    with pytest.raises(DataError) as caught:
        expand({"x": "zzz"}, [f"c{n}" for n in range(40)], "lacks")
    assert caught.value.hint == "there are " + ", ".join(f"c{n}" for n in range(12)) + ", …"


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.integers(1, 6))
def test_a_matrix_is_its_columns_side_by_side(widths: list[int], rows: int) -> None:
    """Those of one number a row, and those that are matrices or have more axes."""
    shapes: dict[int, tuple[int, ...]] = {0: (), 1: (1,), 2: (2,), 3: (2, 3)}
    columns = {
        f"c{n}": np.random.default_rng(n).random((rows, *shapes[w])) for n, w in enumerate(widths)
    }
    found = stacked(columns, {"m": tuple(columns), "first": "c0"})
    assert found["first"] is columns["c0"]
    wanted = np.array(
        [np.concatenate([a[r].ravel() for a in columns.values()]) for r in range(rows)]
    )
    assert found["m"].tolist() == wanted.tolist()
    assert found["m"].flags.c_contiguous
    assert not found["m"].flags.writeable


def test_a_table_of_matrices() -> None:
    arrays: dict[str, Any] = {"a": np.arange(4), "b": np.arange(4) * 0.5, "t": np.arange(4) > 1}
    table = grouped(ArrayTable, arrays, {"m": ("b", "a"), "t": "t"})
    assert isinstance(table, Matrices)
    assert (table.rows, table.columns) == (4, ("m", "t"))
    assert table.dtypes == {"m": "<f8", "t": "|b1"}
    assert table.slice(1, 4, 2)["m"].tolist() == [[0.5, 1.0], [1.5, 3.0]]
    assert table.take(np.array([3, 0]))["m"].tolist() == [[1.5, 3.0], [0.0, 0.0]]
    assert table.take(np.array([3, 0]))["t"].tolist() == [True, False]


def test_a_table_without_matrices_is_that_of_the_arrays() -> None:
    table = grouped(ArrayTable, {"a": np.arange(3), "b": np.arange(3)}, {"x": "b"})
    assert isinstance(table, ArrayTable)
    assert list(table.arrays) == ["x"]


@pytest.mark.parametrize(
    ("dtypes", "common"),
    [
        (("<i8", "<f8"), "<f8"),
        (("|b1", "|u1"), "|u1"),
        ((">i4", "<i4"), "<i4"),
        (("<f4", "<c8"), "<c8"),
    ],
)
def test_the_dtype_of_a_matrix(dtypes: tuple[str, str], common: str) -> None:
    named = dict(zip("ab", dtypes, strict=True))
    assert common_dtype(named, "ab", "d") == common
    parts = {n: np.zeros(1, d) for n, d in named.items()}
    assert stacked(parts, {"m": ("a", "b")})["m"].dtype.str == common


@pytest.mark.parametrize("dtype", ["text", "<U3", "<M8[s]", "|S2"])
def test_a_matrix_is_of_numbers(dtype: str) -> None:
    with pytest.raises(DataError, match="d: a matrix is of numbers, which column 'b' is not"):
        common_dtype({"a": "<i8", "b": dtype}, "ab", "d")
