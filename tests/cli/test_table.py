"""Tables as plain text."""

from __future__ import annotations

import pytest

from jobrun.cli.table import table, text_width

ROWS = [("pi", "1"), ("数字", "22"), ("é", "")]


def test_columns_are_as_wide_as_what_they_hold() -> None:
    assert table(("name", "n"), ROWS, "lr") == "name   n\npi     1\n数字  22\né"


@pytest.mark.parametrize("width", [None, 8, 100])
def test_a_width_that_is_enough_changes_nothing(width: int | None) -> None:
    assert table(("name", "n"), ROWS, "lr", width=width) == table(("name", "n"), ROWS, "lr")


def test_too_narrow_for_a_line() -> None:
    assert table(("name", "n"), ROWS, "lr", width=7) == (
        "name  pi\nn     1\n\nname  数字\nn     22\n\nname  é"
    )
    assert table(("name", "n"), [], width=3) == "name  n"


@pytest.mark.parametrize(("text", "width"), [("ab", 2), ("é", 1), ("e\u0301", 1), ("数", 2)])
def test_the_width_of_texts(text: str, width: int) -> None:
    assert text_width(text) == width
