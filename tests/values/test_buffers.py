"""Memory that saves have released serves the copies of updates, and no more of it is kept."""

from __future__ import annotations

import numpy as np
import pytest

from jobrun.values.borrowing import borrow
from jobrun.values.boxes import Box
from jobrun.values.buffers import Buffers, empty_array

BIG = 1 << 17


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_copy_is_equal_writable_and_apart() -> None:
    source = np.arange(BIG // 8, dtype=">f8").reshape(4, -1)
    copy = Buffers().copy(source)
    assert copy.dtype == source.dtype
    assert copy.shape == source.shape
    assert copy.tobytes() == source.tobytes()
    assert copy.flags.writeable
    assert not np.shares_memory(copy, source)


def test_given_memory_is_used_again_for_another_shape_and_dtype() -> None:
    buffers = Buffers()
    buffers.copy(np.zeros(BIG, np.uint8))
    old = np.zeros(BIG // 8)
    place = address(old)
    buffers.give(old)
    del old
    assert buffers.free == BIG
    copy = buffers.copy(np.ones((2, BIG // 8), np.float32))
    assert address(copy) == place
    assert (copy == 1).all()
    assert buffers.free == 0


def test_nothing_is_kept_that_no_copy_asked_for() -> None:
    buffers = Buffers()
    assert not buffers.wants(BIG)
    buffers.give(np.zeros(BIG, np.uint8))
    assert buffers.free == 0


def test_as_many_are_kept_as_copies_were_made() -> None:
    buffers = Buffers()
    for _ in range(2):
        buffers.copy(np.zeros(BIG, np.uint8))
    for _ in range(5):
        buffers.give(np.zeros(BIG, np.uint8))
    assert buffers.free == 2 * BIG
    for _ in range(2):  # reused ones come back again
        buffers.copy(np.zeros(BIG, np.uint8))
    assert buffers.free == 0
    for _ in range(5):
        buffers.give(np.zeros(BIG, np.uint8))
    assert buffers.free == 2 * BIG


def test_small_copies_do_not_count() -> None:
    buffers = Buffers()
    assert buffers.copy(np.arange(3)).tolist() == [0, 1, 2]
    assert not buffers.wants(24)


@pytest.mark.parametrize(
    ("shape", "dtype", "aligned"),
    [
        ((1 << 20,), "f4", True),
        ((4, 1 << 20), "<f4", True),
        ((1 << 20, 3), ">f8", True),
        ((0,), "f8", False),
        ((3, 5), "M8[s]", False),
        ((5 << 18,), "f4", False),  # 5 MiB: half of a huge page would be wasted
        ((), "f8", False),
    ],
)
def test_a_large_empty_array_begins_with_a_huge_page(
    shape: tuple[int, ...], dtype: str, aligned: bool
) -> None:
    arrays = [empty_array(shape, np.dtype(dtype)) for _ in range(3)]
    for number, array in enumerate(arrays):
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        assert array.flags.c_contiguous
        assert array.flags.writeable
        if aligned:
            array.reshape(-1).view("u1")[...] = number
            assert address(array) % (2 << 20) == 0
            assert array.base.nbytes == array.nbytes + (2 << 20)
        else:
            assert array.base is None
    if aligned:
        assert [int(a.reshape(-1).view("u1").max()) for a in arrays] == [0, 1, 2]


def test_an_update_takes_a_large_empty_array_as_it_is() -> None:
    array = empty_array((1 << 20,), np.dtype("f4"))
    array[...] = 1
    array.setflags(write=False)
    place = address(array)
    items = {"w": Box(array, "array")}
    del array
    assert address(borrow(items, "w")) == place


def test_what_is_released_is_kept_no_more() -> None:
    buffers = Buffers()
    buffers.copy(np.zeros(BIG, np.uint8))
    buffers.copy(np.zeros(BIG, np.uint8))
    buffers.give(np.zeros(BIG, np.uint8))
    buffers.release()
    assert buffers.free == 0
    buffers.give(np.zeros(BIG, np.uint8))  # of a copy from before
    assert buffers.free == 0
