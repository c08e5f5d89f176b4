from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from checkpoint_helpers import dtypes, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.checkpoint.dtypes import describe, dtype_of, storage_of
from jobrun.checkpoint.fill_value import from_fill, to_fill
from jobrun.errors import DamagedError


@settings(deadline=None)
@given(dtypes)
def test_a_described_dtype_is_restored(dtype: np.dtype[Any]) -> None:
    restored = dtype_of(describe(dtype))
    assert restored == dtype
    assert restored.str == dtype.str
    assert restored.names == dtype.names


@settings(deadline=None)
@given(dtypes)
def test_memory_has_the_bytes_of_the_disk(dtype: np.dtype[Any]) -> None:
    storage = storage_of(dtype)
    assert storage.memory.itemsize == dtype.itemsize
    assert storage.itemsize * int(np.prod(storage.extra, dtype=int)) == dtype.itemsize


FILLED = [
    *("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"),
    *("M8[ns]", "m8[3s]", "U1", "U3", "S2", "S7", "V3", "bfloat16"),
]


@settings(deadline=None)
@given(
    st.sampled_from(FILLED),
    st.integers(0, 2**32),
)
def test_a_fill_value_gives_the_bits_back_or_there_is_none(name: str, seed: int) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    raw = np.random.default_rng(seed).bytes(dtype.itemsize)
    if dtype == np.bool_:
        raw = bytes([raw[0] % 2])
    value = np.frombuffer(raw, dtype).reshape(())
    fill = to_fill(value)
    if fill is None:
        assert dtype.kind in "fcU"
    else:
        assert same_bits(from_fill(fill, dtype), value)


@pytest.mark.parametrize("value", [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, 1 / 3])
@pytest.mark.parametrize("name", ["f2", "f4", "f8", "c8", "c16"])
def test_special_floats_need_no_chunk(name: str, value: float) -> None:
    array = np.array(value, name)
    assert same_bits(from_fill(to_fill(array), array.dtype), array)


def test_a_nan_of_other_bits_needs_a_chunk() -> None:
    for bits in (0x7E01, 0xFE00):
        assert to_fill(np.array(bits, "u2").view("f2")) is None
    assert to_fill(np.array(0xFFF8000000000000, "u8").view("f8")) is None


@pytest.mark.parametrize(
    "described", [None, 3, "<z9", "nothing", [["a"]], {"a": 1}, "os.system", ""]
)
def test_what_describes_no_dtype_is_damage(described: Any) -> None:
    with pytest.raises(DamagedError, match="no dtype"):
        dtype_of(described)
