"""Floats that JSON does not have: one spelling, bit for bit."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrun.core.json_floats import (
    SPECIAL,
    float_text,
    from_json,
    is_tagged,
    parse_float,
    special_name,
    to_json,
)

special = st.one_of(
    st.sampled_from([math.inf, -math.inf, math.nan, -math.nan]),
    st.integers((0x7FF8 << 48) + 1, (1 << 63) - 1).map(
        lambda bits: float(struct.unpack(">d", struct.pack(">Q", bits))[0])
    ),
)


def bits(value: float) -> bytes:
    return struct.pack(">d", value)


@given(special)
def test_a_special_float_keeps_its_bits(value: float) -> None:
    assert bits(parse_float(float_text(value))) == bits(value)
    named = SPECIAL[special_name(value)]
    assert named == value or (math.isnan(named) and math.isnan(value))


@given(st.recursive(special | st.floats() | st.none() | st.text(), st.lists, max_leaves=5))
def test_values_come_back_through_strict_json(value: Any) -> None:
    text = json.dumps(to_json({"x": value}), allow_nan=False)
    assert repr(from_json(json.loads(text))) == repr({"x": value})


def test_the_spelling_is_that_of_the_format() -> None:
    assert [*map(float_text, (math.nan, math.inf, -math.inf))] == ["NaN", "Infinity", "-Infinity"]
    assert float_text(-math.nan) == "0xfff8000000000000"
    assert to_json([np.float32("nan"), np.int64(3), (math.inf,)]) == [
        {"float": "NaN"}, 3, [{"float": "Infinity"}],
    ]  # fmt: skip


def test_the_spelling_of_earlier_versions_is_read() -> None:
    assert from_json({"lr": {"float": "-inf"}}) == {"lr": -math.inf}
    assert math.isnan(from_json({"float": "nan"}))


@pytest.mark.parametrize("value", [{"float": "x"}, {"float": 1}, {"float": "NaN", "a": 1}, "NaN"])
def test_what_is_no_tagged_float_stays(value: Any) -> None:
    assert not is_tagged(value)
    assert from_json(value) == value


@pytest.mark.parametrize("text", ["", "1.5", "infinity", "0x7ff8", "NaN\n"])
def test_another_string_is_no_special_float(text: str) -> None:
    with pytest.raises(ValueError, match="not the spelling"):
        parse_float(text)
