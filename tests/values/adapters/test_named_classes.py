"""A checkpoint names classes and fields: looking for them and filling them runs no code."""

from __future__ import annotations

import dataclasses
import enum
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.named_classes import class_named, member_named, name_of, set_field
from jobrun.values.adapters.structural import DataclassAdapter, NamedTupleAdapter

ran: list[str] = []


class Color(enum.Enum):
    RED = 1


class Outer:
    class Inner:
        pass

    color = Color.RED

    @property
    def acts(self) -> Any:
        ran.append("a property was read")
        return int

    @acts.setter
    def acts(self, value: Any) -> None:
        ran.append("a property was set")


class Asks(type):
    def __getattr__(cls, name: str) -> Any:
        ran.append("a metaclass was asked")
        return int


class Asked(metaclass=Asks):
    pass


class Loader:
    """As ``ctypes.cdll``, of which each attribute is a shared library that is loaded for it."""

    def __getattr__(self, name: str) -> Any:
        ran.append(f"{name} was loaded")
        raise AttributeError(name)


loader = Loader()


@dataclasses.dataclass
class Acting:
    acts: Any = Outer.acts


@dataclasses.dataclass
class Ending:
    path: str

    def __del__(self) -> None:
        ran.append(f"{getattr(self, 'path', '')} was removed")


class EndingPair(NamedTuple):
    path: str


class EndingTuple(EndingPair):
    def __del__(self) -> None:
        ran.append("a tuple ended")


@dataclasses.dataclass(slots=True)
class Slotted:
    x: int


@dataclasses.dataclass
class Guarded:
    x: int

    def __setattr__(self, name: str, value: Any) -> None:
        ran.append("__setattr__ was called")
        object.__setattr__(self, name, value)

    @classmethod
    def __init_subclass__(cls) -> None:
        ran.append("a class was made")


@pytest.fixture(autouse=True)
def _nothing_runs() -> Iterator[None]:
    ran.clear()
    yield
    assert ran == []


def named(path: str) -> str:
    return f"{__name__}:{path}"


def test_classes_and_members_are_found_by_their_names() -> None:
    assert class_named(name_of(Outer.Inner)) is Outer.Inner
    assert class_named("collections:OrderedDict") is not None
    assert member_named(named("Color.RED")) is Color.RED


@pytest.mark.parametrize(
    "path",
    ["", ".", "loader", "loader.x", "loader./tmp/library", "Outer.acts", "Outer.acts.fget",
     "Asked.x", "Asked.__class__", "Outer.color", "sys.modules", "subprocess.Popen", "Ending",
     "Outer.__dict__", "Outer.Inner.x", "nothing", "enum.Enum"],
)  # fmt: skip
def test_what_is_no_class_of_the_module_is_not_found(path: str) -> None:
    assert "subprocess" in globals()  # the module of another one is not gone through
    subprocess.DEVNULL  # noqa: B018
    assert class_named(named(path)) is None
    assert member_named(named(path)) is None


def test_a_module_is_not_asked_for_what_it_has_not() -> None:
    module = ModuleType("lazy_one")
    module.__dict__["__getattr__"] = lambda name: ran.append(f"{name} was imported")
    sys.modules["lazy_one"] = module
    try:
        assert class_named("lazy_one:part") is None
        assert member_named("lazy_one:part.X") is None
    finally:
        del sys.modules["lazy_one"]
    assert class_named("not_imported:X") is None


def test_no_shared_library_is_loaded_for_a_name() -> None:
    code = (
        "import ctypes; from jobrun.values.adapters.structural import DataclassAdapter; "
        "ctypes.CDLL.__init__ = lambda *args: print('loaded'); "
        "DataclassAdapter().load({}, {'class': 'ctypes:cdll./tmp/library'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == ""
    assert "which is not there now" in done.stderr


def test_fields_are_set_past_the_class() -> None:
    made: Any = object.__new__(Guarded)
    set_field(made, "x", 3)
    assert made.x == 3
    made = object.__new__(Slotted)
    set_field(made, "x", 3)
    assert made.x == 3
    with pytest.raises(AttributeError, match="no field 'y'"):
        set_field(made, "y", 3)
    made = Outer()
    set_field(made, "acts", 3)
    set_field(made, "__class__", Outer.Inner)
    assert type(made) is Outer
    assert vars(made) == {"acts": 3, "__class__": Outer.Inner}


def test_a_dataclass_is_made_without_its_own_code() -> None:
    adapter = DataclassAdapter()
    assert adapter.load({"x": 3}, {"class": name_of(Guarded)}).x == 3
    assert adapter.load({"x": 3}, {"class": name_of(Slotted)}) == Slotted(3)
    for kind, plain in ((Acting, {"acts": 1}), (Ending, {"path": "/etc"})):
        with pytest.raises(ValueRefusedError):
            adapter.load(plain, {"class": name_of(kind)})


def test_what_could_not_be_made_again_is_refused_when_it_is_kept() -> None:
    ending: Any = object.__new__(Ending)
    with pytest.raises(ValueRefusedError, match="has a method __del__"):
        DataclassAdapter().dump(ending)
    acting: Any = object.__new__(Acting)
    with pytest.raises(ValueRefusedError, match="the field 'acts' of a Acting is a property"):
        DataclassAdapter().dump(acting)
    pair: Any = tuple.__new__(EndingTuple, ("x",))
    with pytest.raises(ValueRefusedError, match="has a method __del__"):
        NamedTupleAdapter().dump(pair)
    del ending, pair
    assert ran.pop() == "a tuple ended"
    assert ran.pop() == " was removed"
