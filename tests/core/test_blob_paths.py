"""Paths in trees."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.core.blob_paths import Key, PathMap, covers, outermost, overlaps


@pytest.mark.parametrize(
    ("a", "b", "above"),
    [("m", "m", True), ("m", "m/w", True), ("m/w", "m/w/x", True), ("m", "mx", False)],
)
def test_a_tree_covers_its_leaves(a: str, b: str, above: bool) -> None:
    assert covers(a, b) is above
    assert overlaps(a, b) is above
    assert overlaps(b, a) is above
    assert not covers("m/w", "m")
    assert not overlaps("m/w", "m/w2")


_paths = st.lists(st.sampled_from(["a", "b", "aa"]), min_size=1, max_size=3).map("/".join)


@settings(deadline=None, max_examples=100)
@given(_paths, _paths)
def test_paths_overlap_if_one_leads_to_the_other(a: str, b: str) -> None:
    one, other = a.split("/"), b.split("/")
    shared = min(len(one), len(other))
    assert overlaps(a, b) == (one[:shared] == other[:shared])


@settings(deadline=None, max_examples=100)
@given(st.lists(_paths, max_size=6))
def test_the_outermost_paths_cover_all_and_overlap_not(paths: list[str]) -> None:
    found = outermost(paths)
    assert all(any(covers(f, p) for f in found) for p in paths)
    assert not any(overlaps(a, b) for a in found for b in found if a != b)
    assert list(found) == [p for p in dict.fromkeys(paths) if p in found]


_keys = st.tuples(st.sampled_from("mn"), _paths)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.booleans(), _keys, st.integers(0, 3)), max_size=8), _keys)
def test_a_map_of_paths_answers_as_one_that_looks_at_all(
    steps: list[tuple[bool, Key, int]], asked: Key
) -> None:
    found: PathMap[int] = PathMap()
    plain: dict[Key, int] = {}
    for dropped, key, value in steps:
        if dropped:
            found.drop(key)
            plain = {k: v for k, v in plain.items() if k[0] != key[0] or not covers(key[1], k[1])}
        else:
            found[key] = value
            plain[key] = value
    node, path = asked
    own = {p: v for (n, p), v in plain.items() if n == node}
    assert sorted(found.overlapping(asked)) == sorted(
        v for p, v in own.items() if overlaps(p, path)
    )
    assert found.touches(asked) is any(overlaps(p, path) for p in own)
    assert found.covers(asked) is any(covers(p, path) for p in own)
    assert found.get(asked) == plain.get(asked)
    assert found.paths(node) == list(own)
