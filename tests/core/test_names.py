"""Names of blobs and nodes."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.core.names import are_names, case_twins, check_name, is_name


@pytest.mark.parametrize(
    "name", ["a", "W1", "_x", "-x", "0", "a.b", "a-b_c.9", "zarr", "zarr.jsonx"]
)
def test_names(name: str) -> None:
    assert is_name(name)
    assert check_name(f"{name}/{name}") is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".a", "a b", "a/b", "ä", "a:b", "a\n", "a*", "zarr.json", "a\0", "²"]
)
def test_no_names(name: str) -> None:
    assert not is_name(name)


@pytest.mark.parametrize(
    "names",
    [[], ["a"], ["a", "b"], ["zarr.jsonx", "a"], ["a", "zarr.json"], ["a/b", "c"], ["a", ""], [""]],
)
def test_all_of_some_names(names: list[str]) -> None:
    assert are_names(dict.fromkeys(names)) == all(map(is_name, names))


@pytest.mark.parametrize("key", [1, None, ("a",), np.str_("a")])
def test_keys_that_are_no_plain_strings_are_no_names(key: object) -> None:
    assert not are_names(["a", key])


@pytest.mark.parametrize(
    ("names", "twins"),
    [
        (["w", "W"], ("w", "W")),
        (["a", "Bc", "b", "bC", "A"], ("Bc", "bC")),
        (["a", "b", "a"], None),
        (["Aa", "B"], None),
        ([], None),
    ],
)
def test_names_that_differ_in_case_only(names: list[str], twins: tuple[str, str] | None) -> None:
    assert case_twins(iter(names)) == twins


@pytest.mark.parametrize(
    "name", ["", "/", "a/", "/a", "a//b", "a/../b", "a/.b", "a/zarr.json", "é"]
)
def test_what_is_wrong_is_said_with_the_name(name: str) -> None:
    problem = check_name(name)
    assert problem is not None
    assert repr(name) in problem or "'zarr.json'" in problem


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=12))
def test_a_name_is_always_one_harmless_folder(name: str) -> None:
    if is_name(name):
        assert os.path.basename(name) == name
        assert os.path.normpath(name) == name
        assert name.isascii()
        assert not name.startswith(".")
