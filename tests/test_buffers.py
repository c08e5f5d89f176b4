"""Memory that saves have released serves the copies of updates, and no more of it is kept."""

from __future__ import annotations

import numpy as np

from jobrun.buffers import Buffers

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
