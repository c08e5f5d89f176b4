"""Tables as plain text."""

from __future__ import annotations

import pytest

from jobrun.cli.table import labelled, table, text_width

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


def test_spare_columns_are_left_out_before_rows_become_blocks() -> None:
    header, rows = ("name", "n", "saved", "time"), [("pi", "1", "20:15", "3 s")]
    whole = "name  n  saved  time\npi    1  20:15   3 s"
    assert table(header, rows, "lrlr", width=20, spare=(1, 2)) == whole
    assert table(header, rows, "lrlr", width=19, spare=(1, 2)) == (
        "name  saved  time\npi    20:15   3 s"
    )
    assert table(header, rows, "lrlr", width=16, spare=(1, 2)) == "name  time\npi     3 s"
    assert table(header, rows, "lrlr", width=9, spare=(1, 2)) == (
        "name   pi\nn      1\nsaved  20:15\ntime   3 s"
    )


def test_the_last_column_may_flow() -> None:
    rows = [("a", "one two three four five six"), ("b", "seven")]
    assert table(("x", "text"), rows, width=23, flows=True).splitlines() == [
        *("x  text", "a  one two three four", "   five six", "b  seven"),
    ]
    assert table(("x", "text"), rows, width=17, flows=True).count("\n\n") == 1  # no room: blocks
    assert table(("x", "text"), rows, flows=True).splitlines()[1].endswith(" six")


def test_labelled_texts_are_broken_at_spaces() -> None:
    facts = [("job", "pi"), ("vars", ""), ("uses", "numpy 2.4.6, scipy-openblas 0.3.31")]
    whole = ["  job  pi", "  uses numpy 2.4.6, scipy-openblas 0.3.31"]
    assert labelled(facts, 4) == labelled(facts, 4, width=80) == whole
    assert labelled(facts, 4, width=30) == [
        "  job  pi",
        "  uses numpy 2.4.6,",
        "       scipy-openblas 0.3.31",
    ]


@pytest.mark.parametrize(("text", "width"), [("ab", 2), ("é", 1), ("e\u0301", 1), ("数", 2)])
def test_the_width_of_texts(text: str, width: int) -> None:
    assert text_width(text) == width
