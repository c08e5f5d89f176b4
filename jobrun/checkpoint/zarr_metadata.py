"""Leaves as zarr v3 arrays: the form of each kind, and the metadata.

A leaf of a blob is one zarr array.  Its kind and true dtype are in the attribute ``jobrun``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isfinite
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jobrun.checkpoint.chunk_grid import Chunk, Grid
from jobrun.checkpoint.codecs import Compressor, array_codecs, parse_codecs
from jobrun.checkpoint.dtypes import BYTES, DType, describe, dtype_of, storage_of, swapped
from jobrun.checkpoint.fill_value import from_fill, to_fill
from jobrun.checkpoint.manifest import META, File, group_meta
from jobrun.core import crc32c
from jobrun.core.json_floats import SPECIAL
from jobrun.errors import DamagedError, ValueRefusedError
from jobrun.model.policy import Compress
from jobrun.storage.bounded_json import parse_json
from jobrun.values.boxes import Box

__all__ = ["Form", "Layout", "Stored", "array_meta", "filled_box", "store", "tree_form"]

Array = npt.NDArray[Any]

_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_SHOWN = 80
_LONG_TEXT = 1 << 20
"""Characters above which a string has chunks: metadata are read as a whole, up to a limit."""
_SHORT_TEXT = 200
"""Characters of a string up to which it stands in the manifest too, which is read as a whole."""
_DOUBLE = np.dtype("<f8")
_POINT = Grid.of((), 0)
"""The grid of values without chunks."""

_FILL, _AFTER_FILL = b'"fill_value":', b',"codecs":'
"""The bytes before and after the fill value in the metadata of an array."""

_LONG_FRAME = 4096
"""Bytes of metadata above which their layout is not kept for the next leaf."""

_KEYS = {"name": "v2", "configuration": {"separator": "."}}


class Form(NamedTuple):
    """The stored form of a leaf or a tree: everything but the bytes of its chunks.

    ``kind``, ``dtype`` (described) and ``shape`` go into the manifest, ``meta`` into the file
    ``file``, a ``zarr.json``; ``codec`` compresses the chunks, which hold elements of dtype
    ``memory``.  ``value`` is the fill value, if the manifest is to hold it too.
    """

    kind: str
    dtype: Any
    shape: tuple[int, ...] | None
    meta: bytes
    file: File
    chunks: Sequence[Chunk] = ()
    memory: DType | None = None
    codec: Compressor | None = None
    value: Any = None

    @property
    def chunk_size(self) -> int:
        """The bytes of a chunk before compression: all are padded to one length."""
        return self.chunks[0].payload if self.chunks else 0

    @classmethod
    def of(
        cls, kind: str, dtype: Any, shape: tuple[int, ...] | None, meta: bytes, value: Any = None
    ) -> Form:
        """Return the form of a value without chunks, or of a tree."""
        return cls(kind, dtype, shape, meta, _file(meta), value=value)


class Stored(NamedTuple):
    """A leaf to store: ``array`` holds the bytes of the chunks; None if there are none."""

    form: Form
    array: Array | None = None


def store(box: Box, rule: Compress | None = None, rows: int | None = None) -> Stored:
    """Return the stored form of a leaf; ``rule`` says how an array is compressed.

    ``rows`` are those of the first axis in each chunk, if they are not to be chosen here.

    Raises ValueRefusedError if it cannot be stored.
    """
    kind, value = box.kind, box.value
    if kind == "array":
        return _store_array(kind, value, value.dtype, rule, rows)
    if kind == "none":
        return _store_filled(kind, None, "bool", False)
    if kind == "bool":
        return _store_filled(kind, None, "bool", value)
    if kind == "int":
        return _store_filled(kind, None, "int64" if value < 1 << 63 else "uint64", value)
    if kind == "float":
        return _store_array(kind, np.array(value, "f8"), None)
    if kind == "str":
        return _store_text(kind, value, None)
    if kind == "scalar":
        return _store_scalar(value)
    raise ValueRefusedError(f"a value of kind {kind!r} cannot be saved")


def _store_scalar(value: Any) -> Stored:
    if isinstance(value, np.str_):
        return _store_text("scalar", str.__str__(value), f"<U{len(value)}")
    if isinstance(value, np.bytes_) and (not value or value.endswith(b"\0")):
        # As an array of dtype S it would lose the zero bytes at its end.
        return _store_bytes("scalar", bytes(value), f"|S{len(value)}")
    return _store_array("scalar", np.array(value, value.dtype), value.dtype)


def _store_text(kind: str, text: str, dtype: str | None) -> Stored:
    surrogates = any("\ud800" <= c <= "\udfff" for c in text)  # which zarr strings cannot hold
    if surrogates or len(text) > _LONG_TEXT:
        return _store_bytes(kind, text.encode("utf-8", "surrogatepass"), dtype)
    return _store_filled(kind, dtype, "string", text)


def _store_bytes(kind: str, data: bytes, dtype: str | None) -> Stored:
    array = np.frombuffer(data, np.uint8)
    grid = Grid.of(array.shape, 1)
    meta = array_meta(kind, dtype, grid, BYTES, 0)
    form = Form(kind, dtype, array.shape, meta, _file(meta), tuple(grid), array.dtype)
    return Stored(form, array if data else None)


def _store_filled(kind: str, dtype: Any, data_type: Any, fill: Any) -> Stored:
    if isinstance(dtype, (str, NoneType)) and isinstance(data_type, str):
        before, after = _filled_meta(kind, dtype, data_type)
        text = repr(fill) if type(fill) is float or type(fill) is int else _encode(fill)
        meta = b"%s%s%s" % (before, text.encode("ascii"), after)
    else:
        meta = array_meta(kind, dtype, _POINT, data_type, fill)
    short = type(fill) is not str or len(fill) <= _SHORT_TEXT
    return Stored(Form.of(kind, dtype, (), meta, fill if short else None))


@lru_cache(maxsize=1024)
def _filled_meta(kind: str, dtype: str | None, data_type: str) -> tuple[bytes, bytes]:
    """Return the bytes before and after the value, which alone differs between many scalars."""
    mark = b'"fill_value":'
    before, _, after = array_meta(kind, dtype, _POINT, data_type, 0).partition(mark + b"0")
    return before + mark, after


def _store_array(
    kind: str,
    array: Array,
    dtype: DType | None,
    rule: Compress | None = None,
    rows: int | None = None,
) -> Stored:
    if array.shape == ():
        data_type, swap, described = _point(dtype, array.dtype)
        if data_type is not None:
            fill = to_fill(array if swap is None else swapped(array, swap))
            if fill is not None:
                return _store_filled(kind, described, data_type, fill)
    form = _chunked(kind, dtype, array.shape, array.dtype, rule, rows)
    return Stored(form, array if form.chunks else None)


@lru_cache(maxsize=1024)
def _point(dtype: DType | None, stored: DType) -> tuple[Any, DType | None, Any]:
    """Return what follows from the dtype of an array without dimensions.

    That is zarr's data type (None: the metadata cannot hold the value), the dtype it must be
    swapped to, or None, and the described dtype.
    """
    storage = storage_of(stored)
    swap = None if stored == storage.memory else storage.memory
    described = None if dtype is None else describe(dtype)
    return None if storage.extra else storage.data_type, swap, described


@lru_cache(maxsize=1024)
def _chunked(
    kind: str,
    dtype: DType | None,
    shape: tuple[int, ...],
    stored: DType,
    rule: Compress | None,
    rows: int | None,
) -> Form:
    """Return the form of an array with chunks; blobs of one dtype and shape share it."""
    storage = storage_of(stored)
    described = None if dtype is None else describe(dtype)
    whole, size = shape + storage.extra, storage.itemsize
    grid = Grid.of(whole, size) if rows is None else Grid.of_rows(whole, size, rows)
    codec = Compressor.of(rule, storage.itemsize) if rule is not None and grid.count else None
    meta = array_meta(kind, described, grid, storage.data_type, storage.zero, codec)
    chunks = tuple(grid)
    return Form(kind, described, shape, meta, _file(meta), chunks, storage.memory, codec)


@lru_cache(maxsize=16)
def tree_form(kind: str) -> Form:
    """Return the form of a tree."""
    return Form.of(kind, None, None, group_meta({"kind": kind}))


def _file(meta: bytes) -> File:
    return File(META, len(meta), crc32c.crc32c(meta))


def array_meta(
    kind: str, dtype: Any, grid: Grid, data_type: Any, fill: Any, codec: Compressor | None = None
) -> bytes:
    """Return the bytes of an array's ``zarr.json``."""
    meta = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": grid.shape,
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": grid.chunk}},
        "chunk_key_encoding": _KEYS,
        "fill_value": fill,
        "codecs": array_codecs(codec, text=data_type == "string"),
        "attributes": {"jobrun": {"kind": kind, "dtype": dtype}},
    }
    return json.dumps(meta, separators=(",", ":"), allow_nan=False).encode("ascii")


