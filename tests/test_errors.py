"""Errors: one tree, exit codes, and texts with places."""

from __future__ import annotations

import inspect

import pytest

from jobrun import errors
from jobrun.errors import (
    BindError,
    JobrunError,
    Problem,
    SpecError,
    Where,
    did_you_mean,
    did_you_mean_or_all,
    nearest,
)

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, JobrunError)]


def test_the_tree_is_drawn_with_its_exit_codes() -> None:
    drawing = (errors.__doc__ or "").splitlines()
    for cls in CLASSES:
        line = next(x for x in drawing if x.lstrip("│├└─ ").startswith(cls.__name__))
        assert cls is JobrunError or f" {cls.exit_code} " in line
        assert cls.__name__ in errors.__all__


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


def test_a_place_shows_its_line_and_a_caret() -> None:
    where = Where("s.yaml", 12, 7, "stop: {epohcs: 3}", 6)
    assert str(where) == "s.yaml:12:7"
    assert where.snippet() == "   12 | stop: {epohcs: 3}\n      |       ^^^^^^"
    assert Where("s.yaml", 2, 2, "\tx", 1).snippet() == "    2 | \tx\n      | \t^"
    assert Where("s.yaml").snippet() == ""
    assert str(Where("s.yaml")) == "s.yaml"


@pytest.mark.parametrize("column", [1, 30, 500, 990, 1000])
def test_a_long_line_is_shown_around_its_place(column: int) -> None:
    text = "".join(chr(ord("a") + i % 26) for i in range(1000))
    shown, caret = Where("s.yaml", 1, column, text, 900).snippet().splitlines()
    assert len(shown) < 140
    at = caret.index("^")
    assert shown[at] == text[column - 1]
    assert len(caret) <= len(shown)


def test_a_problem_says_what_where_and_what_to_do() -> None:
    where = Where("s.yaml", 1, 1, "x: 1", 1)
    text = "s.yaml:1:1: error: unknown key 'x'; did you mean 'y'?\n    1 | x: 1\n      | ^"
    assert str(Problem("unknown key 'x'", where, "did you mean 'y'?")) == text
    assert str(Problem("no stop condition")) == "error: no stop condition"


def test_the_problems_of_a_spec_come_in_order_of_their_places() -> None:
    problems = [Problem("b", Where("s", 3, 1)), Problem("c", Where("s", 3, 9)), Problem("a")]
    error = SpecError(problems[::-1])
    assert [p.message for p in error.problems] == ["a", "b", "c"]
    assert str(error).count("error: ") == 3
    assert str(SpecError("nothing")) == "error: nothing"


def test_an_error_is_all_text() -> None:
    error = BindError("no", where=Where("s", 1, 1, "x", 1), hint="try", trace="lines")
    assert str(error) == "s:1:1: no\n    1 | x\n      | ^\n  hint: try"
    assert error.trace == "lines"


def test_all_that_there_is_where_no_name_is_near() -> None:
    assert did_you_mean_or_all("los", ["loss", "x"]) == "did you mean 'loss'?"
    assert did_you_mean_or_all("q", ["loss", "x"]) == "there are 'loss', 'x'"
    assert did_you_mean_or_all("q", [f"blob_{n}" for n in range(9)], most=2) == (
        "there are 'blob_0', 'blob_1', …"
    )
    assert did_you_mean_or_all("q", []) == ""
