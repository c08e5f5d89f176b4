from __future__ import annotations

import json

import pytest

from jobrun.storage import bounded_json
from jobrun.storage.bounded_json import JsonLimitError, check_length, parse_json


@pytest.mark.parametrize("value", [None, 1, "a[,{", [1, [2]], {"a": {"b": [None, True, 0.5]}}])
def test_what_is_within_the_limits_is_parsed(value: object) -> None:
    assert parse_json(json.dumps(value).encode()) == value


def test_a_string_that_is_not_closed_is_looked_at_once() -> None:
    """Searched again from each of its quotes, this took hours."""
    with pytest.raises(JsonLimitError, match="values"):
        parse_json(b"[" + b"0," * 2_000_000 + b'"' + rb"\"" * 1_000_000)


@pytest.mark.parametrize("depth", [101, 5000, 1_000_000])
@pytest.mark.parametrize("ends", [("[", "]"), ('{"a":', "}")])
def test_depth_has_a_limit_that_is_named(depth: int, ends: tuple[str, str]) -> None:
    text = ends[0] * depth + "1" + ends[1] * depth
    with pytest.raises(JsonLimitError, match="nested more than 100 levels deep"):
        parse_json(text.encode())
    with pytest.raises(JsonLimitError, match="deep"):
        parse_json(b'{"b":0,"a":[1,' + text.encode() + b"]}")


def test_a_hundred_levels_are_no_more_than_a_hundred() -> None:
    assert parse_json(b"[" * 100 + b"]" * 100)


def test_size_and_values_have_limits_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_json, "MAX_VALUES", 10)
    assert parse_json(b"[1,2,3,4,5,6,7,8,9]") == [*range(1, 10)]
    with pytest.raises(JsonLimitError, match="more than 10 values"):
        parse_json(b"[{},{},{},{},{},{},{},{},{}]")
    for text in (r'["a,b,c,d,e,f,g,h,i,j,k,l"]', r'["\",[[[[[[[[[[[[", "\\"]'):
        assert parse_json(text.encode()) == json.loads(text), "marks within texts are no values"
    monkeypatch.setattr(bounded_json, "MAX_BYTES", 20)
    with pytest.raises(JsonLimitError, match="longer than 20 bytes"):
        check_length(b"1" * 21)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[1,]", b"1" * 5000])
def test_what_is_no_json_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_json(data)
    assert not isinstance(caught.value, JsonLimitError)
