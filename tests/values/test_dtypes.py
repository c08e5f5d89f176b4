"""Which dtypes can be saved: one rule, of values and of checkpoints."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jobrun.checkpoint.dtypes import describe, dtype_of, storage_of
from jobrun.errors import ValueRefusedError
from jobrun.values.dtypes import MAX_LEVELS, plain_dtype, why_not_saved


def nested(levels: int) -> np.dtype[Any]:
    """A structure in a structure, ``levels`` of them."""
    dtype: np.dtype[Any] = np.dtype("f4")
    for _ in range(levels):
        dtype = np.dtype([("x", dtype)])
    return dtype


SAVED = [
    *map(np.dtype, ("?", "i1", ">u8", "f2", ">f8", "c16", "M8", "m8[3s]", "U0", "S2", "V3")),
    *map(np.dtype, (ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4)),
    np.dtype([]),
    np.dtype([("a", "u1"), ("b", ">f8", (2, 3)), ("c", [("d", ml_dtypes.bfloat16)])]),
    nested(MAX_LEVELS),
]
REFUSED = [
    (np.dtype("O"), "Python objects"),
    (np.dtype([("a", "f4"), ("b", "O")]), "Python objects"),
    (np.dtype([("a", "g", (2,))]), "bits differ"),
    (np.dtype("G"), "bits differ"),
    (np.dtype(ml_dtypes.complex32), "no form on disk"),
    (np.dtype([("a", ml_dtypes.complex32)]), "no form on disk"),
    (np.dtype([("a", "u1"), ("b", "f8")], align=True), "padding"),
    (nested(MAX_LEVELS + 1), "levels deep"),
]


@pytest.mark.parametrize("dtype", SAVED, ids=lambda dtype: f"{dtype!s:.30}")
def test_dtypes_that_are_saved_are_read_back(dtype: np.dtype[Any]) -> None:
    assert why_not_saved(dtype) == ""
    assert dtype_of(describe(dtype)) == dtype
    assert storage_of(dtype).memory.itemsize == dtype.itemsize


@pytest.mark.parametrize(("dtype", "why"), REFUSED, ids=lambda value: f"{value!s:.30}")
def test_dtypes_that_are_refused_have_a_reason(dtype: np.dtype[Any], why: str) -> None:
    assert why in why_not_saved(dtype)
    with pytest.raises(ValueRefusedError, match=why):
        storage_of(dtype)


def test_the_form_that_survives_a_save_can_be_saved() -> None:
    padded = np.zeros(3, np.dtype([("a", "u1"), ("b", "f8")], align=True))
    padded["b"] = 1, 2, 3
    packed = plain_dtype(padded)
    assert why_not_saved(packed.dtype) == ""
    assert packed["b"].tolist() == [1, 2, 3]
