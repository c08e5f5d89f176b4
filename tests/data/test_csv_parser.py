"""CSV cells of any length: a limit for each file, none for others."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrun.data.csv_parser import CELL_LIMIT, records


def test_a_cell_may_be_as_long_as_the_limit() -> None:
    line = "x" * 200_000
    assert list(records([line + ",y"], ",", 200_000)) == [[line, "y"]]
    with pytest.raises(ValueError, match=r"more than 199999 characters.*raise 'cell_limit'"):
        list(records([line + ",y"], ",", 199_999))


def test_the_limit_counts_the_lines_of_a_quoted_cell_together() -> None:
    lines = ['"' + "x" * 60 + "\n", "y" * 60 + '"\n']
    assert next(records(lines, ",", 121))[0] == "x" * 60 + "\n" + "y" * 60
    with pytest.raises(ValueError, match="close a quote"):
        list(records(lines, ",", 120))


def test_an_open_quote_ends_at_the_limit_and_not_at_the_end_of_the_file() -> None:
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        yield '"open\n'
        while True:
            read += 1
            yield "x" * 99 + "\n"

    with pytest.raises(ValueError, match="more than 1000 characters"):
        list(records(lines(), ",", 1000))
    assert read < 12


def test_limits_of_others_stay_as_they_are() -> None:
    """Neither does a file change what csv accepts elsewhere, nor the other way round."""
    before = csv.field_size_limit()
    short, long = "x" * 50, "x" * (before + 1)

    def read(limit: int) -> list[bool]:
        found = []
        for _ in range(50):
            for line in (short, long):
                try:
                    found.append(next(iter(records([line], ",", limit))) == [line])
                except ValueError:
                    found.append(False)
        return found

    with ThreadPoolExecutor(3) as pool:
        many, few, usual = pool.map(read, (before + 1, 49, CELL_LIMIT))
    assert (many, few, usual) == ([True, True] * 50, [False, False] * 50, [True, False] * 50)
    assert csv.field_size_limit() == before
    with pytest.raises(csv.Error):
        next(csv.reader([long]))
    csv.field_size_limit(10)
    try:
        assert read(CELL_LIMIT) == [True, False] * 50
    finally:
        csv.field_size_limit(before)


@given(st.lists(st.text('a",\t \r\n', max_size=9), max_size=6), st.sampled_from(",\t"))
def test_records_are_those_of_csv(lines: list[str], delimiter: str) -> None:
    def outcome(read: Iterator[list[str]]) -> list[list[str]] | str:
        try:
            return [r for r in read if r]
        except (csv.Error, ValueError) as error:
            return str(error)

    expected = outcome(csv.reader(lines, delimiter=delimiter, strict=True))
    assert outcome(records(lines, delimiter, CELL_LIMIT)) == expected
