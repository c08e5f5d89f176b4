"""The tree of a reduction: its ranges, and that parts do not change its bits."""

from __future__ import annotations

import random

import numpy as np
import pytest

from jobrun.values.adoption import adopt
from jobrun.values.boxes import Value
from jobrun.values.reduction import reduce_range, reduced, subtrees


def test_the_ranges_of_a_worker() -> None:
    assert subtrees([True] * 7) == [(0, 7)]
    assert subtrees([False, True, True, True]) == [(1, 2), (2, 4)]
    assert subtrees([True] * 5 + [False] * 3) == [(0, 4), (4, 5)]
    assert subtrees([False] * 3) == []


@pytest.mark.parametrize("seed", range(20))
def test_parts_on_any_workers_give_the_same_bits(seed: int) -> None:
    rng = random.Random(seed)
    count, workers = rng.randint(1, 40), rng.randint(1, 5)
    draws = np.random.default_rng(seed)
    boxes = [adopt([draws.normal(size=6) * 10.0 ** rng.randint(-9, 9)]) for _ in range(count)]
    names = [f"n{number}:g" for number in range(count)]

    def leaf(first: int, end: int) -> Value | None:
        return boxes[first] if end == first + 1 else None

    place = [rng.randrange(workers) for _ in range(count)]
    for how in ("mean", "sum", "min", "max"):
        alone = reduced(how, names, leaf)
        parts: dict[tuple[int, int], Value] = {}
        for worker in range(workers):
            for first, end in subtrees([p == worker for p in place]):
                parts[first, end] = reduce_range(how, names, first, end, leaf)
        together = reduced(how, names, lambda first, end, own=parts: own.get((first, end)))
        assert alone.value.tobytes() == together.value.tobytes()
        assert not alone.value.flags.writeable
    assert all(not box.value.flags.writeable for box in boxes)


def test_values_stay_as_they_are() -> None:
    """Also where the first join could work in the memory of a value."""
    arrays = [np.arange(3), np.arange(3) * 2, np.arange(3) * 3]
    boxes = [adopt([array.copy()]) for array in arrays]
    total = reduced("sum", ["a:x", "b:x", "c:x"], lambda i, j: boxes[i] if j == i + 1 else None)
    assert total.value.tolist() == [0, 6, 12]
    assert [box.value.tolist() for box in boxes] == [a.tolist() for a in arrays]
