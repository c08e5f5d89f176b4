"""Sparse arrays and matrices of scipy, in all formats.

The arrays of the format as they are: dtypes of the indices, order and explicit zeros are kept.
What is read shares their memory; a matrix of lists (``lil``) or a dict of keys (``dok``) is made
again.  Which places the indices may name is not checked (it would take as long as a product): the
bytes of a checkpoint are verified.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from jobrun.core.late_imports import imported
from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.base import Meta, Plain

__all__ = ["ADAPTERS"]

_COMPRESSED: Final = ("csr", "csc", "bsr")
_FORMATS: Final = (*_COMPRESSED, "coo", "dia", "lil", "dok")


class SparseAdapter:
    """``scipy.sparse.<format>_array`` or ``_matrix``."""

    version = 1

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._format = kind[:3]
        self.name = f"scipy.sparse.{kind}"

    def dump(self, value: Any) -> tuple[Plain, Meta]:
        """Return the arrays of the format, and ``shape``."""
        if type(value).__name__ != self._kind:
            raise ValueRefusedError(
                f"a {type(value).__name__}, which derives from {self._kind}, may hold more than it",
                hint=f"make a {self._kind} of it",
            )
        plain: dict[str, Any] = {"shape": np.array(value.shape, np.int64)}
        if self._format in _COMPRESSED:
            names = ("data", "indices", "indptr")
            return plain | {name: getattr(value, name) for name in names}, {}
        if self._format == "coo":
            return plain | {"data": value.data, "coords": [*value.coords]}, {}
        if self._format == "dia":
            return plain | {"data": value.data, "offsets": value.offsets}, {}
        return plain | (_rows(value) if self._format == "lil" else _items(value)), {}

    def load(self, plain: Plain, meta: Meta) -> Any:
        """Return the array or matrix."""
        kind = getattr(imported("scipy.sparse"), self._kind)
        shape = _shape(plain["shape"])
        data = _array(plain["data"])
        if self._format in _COMPRESSED:
            return self._compressed(kind, shape, data, plain)
        if self._format == "coo":
            coords = tuple(map(_array, plain["coords"]))
            _expect(all(len(c) == len(data) for c in coords) and len(coords) == len(shape))
            made = kind(shape, dtype=data.dtype)
            made.data, made.coords = data, coords
            made.has_canonical_format = False
            return made
        if self._format == "dia":
            offsets = _array(plain["offsets"])
            _expect(data.ndim == 2 and len(data) == len(offsets))
            made = kind(shape, dtype=data.dtype)
            made.data, made.offsets = data, offsets
            return made
        return (_of_rows if self._format == "lil" else _of_items)(kind, shape, data, plain)

    def _compressed(self, kind: Any, shape: tuple[int, ...], data: Any, plain: Plain) -> Any:
        indices, indptr = _array(plain["indices"]), _array(plain["indptr"])
        blocks = data.shape[1:] if self._format == "bsr" else (1, 1)
        _expect(len(blocks) == 2 and min(blocks) > 0 and len(data) == len(indices))
        major = shape[-1] // blocks[1] if self._format == "csc" else shape[0] // blocks[0]
        # A one-dimensional csr_array is one row.
        _expect(len(indptr) == (major if len(shape) == 2 else 1) + 1)
        _expect(int(indptr[0]) == 0 and int(indptr[-1]) <= len(indices))
        if self._format == "bsr":
            made = kind(shape, blocksize=blocks, dtype=data.dtype)
        else:
            made = kind(shape, dtype=data.dtype)
        made.data, made.indices, made.indptr = data, indices, indptr
        return made


def _shape(array: Any) -> tuple[int, ...]:
    shape = tuple(_array(array).tolist())
    _expect(all(type(n) is int and n >= 0 for n in shape))
    return shape


def _array(array: Any) -> Any:
    _expect(isinstance(array, np.ndarray) and array.ndim > 0)
    return array


def _expect(right: bool) -> None:
    if not right:
        raise ValueRefusedError("its arrays are not those of a sparse matrix of this format")


def _rows(value: Any) -> dict[str, Any]:
    """Return the numbers and columns of a matrix of lists, and how many each row has."""
    columns = np.fromiter((c for row in value.rows for c in row), np.int64)
    data = np.array([x for row in value.data for x in row], value.dtype)
    counts = np.array([len(row) for row in value.rows], np.int64)
    return {"data": data, "columns": columns, "counts": counts}


def _of_rows(kind: Any, shape: tuple[int, ...], data: Any, plain: Plain) -> Any:
    columns, counts = _array(plain["columns"]), _array(plain["counts"])
    _expect(len(shape) == 2 and len(counts) == shape[0] and len(columns) == len(data))
    ends = np.cumsum(counts)
    _expect(int(ends[-1] if len(ends) else 0) == len(data) and bool((counts >= 0).all()))
    made = kind(shape, dtype=data.dtype)
    for row, (end, count) in enumerate(zip(ends.tolist(), counts.tolist(), strict=True)):
        made.rows[row] = columns[end - count : end].tolist()
        made.data[row] = data[end - count : end].tolist()
    return made


def _items(value: Any) -> dict[str, Any]:
    """Return the numbers and places of a dict of keys, in its order."""
    places = np.array([*value.keys()], np.int64).reshape(len(value.keys()), len(value.shape))
    return {"data": np.array([*value.values()], value.dtype), "places": places}


def _of_items(kind: Any, shape: tuple[int, ...], data: Any, plain: Plain) -> Any:
    places = _array(plain["places"])
    _expect(places.shape == (len(data), len(shape)) and bool((places < shape).all()))
    made = kind(shape, dtype=data.dtype)
    for place, number in zip(places.tolist(), data, strict=True):
        made[tuple(place) if len(shape) > 1 else place[0]] = number
    return made


_KINDS: Final = {f"{form}_{kind}" for form in _FORMATS for kind in ("array", "matrix")}
ADAPTERS: Final = {f"scipy.sparse._{kind[:3]}.{kind}": SparseAdapter(kind) for kind in _KINDS}
