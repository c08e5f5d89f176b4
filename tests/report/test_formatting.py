"""How numbers, sizes, times and the user's text are written."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.core.text import size
from jobrun.report.formatting import (
    json_line,
    json_values,
    metric_texts,
    number,
    percent,
    plain,
    plural,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (123456789, "123456789"),
        (0.123456789, "0.12346"),
        (1e-12, "1e-12"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (True, "true"),
        (False, "false"),
        (None, "-"),
        ("a\x1b[1mb", "a\\x1b[1mb"),
        ("a\u202etxt.exe", "a\\u202etxt.exe"),
        ("a\u2066b\u2028c\u200fd", "a\\u2066b\\u2028c\u200fd"),
    ],
)
def test_number(value: object, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1_234_567, "1.23 MB"),
        (999_900, "1 MB"),
        (5_000_000_000, "5 GB"),
        (7_000_000_000_000, "7 TB"),
        (7_000_000_000_000_000, "7000 TB"),
    ],
)
def test_size(count: int, text: str) -> None:
    assert size(count) == text


def test_plural_and_metrics() -> None:
    assert (plural(1, "epoch"), plural(0, "epoch")) == ("1 epoch", "0 epochs")
    assert metric_texts({"acc[val]": 0.5, "n": 3}, ("acc[val]",)) == ["acc[val] 0.5*", "n 3"]


@given(st.text())
@settings(max_examples=50, deadline=None)
def test_plain_text_holds_no_control_character(text: str) -> None:
    assert not any(ord(c) < 32 and c not in "\t\n" for c in plain(text))
    assert "\x7f" not in plain(text)
    assert "\x9b" not in plain(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(VALUES)
@settings(max_examples=50, deadline=None)
def test_json_values_are_strict_json(value: object) -> None:
    json.loads(json.dumps(json_values(value), allow_nan=False))


def test_a_line_of_json_holds_numbers_of_numpy_and_what_is_not_finite() -> None:
    values = {"a": np.float32(0.5), "b": np.float64("nan"), "c": [np.int64(3), math.inf]}
    found = json.loads(json_line({"event": "x", "of": values}))
    assert found.pop("time").endswith("Z")
    assert found == {"event": "x", "of": {"a": 0.5, "b": "NaN", "c": [3, "Infinity"]}}


def test_json_values_of_what_is_not_finite() -> None:
    values = json_values({"a": math.nan, "b": (math.inf, -math.inf)})
    assert values == {"a": "NaN", "b": ["Infinity", "-Infinity"]}


def test_bytes_that_are_no_text() -> None:
    assert plain("x\udcff/é") == "x\\xff/é"


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0%"), (0.0004, "<0.1%"), (0.0005, "0.1%"), (0.003, "0.3%"), (0.0994, "9.9%"),
        (0.0996, "10%"), (0.106, "11%"), (1.0, "100%"),
    ],
)  # fmt: skip
def test_percent(share: float, text: str) -> None:
    assert percent(share) == text
