"""Keys that are not names."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrun.core.names import is_name
from jobrun.core.tree_keys import decode_key, encode_key, folder_names, is_key

_SIMPLE = st.one_of(
    st.text(max_size=8), st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False)
)
_KEYS = st.one_of(
    _SIMPLE, st.tuples(_SIMPLE, _SIMPLE), st.sampled_from(["W", "w", "a.2", "a", "A"])
)


@given(st.lists(_KEYS, unique=True, max_size=12))
def test_every_key_has_a_folder_of_its_own(keys: list[Any]) -> None:
    names = folder_names(keys)
    assert all(map(is_name, names))
    assert len({name.casefold() for name in names}) == len(keys)
    for key, name in zip(keys, names, strict=True):
        twins = [k for k in keys if isinstance(k, str) and k.casefold() == str(key).casefold()]
        if type(key) is str and is_name(key) and twins == [key]:
            assert name == key or any(n.casefold() == key.casefold() for n in names)


def test_plain_names_are_kept() -> None:
    assert folder_names(["w1", "b", "0"]) == ["w1", "b", "0"]
    assert folder_names(["W", "w", 0, "0", "", "a/b", ".x", "zarr.json", (1, "a")]) == [
        "W", "w.2", "0.2", "0", "_", "a_b", "x", "_zarr.json", "1.a",
    ]  # fmt: skip


@given(_KEYS)
def test_a_key_comes_back_from_json(key: Any) -> None:
    assert is_key(key)
    again = decode_key(json.loads(json.dumps(encode_key(key))))
    assert again == key
    assert type(again) is type(key)


def test_float_keys_that_json_does_not_have() -> None:
    assert math.isnan(decode_key(json.loads(json.dumps(encode_key(math.nan)))))
    assert decode_key(encode_key(-math.inf)) == -math.inf


@pytest.mark.parametrize(
    "form", [[1], {"tuple": 1}, {"float": 1}, {"x": 1}, {"float": "x"}, 0.5, {"tuple": [[]]}, {}]
)
def test_what_is_no_key_is_an_error(form: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode_key(form)


@pytest.mark.parametrize("key", [b"x", object(), (1, [2]), 1 << 2_000, frozenset()])
def test_other_objects_are_no_keys(key: Any) -> None:
    assert not is_key(key)
