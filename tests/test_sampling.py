"""The cases that stand for all."""

from __future__ import annotations

from itertools import product

import pytest
from sampling import sample


@pytest.mark.parametrize("shape", [(2, 3, 2), (4, 3, 2, 4), (3, 9), (9, 3), (4, 4, 3), (5, 22)])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_sample_has_every_value_as_far_as_it_is_large_enough(
    shape: tuple[int, ...], n: int
) -> None:
    cases = [list(enumerate(values)) for values in product(*map(range, shape))]
    found = sample(cases, n)
    assert len(found) == -(-len(cases) // n)
    for parameter, values in enumerate(shape):
        seen = {cases[i][parameter] for i in found}
        assert len(seen) == min(values, len(found)), (parameter, seen)


def test_of_one_parameter_it_is_every_nth_value() -> None:
    assert sample([[i] for i in range(10)], 3) == [0, 3, 6, 9]
    assert sample([["a"]], 5) == [0]
    assert sample([], 5) == []