# And back.


@dataclass(frozen=True, slots=True)
class Layout:
    """The metadata of a leaf as read: the form of its chunks, or its value."""

    kind: str
    dtype: Any
    shape: tuple[int, ...]
    data_type: Any
    fill: Any
    grid: Grid
    memory: DType
    codec: Compressor | None = None

    @classmethod
    def parse(cls, data: bytes, kind: str, dtype: Any, shape: tuple[int, ...]) -> Layout:
        """Return the layout in a ``zarr.json``.

        Raises DamagedError if it does not match the kind, dtype and shape of the manifest.

        Most leaves of a checkpoint differ in their fill value at most, which alone is then parsed:
        in 5 µs instead of 13.
        """
        before, _, rest = data.partition(_FILL)
        fill, _, after = rest.rpartition(_AFTER_FILL)
        if not isinstance(dtype, str | None) or not fill or len(before) + len(after) > _LONG_FRAME:
            return cls._parse(data, kind, dtype, shape)
        try:
            value = parse_json(fill)
        except ValueError:
            return cls._parse(data, kind, dtype, shape)
        layout = _frame(before, after, kind, dtype, shape)
        return layout if value == 0 and type(value) is int else replace(layout, fill=value)

    @classmethod
    def _parse(cls, data: bytes, kind: str, dtype: Any, shape: tuple[int, ...]) -> Layout:
        try:
            meta = parse_json(data)
            if meta["attributes"]["jobrun"] != {"kind": kind, "dtype": dtype}:
                found = str(meta["attributes"]["jobrun"])[:_SHOWN]
                raise DamagedError(f"its metadata have {found}, the manifest {kind!r}, {dtype!r}")
            if (meta["zarr_format"], meta["node_type"]) != (3, "array"):
                raise DamagedError("its metadata are not those of a zarr array")
            if meta["chunk_key_encoding"] != _KEYS:
                raise DamagedError(
                    "the names of its chunks have a form that this jobrun does not know"
                )
            data_type = meta["data_type"]
            codec = parse_codecs(meta["codecs"], text=data_type == "string")
            memory, extra = _memory(kind, dtype, data_type)
            _check_shape(kind, dtype, data_type, shape)
            stored = _counts(meta["shape"])
            if stored != shape + extra:
                raise DamagedError(f"its metadata have shape {stored}, the manifest {shape}")
            chunk = _counts(meta["chunk_grid"]["configuration"]["chunk_shape"])
            grid = Grid.parse(stored, chunk, 1 if extra else memory.itemsize)
            return cls(kind, dtype, shape, data_type, meta["fill_value"], grid, memory, codec)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise DamagedError(f"its metadata are not those of a blob: {error!r}") from error
        except ValueRefusedError as error:
            raise DamagedError(f"its metadata are not those of a blob: {error.message}") from error

    def filled(self, fill: Any) -> Box:
        """Return the leaf with this fill value, or one that has no elements.

        Raises DamagedError if the value does not fit the leaf's kind.
        """
        try:
            return self._filled(fill)
        except (ValueError, TypeError, OverflowError) as error:
            raise self._no_value(fill) from error

    def _filled(self, fill: Any) -> Box:
        kind = self.kind
        if kind in _PYTHON and (self.data_type == "string" or kind != "str"):
            if not _PYTHON_FILLS[kind](fill):
                raise self._no_value(fill)
            return Box(_PYTHON[kind](fill), kind)
        if self.data_type == "string":
            if type(fill) is not str or np.dtype(self.dtype) != np.dtype(f"<U{len(fill)}"):
                raise self._no_value(fill)
            return Box(np.str_(fill), kind)
        if self.grid.shape:
            return self.restored(np.ndarray(self.shape, self.memory))
        array = from_fill(fill, self.memory)
        exact = type(fill) is float and isfinite(fill) and self.memory == _DOUBLE
        if not exact:
            again = to_fill(array)
            if again != fill or type(again) is not type(fill):
                raise self._no_value(fill)
        return self.restored(array)

    def _no_value(self, fill: Any) -> DamagedError:
        what = self.kind if self.dtype is None else f"{self.kind} of dtype {self.dtype}"
        return DamagedError(f"its fill value, {str(fill)[:_SHOWN]!r}, does not fit kind {what}")

    def restored(self, array: Array) -> Box:
        """Return the leaf in ``array``, of ``shape`` and dtype ``memory``, which it then owns."""
        kind = self.kind
        if kind == "float":
            return Box(array.item(), kind)
        if _is_text(kind, self.dtype, self.data_type):
            return Box(self._text(array.tobytes()), kind)
        true = dtype_of(self.dtype)
        if true != self.memory:
            array = swapped(array, true)
        if kind == "scalar":
            return Box(array[()], kind)
        array.setflags(write=False)
        return Box(array, kind)

    def _text(self, data: bytes) -> Any:
        try:
            text = data.decode("utf-8", "surrogatepass") if self.kind == "str" else None
            return _text_scalar(data, self.dtype) if text is None else text
        except ValueError as error:
            raise DamagedError(f"its bytes are not a string: {error}") from error


