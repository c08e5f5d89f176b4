"""Charts as text."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.report.chart import Look, Series, chart

RISING = Series("a", [(1, 0.0), (2, 5.0), (3, 10.0)])
BROKEN = Series("pi-2", [(1, 10.0), (2, math.nan), (3, 0.0)])
SMALL = Look(columns=24, rows=5)
ASCII = Look(columns=24, rows=5, unicode=False)
COLOR = Look(columns=24, rows=5, color=True)


def drawn(series: list[Series], look: Look) -> str:
    return "\n".join(chart("loss", series, look)) + "\n"


def test_braille() -> None:
    assert drawn([RISING], SMALL) == (
        "loss\n"
        "10 ┤                ⢀⡠⠔⠊\n"
        "   │            ⢀⡠⠔⠊⠁\n"
        " 5 ┤        ⢀⡠⠔⠊⠁\n"
        "   │    ⣀⡠⠔⠊⠁\n"
        " 0 ┤⣀⠤⠒⠉\n"
        "   └────────────────────\n"
        "    1      epoch       3\n"
    )


def test_ascii() -> None:
    assert drawn([RISING], ASCII) == (
        "loss\n"
        "10 +                 ***\n"
        "   |             ****\n"
        " 5 +        *****\n"
        "   |   *****\n"
        " 0 +***\n"
        "   +--------------------\n"
        "    1      epoch       3\n"
    )


def test_several_lines_without_colours_are_letters_and_nan_is_a_gap() -> None:
    assert drawn([RISING, BROKEN], SMALL) == (
        "loss\n"
        "  a a   b pi-2\n"
        "10 ┤b                aaa\n"
        "   │             aaaa\n"
        " 5 ┤        aaaaa\n"
        "   │   aaaaa\n"
        " 0 ┤aaa                b\n"
        "   └────────────────────\n"
        "    1      epoch       3\n"
    )


def test_several_lines_have_colours() -> None:
    text = drawn([RISING, BROKEN], COLOR)
    assert "  \x1b[36m⠒\x1b[0m a   \x1b[33m⠒\x1b[0m pi-2\n" in text
    assert "⢀⡠⠔⠊⠁" in re.sub(r"\x1b\[\d*m", "", text)


def test_a_logarithmic_scale_leaves_out_what_is_not_positive() -> None:
    line = Series("a", [(1, 0.001), (2, math.inf), (3, 0), (4, 1), (5, 1000)])
    assert drawn([line], Look(24, 7, log=True)) == (
        "loss\n"
        " 1000 ┤               ⢀⠎\n"
        "      │              ⢀⠎\n"
        "   10 ┤             ⢠⠃\n"
        "      │            ⠠⠃\n"
        "  0.1 ┤\n"
        "      │\n"
        "0.001 ┤⡀\n"
        "      └─────────────────\n"
        "       1     epoch     5\n"
    )


@pytest.mark.parametrize(
    ("values", "look", "text"),
    [
        ([math.nan, math.inf], SMALL, "no value is finite"),
        ([0.0, -1.0], Look(log=True), "no value is positive and finite"),
        ([], SMALL, "no value is finite"),
    ],
)
def test_nothing_to_draw(values: list[float], look: Look, text: str) -> None:
    series = Series("a", list(enumerate(values)))
    assert chart("loss", [series], look) == ["loss", f"  {text}"]


@pytest.mark.parametrize("values", [[3.0], [0.0, 0.0], [5e-324], [1e308, -1e308], [-7.0] * 9])
def test_one_value_and_the_largest_range(values: list[float]) -> None:
    lines = chart("loss", [Series("a", list(enumerate(values)))], SMALL)
    assert len(lines) == 8
    assert any("⠀" < c <= "⣿" for line in lines for c in line)


@given(
    st.lists(st.lists(st.floats(), max_size=12), min_size=1, max_size=3),
    st.integers(1, 100),
    st.integers(3, 30),
    st.booleans(),
    st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_every_series_fits(
    values: list[list[float]], columns: int, rows: int, unicode: bool, log: bool
) -> None:
    series = [Series(f"r{n}", list(enumerate(v))) for n, v in enumerate(values)]
    look = Look(columns, rows, unicode, log=log)
    lines = chart("loss", series, look)
    if len(lines) == 2:
        return
    legend = len(series) > 1
    assert len(lines) == rows + 3 + legend
    plot = lines[1 + legend :]
    width = max(columns, len(plot[-2]))
    assert all(len(line) <= width for line in plot)
    marks = set("┤│") if unicode else set("+|")
    assert all(marks & set(line) for line in plot[:rows])
    if not unicode:
        assert "\n".join(lines).isascii()
