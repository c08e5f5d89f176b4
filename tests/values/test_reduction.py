"""The tree of a reduction: its ranges, and that parts do not change its bits."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from jobrun.errors import TaskError
from jobrun.values import reduction
from jobrun.values.adoption import adopt
from jobrun.values.boxes import Value, leaves
from jobrun.values.reduction import kept, partial_ranges, reduced, subtrees
from jobrun.values.views import view


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
            owned = [p == worker for p in place]
            parts |= partial_ranges(how, names, owned, boxes.__getitem__)
        together = reduced(how, names, lambda first, end, own=parts: own.get((first, end)))
        assert alone.value.tobytes() == together.value.tobytes()
        assert not alone.value.flags.writeable
    assert all(not box.value.flags.writeable for box in boxes)


@pytest.mark.parametrize(
    "dtype", ["f4", "f8", "f2", "c16", "i1", "u8", "?", "m8[s]", ">f4", ">c16", ">i2", ">m8[s]"]
)
@pytest.mark.parametrize("how", ["mean", "sum", "min", "max"])
def test_blocks_give_the_bits_of_whole_arrays(
    how: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how in ("min", "max") and dtype.endswith("c16"):
        pytest.skip("complex numbers have no order")
    draws = np.random.default_rng(0)
    signed = [draws.normal(size=(7, 11)) * 50 for _ in range(6)]
    arrays = [(np.abs(a) if dtype == "u8" else a).astype(dtype) for a in signed]
    boxes = [adopt([array.copy()]) for array in arrays]

    def found() -> Value:
        return reduced(how, list("abcdef"), lambda i, j: boxes[i] if j == i + 1 else None)

    whole = found()
    monkeypatch.setattr(reduction, "_BLOCK", 40)
    assert found().value.tobytes() == whole.value.tobytes()
    assert found().value.dtype == whole.value.dtype
    join = {"min": np.minimum, "max": np.maximum}.get(how, np.add)
    into = {"mean": "f8", "sum": "i8"}.get(how)
    wide = [a.astype(into) if into and a.dtype.kind in "bi" else a for a in arrays]
    if how == "mean" and dtype == "u8":
        wide = [a.astype("f8") for a in arrays]
    a, b, c, d, e, f = wide
    total = join(join(join(a, b), join(c, d)), join(e, f))
    expected = np.true_divide(total, 6) if how == "mean" else total
    assert whole.value.tobytes() == expected.astype(whole.value.dtype).tobytes()
    assert whole.value.dtype == arrays[0].dtype or arrays[0].dtype.kind in "biu"
    assert whole.value.shape == (7, 11)


def test_a_kept_value_has_memory_of_its_own() -> None:
    box = adopt([{"a": np.arange(3.0), "b": [1, "x"]}])
    copy = kept(box)
    (own, *others), (theirs, *rest) = (list(leaves(value)) for value in (copy, box))
    assert own[1].value.tobytes() == theirs[1].value.tobytes()
    assert not np.shares_memory(own[1].value, theirs[1].value)
    assert not own[1].value.flags.writeable
    assert [b.value for _, b in others] == [b.value for _, b in rest]


def test_values_stay_as_they_are() -> None:
    """Also where the first join could work in the memory of a value."""
    arrays = [np.arange(3), np.arange(3) * 2, np.arange(3) * 3]
    boxes = [adopt([array.copy()]) for array in arrays]
    total = reduced("sum", ["a:x", "b:x", "c:x"], lambda i, j: boxes[i] if j == i + 1 else None)
    assert total.value.tolist() == [0, 6, 12]
    assert [box.value.tolist() for box in boxes] == [a.tolist() for a in arrays]


@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_the_mean_of_large_integers_does_not_wrap_around(dtype: str) -> None:
    stamp = 1_700_000_000_000_000_000  # nanoseconds: 12 of them have more than 64 bits
    for value in (np.full(3, stamp, dtype), np.dtype(dtype).type(stamp)):
        box = adopt([value])
        mean = reduced("mean", list("abcdefghijkl"), lambda i, j, b=box: b if j == i + 1 else None)
        assert mean.value.dtype == np.float64
        assert np.all(mean.value == float(stamp))


@pytest.mark.parametrize("dtype", ["i8", "u8"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_of_integers_beyond_64_bits_is_an_error(dtype: str, sign: int) -> None:
    most = int(np.iinfo(dtype).max) if sign > 0 else int(np.iinfo(dtype).min)
    if most == 0:
        pytest.skip("unsigned integers are not negative")
    of_dtype = np.dtype(dtype).type

    def total(*values: Any) -> Any:
        boxes = [adopt([value]) for value in values]
        names = [f"n{number}:x" for number in range(len(values))]
        return reduced("sum", names, lambda i, j: boxes[i] if j == i + 1 else None)

    last = np.array([0, sign], dtype)
    fits = np.array([most, most - sign], dtype)
    assert total(fits, last, 0 * last).value.tolist() == [most, most]
    assert total(of_dtype(most - sign), of_dtype(sign)).value == most
    for one, other, name in (
        (np.array([0, most], dtype), last, "n0:x to n2:x"),
        (of_dtype(most), of_dtype(sign), "n0:x to n1:x"),
        (
            {"k": [np.array([most], dtype)]},
            {"k": [np.array([sign], dtype)]},
            "n0:x/k/0 to n2:x/k/0",
        ),
    ):
        zero = one if isinstance(one, dict) else one * 0
        with pytest.raises(TaskError, match=f"the sum of {name} has more than 64 bits"):
            total(one, other, zero)


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        ({"0": 1}, [1], "a dict and a list"),
        ([1], (1,), r"a list and a python\.tuple"),
        ({0: 1}, {"0": 1}, "only one of them has '0'"),
    ],
)
def test_values_of_other_forms_are_not_reduced_to_one(one: Any, other: Any, text: str) -> None:
    boxes = [adopt([one]), adopt([other])]
    with pytest.raises(TaskError, match=text):
        reduced("sum", ["a:x", "b:x"], lambda i, j: boxes[i] if j == i + 1 else None)


def test_dicts_are_joined_by_their_keys_whatever_their_order() -> None:
    boxes = [adopt([{0: 1, "0": 10}]), adopt([{"0": 20, 0: 2}])]
    total = reduced("sum", ["a:x", "b:x"], lambda i, j: boxes[i] if j == i + 1 else None)
    assert view(total) == {0: 3, "0": 30}


def test_the_state_of_a_generator_is_not_added_up() -> None:
    box = adopt([np.random.default_rng(0)])
    with pytest.raises(TaskError, match=r"a:x is a numpy\.random\.Generator, which has no sum"):
        reduced("sum", ["a:x", "b:x"], lambda i, j: box if j == i + 1 else None)
