"""Paths in trees."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.blob_paths import covers, overlaps


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
