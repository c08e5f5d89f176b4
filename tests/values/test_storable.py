"""What can be saved, and what to do about the rest."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jobrun.errors import ValueRefusedError
from jobrun.values.adoption import adopt
from jobrun.values.storable import check_storable, is_storable


class Subclass(np.ndarray[Any, Any]):
    """An array of a class of its own, whose meaning jobrun does not know."""


class Odd:
    """Some object."""


class Trainable:
    """An object with a state."""

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Do nothing."""


class Colour(Enum):
    RED = 1


@dataclass
class Config:
    rate: float
    tags: Any


@pytest.mark.parametrize(
    "obj",
    [
        np.zeros(2, code)
        for code in ("?", "i1", "u8", "f2", ">f4", "f8", "c8", "c16", "M8[ns]", "m8[D]", "U3", "S2")
    ]
    + [np.zeros(2, "i4,>f8"), np.zeros(2, ml_dtypes.bfloat16), np.float32(1), "x", None, 1, True],
    ids=lambda o: str(getattr(o, "dtype", o)),
)
def test_what_can_be_saved(obj: Any) -> None:
    check_storable(adopt([{"a": [obj]}]), "blob")
    assert is_storable(adopt([{"a": [obj]}]))


@pytest.mark.parametrize(
    ("obj", "what", "remedy"),
    [
        (np.zeros(2, np.longdouble), "longdouble|float128|float96", "astype"),
        (np.zeros(2, np.clongdouble), "complex", "astype"),
        (np.longdouble(1), "longdouble|float128|float96", "astype"),
        (np.zeros(2, [("x", np.longdouble)]), "dtype", "astype"),
        (np.zeros(2, [("x", np.longdouble, (2,))]), "dtype", "astype"),
        (np.array([1, "a"], object), "Python objects", "numbers or fixed strings"),
        (np.zeros(2).view(Subclass), "Subclass", "numbers or fixed strings"),
        ({"W": 1, "v": 2, "w": 3}, "its keys 'W' and 'w' differ in case only", "rename one"),
        ({b"a": 2}, "keys are not all strings, numbers or tuples: one is a bytes", "strings"),
        (Odd(), "Odd", "setup"),
        ({1, 2}, "it is a set", "sorted"),
        (datetime(2026, 11, 28, tzinfo=UTC), "it is a datetime.datetime", "np.datetime64"),
        (timedelta(1), "it is a datetime.timedelta", "np.timedelta64"),
        (Decimal("0.1"), "it is a decimal.Decimal", "str"),
        (Path("x"), "it is a pathlib", "str"),
        (deque([1]), "it is a collections.deque", "list"),
        (Counter("ab"), "it is a collections.Counter", "dict"),
        (Colour.RED, "Colour", "x.name"),
        (Config(1, {1, 2}), r"Config, and its \['tags'\] is a set", "sorted"),
        (Config(1, [(2, Odd())]), r"Config, and its \['tags'\]\[0\]\[1\] is a .*Odd", "register"),
        (Trainable(), "Trainable, an object whose state can be saved", "'state'"),
        (np.array([1, "a"], object), r"Python objects \(int, str\)", "astype"),
    ],
)
def test_what_cannot_be_saved_is_named_with_a_remedy(obj: Any, what: str, remedy: str) -> None:
    if what.startswith("longdouble") and np.dtype(np.longdouble).itemsize == 8:
        pytest.skip("a long double is a double here")
    assert not is_storable(adopt([{"a": [obj]}]))
    with pytest.raises(ValueRefusedError, match=what) as caught:
        check_storable(adopt([{"a": [obj]}]), "blob")
    assert "'blob/a/0'" in caught.value.message
    assert remedy in caught.value.hint


def test_what_an_adapter_refuses_is_said() -> None:
    odd = np.array(["a", ""], np.dtypes.StringDType(na_object=""))
    with pytest.raises(ValueRefusedError, match="an array of strings whose missing value is ''"):
        check_storable(adopt([odd]), "x")


def test_keys_that_are_no_names_are_shown_as_they_are() -> None:
    with pytest.raises(ValueRefusedError, match=r"blob \"x\['a/b'\]/c\[0\]\" persists"):
        check_storable(adopt([{"a/b": {"c": {0: {1, 2}}}}]), "x")
