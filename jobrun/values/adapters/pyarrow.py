"""Arrays and tables of pyarrow, in one chunk a column.

Numbers and times are arrays; where values are missing, ``valid`` says which are there, and the
others are zero.  Strings are their bytes, with the offset of each.  A column of any other type is
the bytes of an Arrow IPC stream.  All of it is read without a copy.

Measured (2 cores): a table of 10 columns of a million rows is handed to a task in 0.05 ms, one
column of a million numbers with missing ones in 0.35 ms.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import numpy as np

from jobrun.core.late_imports import imported
from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.base import Meta, Plain

__all__ = ["ADAPTERS", "decode_type", "dump_array", "encode_type", "load_array"]


def dump_array(chunks: Any) -> Plain:
    """Return the plain form of a ChunkedArray or Array."""
    pa = imported("pyarrow")
    array = _whole(chunks) if isinstance(chunks, pa.ChunkedArray) else chunks
    if (offsets := _offsets(array.type)) is not None:
        return _dump_strings(array, offsets)
    dtype = _dtype(array.type)
    if dtype is None:
        return _stream(array)
    values = _values(array, dtype)
    if array.null_count == 0:
        return values
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    return {"values": np.where(valid, values, np.zeros(1, dtype)), "valid": valid}


def load_array(plain: Plain, type_: Any) -> Any:
    """Return the Array of ``type_`` with this plain form, which shares its memory.

    Raises ValueRefusedError if the form is another's.
    """
    pa = imported("pyarrow")
    offsets, dtype = _offsets(type_), _dtype(type_)
    if offsets is not None:
        return _load_strings(plain, type_, offsets)
    if dtype is None:
        array = _first_column(plain)
        if array.type != type_:
            raise ValueRefusedError(f"expected a column of type {type_}, got {array.type}")
        return array
    values = plain["values"] if isinstance(plain, dict) else plain
    _check(values, dtype)
    valid = _valid_buffer(plain, len(values))
    return pa.Array.from_buffers(type_, len(values), [valid, pa.py_buffer(values)])


def _valid_buffer(plain: Plain, length: int) -> Any:
    """Return the bits that tell which elements are there; None: all of them."""
    if not isinstance(plain, dict) or "valid" not in plain:
        return None
    _check(plain["valid"], np.dtype(bool), length)
    return imported("pyarrow").py_buffer(np.packbits(plain["valid"], bitorder="little"))


def _offsets(type_: Any) -> np.dtype[Any] | None:
    """Return the dtype of the offsets of a type of strings or bytes; None for other types."""
    types = imported("pyarrow").types
    if types.is_string(type_) or types.is_binary(type_):
        return np.dtype(np.int32)
    large = types.is_large_string(type_) or types.is_large_binary(type_)
    return np.dtype(np.int64) if large else None


def _dump_strings(array: Any, dtype: np.dtype[Any]) -> Plain:
    """Return the bytes of all strings, and the offset of each in them and of the end."""
    _, starts, content = array.buffers()
    offsets = np.zeros(1, dtype)
    if len(array):
        offsets = np.frombuffer(starts, dtype, len(array) + 1, array.offset * dtype.itemsize)
    data = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
    plain = {"data": data[int(offsets[0]) : int(offsets[-1])], "offsets": offsets}
    if offsets[0]:
        plain["offsets"] = offsets - offsets[0]
    if array.null_count:
        plain["valid"] = array.is_valid().to_numpy(zero_copy_only=False)
    return plain


def _load_strings(plain: Plain, type_: Any, dtype: np.dtype[Any]) -> Any:
    pa = imported("pyarrow")
    data, offsets = plain["data"], plain["offsets"]
    _check(data, np.dtype(np.uint8))
    _check(offsets, dtype)
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(data):
        raise ValueRefusedError("the offsets of its strings are not those of its bytes")
    count = len(offsets) - 1
    buffers = [_valid_buffer(plain, count), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(type_, count, buffers)


def _dtype(type_: Any) -> np.dtype[Any] | None:
    """Return the dtype of the elements of a type of fixed width in memory; None for other types."""
    pa = imported("pyarrow")
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        dtype: np.dtype[Any] = np.dtype(type_.to_pandas_dtype())
        return dtype
    if pa.types.is_temporal(type_) and type_ != pa.month_day_nano_interval():
        return np.dtype(f"i{type_.bit_width // 8}")
    return None


def _values(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return a view of the elements of an array of fixed width, with anything where none is."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)


def _stream(array: Any) -> Plain:
    pa = imported("pyarrow")
    batch = pa.RecordBatch.from_arrays([array], names=[""])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return np.frombuffer(sink.getvalue(), np.uint8)


def _first_column(plain: Plain) -> Any:
    pa = imported("pyarrow")
    _check(plain, np.dtype(np.uint8))
    table = pa.ipc.open_stream(pa.py_buffer(plain)).read_all()
    table.validate()
    return _whole(table.column(0))


def _whole(chunks: Any) -> Any:
    """Return the chunks as one array, without a copy if there is but one."""
    return chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()


def _check(array: Any, dtype: np.dtype[Any], length: int | None = None) -> None:
    """Raise ValueRefusedError if ``array`` has not one dimension, this dtype and length."""
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != dtype:
        raise ValueRefusedError(f"expected an array of {dtype} with one dimension")
    if length is not None and len(array) != length:
        raise ValueRefusedError(f"expected {length} elements, got {len(array)}")


class TableAdapter:
    """``pyarrow.Table``, as ``{column: array}``, or a list where two columns share a name."""

    name = "pyarrow.Table"
    version = 1
    immutable = True

    def dump(self, value: Any) -> tuple[Plain, Meta]:
        """Return the columns; the schema is in the meta data."""
        columns = [dump_array(column) for column in value.columns]
        names = value.column_names
        meta = {"schema": _encoded(value.schema), "rows": value.num_rows}
        return _named(names, columns), meta

    def load(self, plain: Plain, meta: Meta) -> Any:
        """Return a table over the memory of ``plain``."""
        pa = imported("pyarrow")
        schema = _decoded(meta["schema"])
        columns = [*(plain.values() if isinstance(plain, dict) else plain)]
        if len(columns) != len(schema):
            raise ValueRefusedError(f"expected {len(schema)} columns, got {len(columns)}")
        arrays = [load_array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        if not arrays:
            return pa.table({}, schema=schema)
        made = pa.Table.from_arrays(arrays, schema=schema)
        made.validate()
        return made


class ArrowArrayAdapter:
    """``pyarrow.Array`` and ``pyarrow.ChunkedArray``."""

    version = 1
    immutable = True

    def __init__(self, kind: str) -> None:
        self.name = f"pyarrow.{kind}"

    def dump(self, value: Any) -> tuple[Plain, Meta]:
        """Return the elements; the type is in the meta data."""
        return dump_array(value), {"type": encode_type(value.type)}

    def load(self, plain: Plain, meta: Meta) -> Any:
        """Return an array over the memory of ``plain``."""
        pa = imported("pyarrow")
        array = load_array(plain, decode_type(meta["type"]))
        return array if self.name == "pyarrow.Array" else pa.chunked_array([array])


def encode_type(type_: Any) -> str:
    """Return a type of Arrow as a string."""
    return _encoded(imported("pyarrow").schema({"": type_}))


def decode_type(text: Any) -> Any:
    """Return the type that ``encode_type`` made a string of; raises ValueError, or its own."""
    return _decoded(text).field(0).type


def _named(names: list[str], columns: list[Plain]) -> Plain:
    """Return columns by their names, or as a list where these are not different ones."""
    return dict(zip(names, columns, strict=True)) if len({*names}) == len(names) else columns


def _encoded(schema: Any) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _decoded(text: Any) -> Any:
    pa = imported("pyarrow")
    if not isinstance(text, str):
        raise ValueRefusedError(f"expected the bytes of a schema as a string, got {text!r}")
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))


ADAPTERS: Final = {
    "pyarrow.lib.Table": TableAdapter(),
    "pyarrow.lib.ChunkedArray": ArrowArrayAdapter("ChunkedArray"),
    "pyarrow.lib.Array": ArrowArrayAdapter("Array"),
}
