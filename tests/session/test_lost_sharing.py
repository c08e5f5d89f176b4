"""Warnings of memory that parts of live objects share, and that a resume makes apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from jobrun.session.lost_sharing import LostSharing, Restored
from jobrun.values.adapters.pytree import PYTREE
from jobrun.values.plain import read_state
from jobrun.values.shared_memory import Held, SharedPart

ANEW = Restored(fills=False, ties=False)


def warnings(told: LostSharing, how: Any = lambda part: ANEW, **objects: Any) -> list[str]:
    states = {}
    for name, obj in objects.items():
        held: list[Held] = []
        states["", name] = (read_state(PYTREE, obj, held=held), held)
    return [text.partition(",")[0] for text in told.warnings(states, how)]


def test_a_pair_is_told_once_and_an_object_at_most_three_times() -> None:
    told, base = LostSharing(), np.arange(100.0)
    tree: dict[str, Any] = {"base": base}
    found = []
    for number in range(6):
        tree[f"v{number}"] = base[number:]
        tree["other"] = np.zeros(3)
        found += warnings(told, s=tree)
        found += warnings(told, s=tree)
    assert found == [
        "'s/base' under 'state' shares memory with 's/v0'",
        "'s/v1' under 'state' shares memory with 's/base'",
        "'s/v2' under 'state' shares memory with 's/base'",
    ]


def test_further_pairs_are_counted() -> None:
    base = np.arange(100.0)

    def how(part: SharedPart) -> Restored:
        return Restored(fills=part.keys == ("base",), ties=True)

    tree = {"base": base, "v": [base[1:], base[2:5], base[50:]]}
    (text,) = warnings(LostSharing(), how, s=tree)
    assert text == "'s/v/0' under 'state' shares memory with 's/base' (and 2 more)"


def test_arrays_that_interleave_without_a_common_element_share_nothing() -> None:
    base = np.arange(100.0)
    assert warnings(LostSharing(), s={"a": base[::2], "b": base[1::2]}) == []


def test_an_object_at_two_places_is_one_again_where_its_adapter_ties_them() -> None:
    a = np.arange(9.0)
    ties = Restored(fills=False, ties=True)
    assert warnings(LostSharing(), lambda part: ties, s={"a": a, "b": a}) == []
    assert warnings(LostSharing(), s={"a": a, "b": a}) != []
    assert warnings(LostSharing(), lambda part: ties, s={"a": a}, t={"a": a}) != []
