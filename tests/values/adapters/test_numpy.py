"""Generators of numpy: the children that they spawn are part of their state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jobrun.errors import ValueRefusedError
from jobrun.values.adapted import put_together, take_apart
from jobrun.values.adapters.numpy import ADAPTERS

GENERATOR: Any = ADAPTERS["numpy.random._generator.Generator"]


def again(generator: np.random.Generator) -> Any:
    taken = take_apart(generator)
    assert taken is not None
    return put_together(taken[1], taken[0])


def drawn(generator: np.random.Generator, children: int = 2) -> list[float]:
    return [float(child.random()) for child in generator.spawn(children)] + [generator.random()]


@pytest.mark.parametrize("seed", [3, [1, 2, 1 << 40], 1 << 100])
@pytest.mark.parametrize("spawned", [0, 3])
def test_a_generator_spawns_the_children_that_it_would_have(seed: Any, spawned: int) -> None:
    generator = np.random.default_rng(seed)
    if spawned:
        generator.spawn(spawned)
    (child,) = generator.spawn(1)
    for one in (generator, child):
        copy = again(one)
        assert drawn(copy) == drawn(one)


@pytest.mark.parametrize("ahead", [0, 2])
def test_one_that_is_filled_spawns_the_same_children(ahead: int) -> None:
    """It stays the object that others hold, unless it is ahead: children cannot be taken back."""
    value, template = np.random.default_rng(3), np.random.default_rng(3)
    value.spawn(1)
    value.random()
    if ahead:
        template.spawn(ahead)
    filled = GENERATOR.like(template, value, True)
    assert (filled is template) == (not ahead)
    expected = drawn(again(value))
    assert drawn(filled) == expected


def test_one_without_a_seed_sequence_is_kept_as_before() -> None:
    philox: Any = np.random.Generator(np.random.Philox(key=5))
    assert again(philox).random() == philox.random()


def test_seeds_that_are_none_are_refused() -> None:
    taken = take_apart(np.random.default_rng(1))
    assert taken is not None
    made = taken[1].__class__(taken[1].name, 1, {**taken[1].meta, "seeds": {"entropy": "x"}})
    with pytest.raises(ValueRefusedError):
        put_together(made, taken[0])


@pytest.mark.parametrize("seeds", [{"pool": 10**9}, {"pool": 65}, {"pool": 0}, {"key": None}])
def test_hostile_meta_is_refused_at_once(seeds: dict[str, Any]) -> None:
    state, meta = GENERATOR.dump(np.random.default_rng(1))
    with pytest.raises((ValueRefusedError, ValueError, TypeError)):
        GENERATOR.load(state, {**meta, "seeds": {**meta["seeds"], **seeds}})


def test_children_are_not_counted_without_end() -> None:
    state, meta = GENERATOR.dump(np.random.default_rng(1))
    value = GENERATOR.load(state, {**meta, "seeds": {**meta["seeds"], "spawned": 10**9}})
    template = np.random.default_rng(1)
    assert GENERATOR.like(template, value, True) is value


def test_a_large_pool_is_not_kept() -> None:
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(1, pool_size=100)))
    _, meta = GENERATOR.dump(generator)
    assert "seeds" not in meta


@pytest.mark.parametrize("place", [-1, 625, 50_000_000, -50_000_000, "x", None])
@pytest.mark.parametrize("kind", ["MT19937", "Philox", "RandomState"])
def test_a_forged_place_outside_of_the_numbers_is_refused(kind: str, place: Any) -> None:
    """numpy itself would read there, and end the process."""
    if kind == "RandomState":
        taken = take_apart(np.random.RandomState(3))
    else:
        taken = take_apart(np.random.Generator(getattr(np.random, kind)(3)))
    assert taken is not None
    plain, made = taken
    assert isinstance(plain, dict)
    target: Any = plain if kind == "Philox" else plain["state"]
    name = "buffer_pos" if kind == "Philox" else "pos"
    assert 0 <= target[name] <= 624
    target[name] = place
    with pytest.raises(ValueRefusedError, match="a generator of numpy"):
        put_together(made, plain)
