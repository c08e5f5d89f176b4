"""The content of attributes as text and leaves: containers and objects, shared and in circles too.

A *place* names a part of it: ``hidden[0]``, ``ema.shadow['w']``.  The text has numbers, strings and
None as themselves and all else as a dict whose first key says what it is.  ``again`` is a part that
stands at an earlier place too, ``ref`` one that its owner registers (a parameter, a module), and
``leaf`` an array, a tensor, or whatever an adapter of values takes: these stand beside the text.

Parts that ``setup`` has made are known by their place then, under ``own``: other objects may hold
them, so they are filled again, not replaced.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from datetime import date, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from logging import Logger
from pathlib import PurePath
from re import Pattern
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, Final

import numpy as np

from jobrun.core.crc32c import crc32c
from jobrun.errors import ValueRefusedError
from jobrun.values.adapted import take_apart
from jobrun.values.adapters.attributes.makeable import Makeable, made_of_fields
from jobrun.values.adapters.base import Plain
from jobrun.values.adapters.named_classes import member_named, name_of
from jobrun.values.adapters.pytree import live_adapter_of
from jobrun.values.adapters.registry import value_adapter
from jobrun.values.adapters.torch_tensors import is_tensor

__all__ = ["PAIRS", "SCALARS", "SEQUENCES", "AttributeWalk", "fields_in", "mark_of"]

SCALARS: Final = frozenset((bool, int, float, str, type(None)))
SEQUENCES: Final[Mapping[str, type]] = {
    kind.__name__: kind for kind in (list, tuple, set, frozenset, deque)
}
PAIRS: Final[Mapping[str, type]] = {
    kind.__name__: kind for kind in (dict, OrderedDict, Counter, defaultdict)
}
_BY_NAME: Final = {kind: name for name, kind in (*SEQUENCES.items(), *PAIRS.items())}

_TRACKED: Final[Mapping[str, type]] = {
    "keras.src.utils.tracking.TrackedList": list,
    "keras.src.utils.tracking.TrackedDict": dict,
    "keras.src.utils.tracking.TrackedSet": set,
}
"""Types that Keras puts into the place of a list, a dict and a set that is an attribute."""

_FUNCTIONS: Final = (FunctionType, BuiltinFunctionType, MethodType, MethodWrapperType)
_VALUES: Final = (date, time, timedelta, timezone, Decimal, PurePath, Pattern, range, slice)
_STILL: Final = (*_FUNCTIONS, *_VALUES, ModuleType, type, Logger, np.dtype, np.ufunc)
"""Types of which no object changes, or none that a resumed run would miss."""

_STILL_MODULES: Final = frozenset(
    {"_thread", "threading", "functools", "weakref", "torch", "keras"}
)


class AttributeWalk:
    """One walk over attributes.

    ``registered`` are the names of what the owner itself saves, by id; ``first`` the places where
    ``setup`` made an object, by id, None while these are being noted; ``makeable`` the classes of
    which a resumed run can make objects.
    """

    def __init__(
        self,
        registered: Mapping[int, str],
        first: Mapping[int, str] | None = None,
        makeable: Makeable | None = None,
    ) -> None:
        self._registered = registered
        self._first = first
        self._makeable = makeable or Makeable(())
        self._places: dict[int, str] = {}
        self.objects: dict[str, Any] = {}
        """All that has an identity, by place; it is kept here so that its id stays its own."""
        self.leaves: dict[str, Any] = {}
        self.live: dict[str, Any] = {}
        self.lost: dict[str, str] = {}
        """Types, by place, of objects without a form that were not there after ``setup``."""
        self.unseen: dict[str, str] = {}
        """Objects of ``setup`` of which nobody can see whether they change: types, by place."""

    def begin(self) -> None:
        """Begin another attribute: what stands beside its text is collected again."""
        self.leaves, self.live, self.lost = {}, {}, {}

    def form(self, value: Any, place: str) -> Any:
        """Return the text of the value at a place, as JSON takes it."""
        kind = type(value)
        if kind in SCALARS:
            return value
        if kind is complex:
            return {"complex": [value.real, value.imag]}
        if kind is bytes:
            return {"bytes": value.hex()}
        if isinstance(value, np.generic):
            self.leaves[place] = value
            return {"leaf": ""}
        if kind is tuple or kind is frozenset:  # one object at two places by chance
            return {_BY_NAME[kind]: self._items(value, place)}
        if kind.__module__ == "torch" and kind.__name__ in _OF_TORCH:
            return _OF_TORCH[kind.__name__](value)
        if (name := _member_name(value)) is not None:
            return {"global": name}
        if (name := self._registered.get(id(value))) is not None:
            return {"ref": name}
        own = place if self._first is None else self._first.get(id(value), "")
        again = self._places.get(id(value))
        if again is not None:
            own = again if self._first is None else own
            return {"again": again, "own": own} if own else {"again": again}
        self._places[id(value)] = place
        self.objects[place] = value
        form = self._new_form(value, kind, place, own)
        return {**form, "own": own} if own else form

    def _new_form(self, value: Any, kind: type, place: str, own: str) -> dict[str, Any]:
        """Return the text of an object that is met for the first time, without ``own``."""
        kind = _TRACKED.get(f"{kind.__module__}.{kind.__qualname__}", kind)
        if kind in PAIRS.values():
            return self._pairs(value, kind, place)
        if kind in SEQUENCES.values():
            form: dict[str, Any] = {_BY_NAME[kind]: self._items(value, place)}
            return {**form, "maxlen": value.maxlen} if kind is deque else form
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return self._named(value, place)
        if _is_leaf(value):
            self.leaves[place] = value
            return _layout(value)
        if live_adapter_of(value) is not None:
            return self._live(value, place, own)
        if (names := fields_in(value)) is not None:
            return self._object(value, names, place, own)
        if not own:
            self.lost[place] = _described(value)
            return {"lost": self.lost[place]}
        if self._first is None and not _is_still(value):
            self.unseen[place] = _described(value)
        return {"setup": None}

    def _items(self, value: Any, place: str) -> list[Any]:
        found = list(value)
        if isinstance(value, set | frozenset) and not all(isinstance(x, int) for x in found):
            found.sort(key=repr)  # the order of strings in a set differs between processes
        return [self.form(item, f"{place}[{number}]") for number, item in enumerate(found)]

    def _pairs(self, value: Any, kind: type, place: str) -> dict[str, Any]:
        pairs = [
            [self.form(key, f"{place}[{n}].key"), self.form(item, f"{place}[{key!r:.80}]")]
            for n, (key, item) in enumerate(value.items())
        ]
        form: dict[str, Any] = {_BY_NAME[kind]: pairs}
        if kind is defaultdict:
            form["factory"] = self.form(value.default_factory, f"{place}.factory")
        return form

    def _named(self, value: Any, place: str) -> dict[str, Any]:
        if (why := self._makeable.why_not_named(type(value))) is not None:
            self.lost[place] = f"{_described(value)}, {why}"
            return {"lost": self.lost[place]}
        return {"named": self._items(value, place), "class": name_of(type(value))}

    def _live(self, value: Any, place: str, own: str) -> dict[str, Any]:
        if not own:
            self.lost[place] = f"{_described(value)} that was not made in 'setup'"
            return {"lost": self.lost[place]}
        self.live[place] = value
        return {"live": None}

    def _object(self, value: Any, names: list[str], place: str, own: str) -> dict[str, Any]:
        """Return the text of an object of a class of the user, field by field."""
        if not own and (why := self._makeable.why_not(type(value))) is not None:
            self.lost[place] = f"{_described(value)}, {why}"
            return {"lost": self.lost[place]}
        fields = [[n, self.form(_field_of(value, n), f"{place}.{n}")] for n in names]
        return {"object": fields, "class": name_of(type(value))}


def _layout(value: Any) -> dict[str, Any]:
    """Return the text of a leaf: what its plain form does not say of it."""
    form: dict[str, Any] = {"leaf": None}
    if is_tensor(value):
        if value.device.type != "cpu":
            form["device"] = str(value.device)
    elif isinstance(value, np.ndarray) and value.flags.f_contiguous and value.ndim > 1:
        form["order"] = "C" if value.flags.c_contiguous else "F"
    return form


def _is_leaf(value: Any) -> bool:
    """Return whether a value is kept as an array, or by an adapter of values."""
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return True
    adapter = value_adapter(value)
    if live_adapter_of(value) is not None and adapter is None:
        return False
    if adapter is None or adapter.name in ("dataclass", "namedtuple"):
        return False
    try:
        take_apart(value)
    except ValueRefusedError:
        return False
    return True


def _is_still(value: Any) -> bool:
    kind = type(value)
    return isinstance(value, _STILL) or kind.__module__.partition(".")[0] in _STILL_MODULES


def fields_in(value: Any) -> list[str] | None:
    """Return the names of the fields of an object that is made of nothing else, or None."""
    if _is_still(value):
        return None
    kind: Any = type(value)
    if kind is SimpleNamespace:
        return [*vars(value)]
    if not made_of_fields(kind):
        return None
    slots = [
        name
        for base in kind.__mro__
        for name in _names_of(vars(base).get("__slots__", ()))
        if name not in ("__dict__", "__weakref__") and hasattr(value, name)
    ]
    names = [*getattr(value, "__dict__", ()), *slots]
    return names if names or hasattr(value, "__dict__") else None


def _field_of(value: Any, name: str) -> Any:
    """Return a field of an object, past its properties."""
    own = getattr(value, "__dict__", {})
    return own[name] if name in own else getattr(value, name)


def _names_of(slots: Any) -> Iterator[str]:
    yield from (slots,) if isinstance(slots, str) else slots


def _member_name(value: Any) -> str | None:
    """Return the name of a member of an enumeration; None for all else."""
    if not isinstance(value, Enum):
        return None
    name = f"{name_of(type(value))}.{value.name}"
    return name if member_named(name) is value else None


_OF_TORCH: Final[Mapping[str, Callable[[Any], dict[str, Any]]]] = {
    "Size": lambda size: {"size": list(size)},
    "device": lambda device: {"device": str(device)},
    "dtype": lambda dtype: {"dtype": str(dtype).removeprefix("torch.")},
}


def _described(value: Any) -> str:
    kind = type(value)
    return f"a {kind.__module__}.{kind.__qualname__}".replace("builtins.", "")


def mark_of(value: Any) -> Any:
    """Return what differs, by ``==``, for values of different content.

    A tensor that is not in the memory of the processor is known by its count of changes.
    """
    if is_tensor(value):
        about = (value.requires_grad, _content(value.grad) if value.is_leaf else None)
        return about, _content(value)
    return _content(value)


def _content(value: Any) -> Any:
    if is_tensor(value) and value.device.type != "cpu":
        return None if value.is_inference() else (id(value), value._version)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        own = np.ascontiguousarray(value)
        data = own.reshape(-1).view(np.uint8).data if value.nbytes else b""
        return str(value.dtype), value.shape, crc32c(data)
    if isinstance(value, dict):
        return [(repr(key), _content(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [_content(item) for item in value]
    taken: tuple[Plain, Any] | None = None if value is None else take_apart(value)
    return repr(value) if taken is None else (_content(taken[0]), taken[1])
