"""Hints for unknown names."""

from __future__ import annotations

import pytest

from jobrun.core.suggestions import did_you_mean, did_you_mean_or_all, listed, nearest


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("ephocs", ["epochs", "when"], ["epochs"]),
        ("LOSS", ["loss", "lass"], ["loss", "lass"]),
        ("zzz", ["epochs"], []),
        ("x", [], []),
    ],
)
def test_nearest(name: str, known: list[str], expected: list[str]) -> None:
    assert nearest(name, known) == expected


def test_nearest_among_many() -> None:
    known = [f"blob_{i}" for i in range(5000)]
    assert nearest("bloob_4321", known)[0] == "blob_4321"
    assert nearest("zzz", known) == []


def test_did_you_mean() -> None:
    assert did_you_mean("epoch", ["epochs", "epoch_2"]) == "did you mean 'epochs' or 'epoch_2'?"
    assert did_you_mean("zzz", ["epochs"]) == ""


def test_all_that_there_is_where_no_name_is_near() -> None:
    assert did_you_mean_or_all("los", ["loss", "x"]) == "did you mean 'loss'?"
    assert did_you_mean_or_all("q", ["loss", "x"]) == "there are loss, x"
    assert did_you_mean_or_all("q", [f"blob_{n}" for n in range(9)], most=2) == (
        "there are blob_0, blob_1, …"
    )
    assert did_you_mean_or_all("q", []) == ""


def test_all_names_are_listed_without_a_near_one() -> None:
    assert listed([]) == ""
    assert listed(["loss"]) == "there is loss"
    assert listed(["loss", "1e-3", "loss"]) == "there are loss, 1e-3"
    assert listed(["b", "a"], "the tasks write") == "the tasks write b, a"
    assert listed(["a", "b", "c"], most=2) == "there are a, b, …"


def test_a_name_with_spaces_or_marks_is_quoted() -> None:
    assert listed(["a b", "it's", "a,b", ""]) == """there are 'a b', "it's", 'a,b', ''"""
