"""Adapters by structure: what a type is made of decides, wherever it is defined."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, Final

from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.base import LiveAdapter, Meta, Plain, ValueAdapter
from jobrun.values.adapters.named_classes import class_named, is_stored, name_of, set_field

__all__ = ["ADAPTERS", "adapters_of"]


def _class_of(meta: Meta) -> type:
    """Return the class that ``meta`` names, which its module must have been imported for."""
    name = str(meta.get("class"))
    found = class_named(name)
    if found is None:
        raise ValueRefusedError(
            f"the value is a {name}, which is not there now",
            hint=f"import {name.partition(':')[0]} where the job's functions are defined",
        )
    return found


class NamedTupleAdapter:
    """Named tuples, as a dict of their fields."""

    name = "namedtuple"
    version = 1

    def dump(self, value: Any) -> tuple[Plain, Meta]:
        """Return the fields and the class."""
        _check_stored(type(value), ())
        return dict(zip(value._fields, value, strict=True)), {"class": name_of(type(value))}

    def load(self, plain: Plain, meta: Meta) -> Any:
        """Make the named tuple again; raises ValueRefusedError if its fields are others now."""
        kind = _class_of(meta)
        fields = getattr(kind, "_fields", None)
        if fields != tuple(plain):
            raise ValueRefusedError(f"{meta['class']} has fields {fields}, and had {tuple(plain)}")
        return tuple.__new__(kind, plain.values())


class DataclassAdapter:
    """Dataclasses, as a dict of their fields; ``__init__`` is not called again."""

    name = "dataclass"
    version = 1

    def dump(self, value: Any) -> tuple[Plain, Meta]:
        """Return the fields and the class; raises ValueRefusedError for anything but a field."""
        names = [f.name for f in dataclasses.fields(value)]
        more = set(getattr(value, "__dict__", ())) - set(names)
        if more:
            raise ValueRefusedError(
                f"a {type(value).__name__} has attributes that are not fields of the dataclass: "
                f"{', '.join(sorted(more))}",
                hint="declare them as fields",
            )
        _check_stored(type(value), names)
        fields = {name: getattr(value, name) for name in names if hasattr(value, name)}
        return fields, {"class": name_of(type(value))}

    def load(self, plain: Plain, meta: Meta) -> Any:
        """Make the object again; raises ValueRefusedError if its fields are others now."""
        kind = _class_of(meta)
        names = {f.name for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else ()
        if set(plain) != set(names):
            raise ValueRefusedError(
                f"{meta['class']} has fields {sorted(names)}, and had {sorted(plain)}"
            )
        _check_stored(kind, names)
        made: Any = object.__new__(kind)
        for name, value in plain.items():
            set_field(made, name, value)
        return made


def _check_stored(kind: type, names: Iterable[str]) -> None:
    """Raise ValueRefusedError for a dataclass that runs code when it is filled or let go."""
    if hasattr(kind, "__del__"):
        raise ValueRefusedError(
            f"a {kind.__name__} has a method __del__, which would run for each copy of it",
            hint="keep what it holds, without the object: a dict of its fields",
        )
    others = [name for name in names if not is_stored(kind, name)]
    if others:
        raise ValueRefusedError(
            f"the field {others[0]!r} of a {kind.__name__} is a property",
            hint="keep what it is made of as a field",
        )


_NAMED_TUPLE: Final = NamedTupleAdapter()
_DATACLASS: Final = DataclassAdapter()
ADAPTERS: Final = (_NAMED_TUPLE, _DATACLASS)


def adapters_of(kind: type) -> Iterator[ValueAdapter | LiveAdapter]:
    """Yield the adapters for a type without one of its own."""
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        yield _NAMED_TUPLE
    elif dataclasses.is_dataclass(kind):
        yield _DATACLASS
