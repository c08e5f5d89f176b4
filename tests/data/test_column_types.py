"""Kinds of columns: found from the first values, and held to by all others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.data.column_types import CELL_KINDS, VALUE_KINDS, cell_kind, value_kind


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        (["1", "-2", " 3 "], "<i8"),
        (["1", "2.5"], "<f8"),
        (["1", ""], "<f8"),
        (["1", "NA", "null"], "<f8"),
        (["inf", "-1e-3"], "<f8"),
        (["", "NaN"], "text"),
        ([], "text"),
        (["1", "x"], "text"),
        (["1_000"], "text"),
        (["٣"], "text"),
        (["True"], "text"),
        (["007"], "<i8"),
        ([str(2**63 - 1)], "<i8"),
        ([str(2**63)], "text"),  # a float would not keep all its digits
        ([str(2**53 + 1), ""], "text"),
        ([str(10**400), "NA"], "text"),
        ([str(2**53), "", str(-(2**60))], "<f8"),
        ([str(2**53 + 1), "0.5"], "<f8"),
    ],
)
def test_the_kind_of_cells_is_the_narrowest(cells: list[str], dtype: str) -> None:
    assert cell_kind(cells).dtype == dtype


def test_a_missing_cell_is_nan_or_an_empty_text() -> None:
    assert CELL_KINDS["float"].to_array(["1", "", " NA "]).tolist()[0] == 1.0
    assert np.isnan(CELL_KINDS["float"].to_array(["", "null"])).all()
    assert CELL_KINDS["text"].to_array(["", "NA"]).tolist() == ["", "NA"]
    with pytest.raises(ValueError, match="invalid literal"):
        CELL_KINDS["int"].to_array(["1", ""])


@settings(deadline=None, max_examples=100)
@given(st.lists(st.floats(), min_size=1))
def test_floats_are_read_to_the_bit(values: list[float]) -> None:
    array = CELL_KINDS["float"].to_array([repr(v) for v in values])
    assert array.dtype == np.float64
    for found, value in zip(array.tolist(), values, strict=True):
        assert found == value or (math.isnan(found) and math.isnan(value))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.text(st.sampled_from("0123456789.-+eE _nNaAiIfF٣")), min_size=1, max_size=4))
def test_any_part_of_a_column_has_the_dtype_of_the_whole(cells: list[str]) -> None:
    """The dtype of a batch does not depend on which rows are in it."""
    kind = cell_kind(cells)
    for low in range(len(cells)):
        part = kind.to_array(cells[low:])
        assert (part.dtype.str if kind.dtype != "text" else "text") == kind.dtype
        assert len(part) == len(cells) - low


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2], "<i8"),
        ([1, 2.5], "<f8"),
        ([1, None], "<f8"),
        ([True, False], "|b1"),
        (["a", "b"], "text"),
        ([[1, 2], [3, 4]], "<i8"),
        ([[1, 2.5]], "<f8"),
        ([[[True]]], "|b1"),
        ([None, None], "<f8"),
        ([2**60, None], "<f8"),
        ([2**53 + 1, 0.5], "<f8"),
    ],
)
def test_the_kind_of_values_is_their_type(values: list[Any], dtype: str) -> None:
    kind = value_kind(values)
    assert kind.dtype == dtype
    assert len(kind.to_array(values)) == len(values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, "a"], "not of one kind"),
        ([True, 1], "not of one kind"),
        ([{"a": 1}], "not of one kind"),
        ([2**64], "beyond 64 bits"),
        ([["a"]], "not of numbers"),
        ([[1], [1, 2]], "inhomogeneous"),
        ([None, "a"], "not of one kind"),
        ([2**53 + 1, None], "would round its numbers"),
    ],
)
def test_values_of_no_kind(values: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        value_kind(values)


def test_lists_are_held_to_their_shape_and_type() -> None:
    kind = value_kind([[1, 2], [3, 4]])
    assert kind.to_array([]).shape == (0, 2)
    for wrong in ([[1, 2, 3]], [[1.5, 2.0]], [1], [["a", "b"]]):
        with pytest.raises(ValueError, match="another shape or type"):
            kind.to_array(wrong)
    assert value_kind([[0.5]]).to_array([[1]]).dtype == np.float64


def test_the_first_wrong_value_is_found() -> None:
    assert CELL_KINDS["int"].first_wrong(["1", "2", "x", "y"]) == 2
    assert CELL_KINDS["int"].first_wrong([str(2**63), "1"]) == 0
    assert VALUE_KINDS["float"].first_wrong([1, None, True]) == 2