def filled_box(kind: str, dtype: Any, fill: Any) -> Box:
    """Return the leaf without dimensions whose fill value stands in the manifest.

    Raises DamagedError if it is not one of this kind and dtype.
    """
    layout = _point_layout if isinstance(dtype, str | None) else _point_layout.__wrapped__
    try:
        return layout(kind, dtype).filled(fill)
    except ValueRefusedError as error:
        raise DamagedError(f"its entry is not that of a blob: {error.message}") from error


@lru_cache(maxsize=256)
def _point_layout(kind: str, dtype: Any) -> Layout:
    """Return the layout of a leaf without dimensions and chunks, as ``store`` writes it."""
    if kind == "str" or (kind == "scalar" and isinstance(dtype, str) and dtype[1:2] == "U"):
        data_type: Any = "string"
    elif dtype is None:
        data_type = _DATA_TYPES.get(kind, ("",))[0]
    else:
        data_type = storage_of(dtype_of(dtype)).data_type
    memory, extra = _memory(kind, dtype, data_type)
    if extra:
        raise DamagedError(f"a value of dtype {dtype!r} has a chunk")
    return Layout(kind, dtype, (), data_type, 0, Grid.of((), memory.itemsize), memory)


@lru_cache(maxsize=256)
def _frame(before: bytes, after: bytes, kind: str, dtype: Any, shape: tuple[int, ...]) -> Layout:
    """Return the layout of metadata with the fill value 0, from the bytes around the value."""
    return Layout._parse(_FILL.join((before, b"0" + _AFTER_FILL + after)), kind, dtype, shape)


