"""Random numbers that depend on their place alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.core.rng import make_rng
from jobrun.model.job import Job

_place = st.lists(
    st.one_of(st.none(), st.integers(0, 5), st.text("ab/:1,", max_size=3)), max_size=5
)


def test_one_place_gives_one_stream() -> None:
    first = make_rng(7, "epoch", "step", "main", 3, None).random(5)
    assert first.tobytes() == make_rng(7, "epoch", "step", "main", 3, None).random(5).tobytes()


def test_the_stream_is_the_same_in_every_version() -> None:
    """A run goes on with the numbers that it would have drawn: these must never change."""
    rng = make_rng(7, "epoch", "step", "main", 3, None)
    assert rng.integers(0, 1000, 5).tolist() == [638, 95, 905, 366, 641]


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 3), _place, st.integers(0, 3), _place)
def test_two_places_give_two_streams(
    seed: int, place: list[str | int | None], other_seed: int, other: list[str | int | None]
) -> None:
    """Also where the parts joined would read the same: ``a``, ``bc`` and ``ab``, ``c``."""
    equal = (seed, place) == (other_seed, other)
    first = make_rng(seed, *place).integers(0, 1 << 62, 2)
    second = make_rng(other_seed, *other).integers(0, 1 << 62, 2)
    assert (first.tobytes() == second.tobytes()) == equal


@pytest.mark.parametrize("seed", [0, -1, 1 << 80])
def test_any_integer_is_a_seed(seed: int) -> None:
    assert 0 <= make_rng(seed, "init").random() < 1


def test_a_jobs_seed_is_an_integer() -> None:
    assert type(Job("j", seed=np.int64(7)).seed) is int
    for seed in (0.5, "7", None):
        with pytest.raises(TypeError):
            Job("j", seed=seed)


def test_neighbouring_places_are_not_correlated() -> None:
    draws = np.array([make_rng(1, "epoch", "step", "main", e).random(200) for e in range(20)])
    pairs = itertools.combinations(range(20), 2)
    assert max(abs(np.corrcoef(draws[a], draws[b])[0, 1]) for a, b in pairs) < 0.4
