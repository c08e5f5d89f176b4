"""Errors: one tree, exit codes, and texts with places."""

from __future__ import annotations

import inspect

import pytest

from jobrun import errors
from jobrun.errors import BindError, JobrunError, Problem, SpecError, Where

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, JobrunError)]


def test_the_tree_is_drawn_with_its_exit_codes() -> None:
    drawing = (errors.__doc__ or "").splitlines()
    for cls in CLASSES:
        line = next(x for x in drawing if x.lstrip("│├└─ ").startswith(cls.__name__))
        assert cls is JobrunError or f" {cls.exit_code} " in line
        assert cls.__name__ in errors.__all__


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