def _counts(found: Any) -> tuple[int, ...]:
    """Return a shape in the metadata as a tuple; raises ValueError if it is not a shape."""
    if type(found) is not list or not {*map(type, found)} <= {int} or min(found, default=0) < 0:
        raise ValueError(f"{str(found)[:_SHOWN]} is not a shape")
    return tuple(found)


def _check_shape(kind: str, dtype: Any, data_type: Any, shape: tuple[int, ...]) -> None:
    """Raise DamagedError if a leaf of this kind cannot have this shape."""
    if kind == "array":
        fits = True
    elif _is_text(kind, dtype, data_type):
        fits = len(shape) == (0 if data_type == "string" else 1)
    else:
        fits = shape == ()
    if not fits:
        raise DamagedError(f"a value of kind {kind!r} cannot have shape {shape}")


_PYTHON_FILLS: dict[str, Callable[[Any], bool]] = {
    "none": lambda fill: fill is False,
    "bool": lambda fill: type(fill) is bool,
    "int": lambda fill: type(fill) is int and -(1 << 63) <= fill < 1 << 64,
    "float": lambda fill: type(fill) is float or fill in SPECIAL,
    "str": lambda fill: type(fill) is str,
}
"""Whether a fill value can be that of a Python value, by kind."""

_PYTHON: dict[str, Callable[[Any], Any]] = {
    "none": lambda fill: None,
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
}


def _text_scalar(data: bytes, dtype: str) -> Any:
    if dtype[1] == "S":
        return np.bytes_(data)
    return np.str_(data.decode("utf-8", "surrogatepass"))


_DATA_TYPES = {
    "none": ("bool",),
    "bool": ("bool",),
    "int": ("int64", "uint64"),
    "float": ("float64",),
    "str": ("string", BYTES),
}


def _memory(kind: str, dtype: Any, data_type: Any) -> tuple[DType, tuple[int, ...]]:
    """Return the dtype into which a leaf's chunks are read, and zarr's extra dimensions."""
    if kind in _DATA_TYPES and dtype is not None:
        raise DamagedError(f"a value of kind {kind!r} cannot have dtype {dtype!r}")
    if _is_text(kind, dtype, data_type):
        return np.dtype("u1"), ()
    if dtype is None:
        if not isinstance(data_type, str) or data_type not in _DATA_TYPES.get(kind, ()):
            raise DamagedError(f"a value of kind {kind!r} cannot be of data type {data_type!r}")
        return np.dtype(data_type).newbyteorder("<"), ()
    storage = storage_of(dtype_of(dtype))
    if storage.data_type != data_type:
        raise DamagedError(f"its metadata have data type {data_type!r}, the manifest {dtype!r}")
    return storage.memory, storage.extra


def _is_text(kind: str, dtype: Any, data_type: Any) -> bool:
    """Return whether a leaf is a string or a numpy string scalar, not stored as an array."""
    if kind == "scalar" and isinstance(dtype, str):
        return dtype[1:2] in ("S", "U") and data_type in ("string", BYTES)
    return kind == "str" and data_type in ("string", BYTES)
