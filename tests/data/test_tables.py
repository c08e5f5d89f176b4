"""Tables of arrays: the columns of blobs, and their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jobrun.data.tables import blob_columns, check_rows
from jobrun.errors import DataError
from jobrun.values.adoption import adopt
from jobrun.values.boxes import Value


def blobs(**objects: Any) -> dict[str, Value]:
    return {name: adopt([obj]) for name, obj in objects.items()}


def test_columns_are_the_arrays_of_blobs() -> None:
    store = blobs(data=np.arange(6).reshape(3, 2), labels=np.arange(3))
    columns = blob_columns({"x": "data", "y": "labels"}, store.__getitem__)
    assert list(columns) == ["x", "y"]
    assert columns["x"] is store["data"].value


@pytest.mark.parametrize(
    ("obj", "what"),
    [
        (np.array(3.0), "a single value"),
        (3.0, "kind 'float'"),
        ([np.zeros(3)], "kind 'list'"),
        ({"a": np.zeros(3)}, "kind 'dict'"),
        (None, "kind 'none'"),
        (np.array([{}], object), "kind 'opaque'"),
    ],
)
def test_a_column_is_an_array_of_rows(obj: Any, what: str) -> None:
    with pytest.raises(DataError, match=f"column 'x': blob 'b' is .*{what}"):
        blob_columns({"x": "b"}, blobs(b=obj).__getitem__)


def test_rows_are_counted() -> None:
    assert check_rows({"x": np.zeros((3, 2)), "y": np.zeros(3)}, "p") == 3


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": np.zeros(3), "y": np.zeros(2)}, "the columns differ in rows: x 3, y 2"),
        ({"x": np.zeros((0, 4))}, "no rows"),
        ({}, "no rows"),
        ({"x": np.array(1.0)}, "'x' is a single value"),
    ],
)
def test_rows_that_cannot_be(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=f"p: .*{message}"):
        check_rows(columns, "p")
