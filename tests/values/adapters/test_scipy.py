"""Sparse arrays and matrices of scipy as values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from adapter_contract import ValueAdapterContract, stored

from jobrun.values.views import view

sparse = pytest.importorskip("scipy.sparse")

FORMATS = ["csr", "csc", "bsr", "coo", "dia", "lil", "dok"]


def dense(dtype: Any = np.float64) -> Any:
    rng = np.random.default_rng(3)
    return (rng.integers(1, 9, (6, 4)) * (rng.random((6, 4)) < 0.4)).astype(dtype)


class Named(sparse.csr_array):  # type: ignore[misc]
    """A sparse array with something more to it."""


class TestScipy(ValueAdapterContract):
    def values(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for form in FORMATS:
            for kind in ("array", "matrix"):
                make = getattr(sparse, f"{form}_{kind}")
                found[f"{form}_{kind}"] = make(dense())
                found[f"{form}_{kind}_empty"] = make((5, 0), dtype=np.float32)
                found[f"{form}_{kind}_int8"] = make(dense(np.int8))
                found[f"{form}_{kind}_complex"] = make(dense(np.complex64))
        zeros = sparse.csr_array(dense())
        zeros.data[1] = 0
        found["zeros"] = zeros
        found["unsorted"] = sparse.csr_array(([1.0, 2.0], [2, 0], [0, 2, 2]), shape=(2, 3))
        found["doubled"] = sparse.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(2, 3))
        found["one_dimension"] = sparse.csr_array(np.array([0.0, 1.0, 0.0, 2.0]))
        found["line"] = sparse.coo_array(np.array([0.0, 1.0, 0.0, 2.0]))
        wide = sparse.csr_array(dense())
        wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
        found["wide"] = wide
        found["blocks"] = sparse.bsr_array(dense(), blocksize=(2, 2))
        return found

    def refused(self) -> dict[str, tuple[Any, str]]:
        return {"derived": (Named(dense()), "Named, which derives from csr_array")}

    def same(self, a: Any, b: Any) -> bool:
        same_kind = type(a) is type(b) and a.shape == b.shape and a.dtype == b.dtype
        return same_kind and bool((a.toarray() == b.toarray()).all()) and a.nnz == b.nnz


@pytest.mark.parametrize("form", FORMATS)
def test_products_have_the_same_bits(form: str) -> None:
    matrix = getattr(sparse, f"{form}_array")(dense())
    back = view(stored(matrix))
    x = np.random.default_rng(1).random(4)
    assert (back @ x).tobytes() == (matrix @ x).tobytes()


def test_reading_shares_memory_that_cannot_be_written() -> None:
    value = stored(sparse.csr_array(dense()))
    one, two = view(value), view(value)
    assert np.shares_memory(one.data, two.data)
    with pytest.raises(ValueError, match="read-only"):
        one.data[0] = 7
    with pytest.raises(ValueError, match="read-only"):
        one *= 2
