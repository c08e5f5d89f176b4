"""Tables as plain text."""

from __future__ import annotations

import pytest

from jobrun.cli.table import fitted, table

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

    def made(width: int, *spare: int) -> tuple[str, list[int]]:
        found = fitted(header, rows, "lrlr", width=width, spare=spare)
        return found.text, [*found.left_out]

    assert made(20, 1, 2) == ("name  n  saved  time\npi    1  20:15   3 s", [])
    assert made(19, 1, 2) == ("name  saved  time\npi    20:15   3 s", [1])
    assert made(16, 1, 2) == ("name  n  time\npi    1   3 s", [2])  # there is room for a narrow one
    assert made(10, 1, 2) == ("name  time\npi     3 s", [1, 2])
    blocks = fitted(header, rows, "lrlr", width=9, spare=(1, 2))
    assert blocks.text == "name   pi\nn      1\nsaved  20:15\ntime   3 s"
    assert blocks.blocks


def test_a_column_that_follows_another_does_not_stay_alone() -> None:
    header, rows = ("name", "a_long_metric", "best"), [("pi", "1", "2")]
    assert fitted(header, rows, width=14, spare=(2, 1)).left_out == [1]
    assert fitted(header, rows, width=14, spare=(2, 1), follows=[2]).left_out == [1, 2]


def test_the_first_column_is_cut_where_that_is_enough() -> None:
    header, rows = ("name", "state", "loss"), [("a_long_name_of_a_run", "done", "0.125")]
    whole = fitted(header, rows, width=34, shortens=True, spare=(2,))
    assert whole.text.splitlines()[1] == "a_long_name_of_a_run  done   0.125"
    cut = fitted(header, rows, width=33, shortens=True, spare=(2,))
    assert cut.text.splitlines()[1] == "a_long_na…_of_a_run  done   0.125"
    narrow = fitted(header, rows, width=24, shortens=True, spare=(2,))
    assert (narrow.text.splitlines()[1], narrow.left_out) == ("a_long_n…of_a_run  done", [2])
    assert fitted(header, rows, width=20, shortens=True, spare=(2,)).blocks


def test_a_long_label_hangs_above_its_values() -> None:
    rows = [("state", "finished"), ("a_metric_with_a_long_name", "0.5")]
    assert table(("", "1"), rows, width=26, hangs=True).splitlines() == [
        *("       1", "state  finished", "a_metric_with_a_long_name", "       0.5"),
    ]


def test_the_last_column_may_flow() -> None:
    rows = [("a", "one two three four five six"), ("b", "seven")]
    assert table(("x", "text"), rows, width=23, flows=True).splitlines() == [
        *("x  text", "a  one two three four", "   five six", "b  seven"),
    ]
    assert table(("x", "text"), rows, width=17, flows=True).count("\n\n") == 1  # no room: blocks
    assert table(("x", "text"), rows, flows=True).splitlines()[1].endswith(" six")
    words = [("a", "one two a_word_that_is_longer_than_the_column")]
    assert table(("x", "text"), words, width=23, flows=True).splitlines() == [
        *("x     a", "text  one two", "      a_word_that_is_longer_than_the_column"),
    ]
