"""Which adapter takes an object."""

from __future__ import annotations

import dataclasses
import random
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from jobrun.errors import UsageError
from jobrun.values.adapters import registry
from jobrun.values.adapters.base import Meta, Plain
from jobrun.values.adapters.registry import adapter_named, live_adapter, register, value_adapter

Point = namedtuple("Point", "x y")


@dataclasses.dataclass
class Config:
    rate: float


class Env:
    def __init__(self, place: int = 0) -> None:
        self.place = place


class Longer(Env):
    pass


class EnvAdapter:
    name = "test.Env"
    version = 1

    def state(self, obj: Env) -> Plain:
        return {"place": obj.place}

    def restore(self, obj: Env, state: Plain) -> Env:
        obj.place = state["place"]
        return obj

    def copy(self, obj: Env) -> Env:
        return Env(obj.place)


class EnvValue:
    name = "test.EnvValue"
    version = 1

    def dump(self, value: Env) -> tuple[Plain, Meta]:
        return value.place, {}

    def load(self, plain: Plain, meta: Meta) -> Env:
        return Env(plain)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    registry._registered.clear()
    registry._found.clear()


@pytest.mark.parametrize(
    ("obj", "name"),
    [
        (1j, "python.complex"),
        (b"x", "python.bytes"),
        ((1, 2), "python.tuple"),
        (random.Random(1), "python.random.Random"),
        (np.random.default_rng(1), "numpy.random.Generator"),
        (np.random.RandomState(1), "numpy.random.RandomState"),
        (Point(1, 2), "namedtuple"),
        (Config(0.1), "dataclass"),
    ],
)
def test_values_are_found_by_their_type(obj: Any, name: str) -> None:
    adapter = value_adapter(obj)
    assert adapter is not None
    assert adapter.name == name
    assert adapter_named(name) is adapter
    assert live_adapter(obj) is None


@pytest.mark.parametrize("obj", [{}, [], "", 1, 0.5, True, None, object(), Env(), len])
def test_what_is_plain_or_unknown_has_none(obj: Any) -> None:
    assert value_adapter(obj) is None
    assert live_adapter(obj) is None


def test_a_registered_adapter_takes_derived_types_too() -> None:
    assert live_adapter(Longer()) is None
    adapter = EnvAdapter()
    register(Env, adapter)
    assert live_adapter(Longer()) is adapter
    assert value_adapter(Longer()) is None
    assert adapter_named("test.Env") is adapter


def test_the_more_special_type_decides_between_value_and_live_object() -> None:
    register(Env, EnvAdapter())
    register(Longer, EnvValue())
    assert live_adapter(Longer()) is None
    assert value_adapter(Longer()) is not None
    assert live_adapter(Env()) is not None


@pytest.mark.parametrize("wrong", [object(), EnvAdapter, None])
def test_what_is_no_adapter_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError):
        register(Env, wrong)


def test_a_name_that_nobody_knows_imports_nothing() -> None:
    code = (
        "import sys; from jobrun.values.adapters.registry import adapter_named; "
        "before = set(sys.modules); "
        "names = ['antigravity.x', 'os', 'json.tool.y', '..', 'base.x', 'sqlite3.Row', '', 'a b']; "
        "print([adapter_named(n) for n in names]); "
        "print(sorted(m for m in set(sys.modules) - before if not m.startswith('jobrun')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    none, imported = done.stdout.splitlines()
    assert none == str([None] * 8)
    assert "antigravity" not in imported
    assert "sqlite3" not in imported
