"""Plain values as messages: every bit, type and order is kept; all else is refused."""

from __future__ import annotations

import json
import struct
from datetime import date
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from engine import same
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.session.workers.wire import Packed, UnsendableError, unpack
from jobrun.values.buffers import copy_array


def sent(value: Any) -> Any:
    """A value after its way through a message."""
    packed = Packed(value)
    area = np.zeros(packed.size, np.uint8)
    packed.fill(area)
    return unpack(json.loads(json.dumps(packed.node)), area)


DTYPES = [
    *("?", "i1", "<i2", ">i4", "<i8", "u1", ">u8", "<f2", "<f4", ">f8", "<c8", "<c16", "<g"),
    *("<M8[ns]", "<M8[25s]", "<M8", ">m8[Y]", "<U3", ">U2", "<U0", "S5", "S0", "V7"),
    ml_dtypes.bfloat16,
    [("a", "<i4"), ("b", ">f8", (2, 3)), ("c", [("d", "S2")])],
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3)])
def test_arrays_of_every_dtype_and_shape(dtype: Any, shape: tuple[int, ...]) -> None:
    array = np.ndarray(shape, np.dtype(dtype))
    size = array.nbytes
    noise = np.random.default_rng(1).integers(0, 2, size, np.uint8)
    array = np.ndarray(shape, np.dtype(dtype), noise) if size else array
    found = sent(array)
    assert same(found, array)
    assert not found.flags.writeable
    assert found.flags.aligned
    assert found.flags.c_contiguous


@pytest.mark.parametrize("order", ["F", "steps", "backwards"])
def test_arrays_in_any_order_arrive_in_that_of_c(order: str) -> None:
    array = np.arange(24.0).reshape(4, 6)
    array = {"F": array.copy("F"), "steps": array[::2, ::3], "backwards": array[::-1]}[order]
    assert same(sent(array), np.ascontiguousarray(array))


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.complex_numbers()
    | st.text()
    | st.binary()
    | st.binary().map(bytearray)
    | st.sampled_from([np.float32(1.5), np.int8(3), np.str_("ab"), np.bool_(True)])
    | st.lists(st.integers(0, 9)).map(np.array),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)


def alike(a: Any, b: Any) -> bool:
    """As ``same``, for tuples too."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(alike(a[k], b[k]) for k in a)
    if isinstance(a, complex) and isinstance(b, complex):
        return same([a.real, a.imag], [b.real, b.imag])
    return same(a, b)


@settings(deadline=None, max_examples=150)
@given(plain)
def test_plain_values(value: Any) -> None:
    assert alike(sent(value), value)


def test_sets_and_surrogates() -> None:
    assert sent({1, 2}) == {1, 2}
    assert sent(frozenset("ab")) == frozenset("ab")
    assert sent("\ud800 ä") == "\ud800 ä"


def test_the_bits_of_a_nan() -> None:
    payload = struct.unpack("<d", bytes.fromhex("010000000000f8ff"))[0]
    assert struct.pack("<d", sent(payload)).hex() == "010000000000f8ff"


def test_a_structured_scalar_is_no_window_into_the_area() -> None:
    packed = Packed(np.array([(1, 2.5)], [("a", "<i4"), ("b", "<f8")])[0])
    area = np.zeros(packed.size, np.uint8)
    packed.fill(area)
    found = unpack(packed.node, area)
    area[:] = 0
    assert found.tolist() == (1, 2.5)


class Text(str):
    """A text that is more than one."""


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (date(2000, 1, 1), "a date"),
        (Text("a"), "a Text"),
        ([{"a": print}], "a builtin_function_or_method"),
        (np.array([None]), "an array of dtype object"),
        (np.zeros(1, np.dtype("i1,i8", align=True)), "an array of dtype "),
        (np.ma.masked_array([1]), "a MaskedArray"),
    ],
    ids=str,
)
def test_what_is_no_plain_value_is_refused(value: Any, what: str) -> None:
    with pytest.raises(UnsendableError, match=f"^{what}"):
        Packed(value)


def test_an_array_at_two_places_is_one_object_again() -> None:
    w = np.arange(3.0)
    packed = Packed({"a": w, "b": [w], "c": np.arange(3.0), "d": w[:]})
    area = np.zeros(packed.size, np.uint8)
    packed.fill(area)
    found = unpack(packed.node, area)
    assert found["a"] is found["b"][0]
    assert found["a"] is not found["c"]
    assert found["a"] is not found["d"]
    assert packed.size == 2 * 64 + 24  # a, c and d


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_list_of_arrays_of_one_dtype_and_shape(
    dtype: Any, shape: tuple[int, ...], order: Any
) -> None:
    known = np.dtype(dtype)
    size = int(np.prod(shape)) * known.itemsize
    noise = np.random.default_rng(1).integers(0, 2, (3, max(1, size)), np.uint8)
    rows = [np.ndarray(shape, known, each, order=order) for each in noise]
    found = sent([rows, {"again": rows[1]}, [rows[0], rows[0]]])
    assert same(found[0], [copy_array(row) for row in rows])
    assert all(not each.flags.writeable and each.flags.aligned for each in found[0])
    if size:
        assert found[1]["again"] is found[0][1]
        assert found[2][0] is found[2][1] is found[0][0]


def test_a_list_of_arrays_that_differ() -> None:
    rows: list[Any] = [np.arange(3), np.arange(2), np.arange(3.0), np.zeros((1, 3)), "a", None]
    assert same(sent(rows), rows)
    assert same(sent(rows[:1]), rows[:1])


def test_the_columns_of_many_batches_are_described_once() -> None:
    few, many = (Packed([*np.zeros((count, 512))]) for count in (2, 64))
    assert len(json.dumps(many.node)) <= len(json.dumps(few.node)) + 1
