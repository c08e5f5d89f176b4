"""Spans of time are read and written in one form, bytes written."""

import pytest

from jobrun.core.text import duration, either, seconds_of, size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 ms"),
        (0.00321, "3.2 ms"),
        (0.0996, "0.10 s"),
        (0.214, "0.21 s"),
        (0.999, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1m00s"),
        (245, "4m05s"),
        (3599.7, "1h00m"),
        (7380, "2h03m"),
    ],
)
def test_how_long_it_took_is_written_shortly(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("15m", 900.0),
        ("2h", 7200.0),
        ("1h30m", 5400.0),
        ("0.5s", 0.5),
        ("1h 1s", 3601.0),
        ("", None),
        ("90", None),
        ("15 min", None),
        ("-3s", None),
        ("30m1h", None),
    ],
)
def test_a_time_is_read_as_seconds(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1234, "1.23 kB"), (5 * 10**9, "5 GB")],
)
def test_size(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("names", "text"), [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c")]
)
def test_alternatives(names: list[str], text: str) -> None:
    assert either(names) == text
