"""The order of a pass: every row once, by the generator alone, wherever it is looked at."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.data import order as order_module
from jobrun.data.order import Walk, pass_order


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_few_rows_are_permuted_by_numpy() -> None:
    assert pass_order(100, rng()).tolist() == rng().permutation(100).tolist()  # type: ignore[union-attr]


def test_many_rows_are_walked() -> None:
    assert isinstance(pass_order((1 << 22) + 1, rng()), Walk)
    assert isinstance(pass_order(1 << 22, rng()), np.ndarray)


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 5000), st.integers(0, 2**32))
def test_a_walk_is_a_permutation(rows: int, seed: int) -> None:
    assert np.sort(Walk(rows, rng(seed))[0:rows]).tolist() == list(range(rows))


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_a_place_holds_the_same_row_however_it_is_reached(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 3000))
    whole = Walk(rows, rng(1))[0:rows]
    walk = Walk(rows, rng(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order_module, "_AT_ONCE", data.draw(st.integers(1, 700)))
        for _ in range(8):
            low = data.draw(st.integers(0, rows))
            high, step = data.draw(st.integers(low, rows)), data.draw(st.integers(1, 4))
            assert walk[low:high:step].tolist() == whole[low:high:step].tolist()


def test_of_billions_of_rows_a_few_are_computed() -> None:
    rows = 3_000_000_019
    walk = Walk(rows, rng(5))
    some = np.concatenate([walk[low : low + 50_000] for low in range(0, rows, rows // 10)])
    assert len(np.unique(some)) == len(some)
    assert some.min() >= 0
    assert some.max() < rows
    # Evenly spread: of 2,000,000 rows in 16 parts, each has 125,000, give or take 6 sigma.
    parts = np.bincount(some * 16 // rows, minlength=16)
    assert np.abs(parts - len(some) / 16).max() < 6 * np.sqrt(len(some) / 16)
    assert abs(np.corrcoef(some[:-1], some[1:])[0, 1]) < 6 / np.sqrt(len(some))


def test_the_order_is_the_same_in_every_version() -> None:
    """A run that is resumed with another version of this library reads on in its order."""
    assert Walk(5_000_000, rng(7))[0:4].tolist() == [3056913, 915140, 1270573, 967610]


def test_each_generator_gives_another_order() -> None:
    firsts = {tuple(Walk(10**7, rng(seed))[0:3].tolist()) for seed in range(50)}
    assert len(firsts) == 50
