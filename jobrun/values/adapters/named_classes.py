"""Classes that a checkpoint names, and objects of them, without running any code for it.

A checkpoint may be forged.  On the way to a class, ``getattr`` can run a property, import a part
of a library that loads its parts when asked for, or load a shared library (``ctypes.cdll``).  So
only the dictionaries of modules and classes are looked at, and fields are set past properties.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum
from types import MemberDescriptorType, ModuleType
from typing import Any, Final

__all__ = [
    "class_named",
    "is_of_python",
    "is_stored",
    "member_named",
    "name_of",
    "set_field",
]

_OF_PYTHON: Final = frozenset((*sys.stdlib_module_names, "jobrun")) - {"__main__"}


def name_of(kind: type) -> str:
    """Return the name of a class, with its module."""
    return f"{kind.__module__}:{kind.__qualname__}"


def class_named(name: str) -> type | None:
    """Return the class that an imported module has under a name like ``module:Outer.Inner``.

    None if there is none, or if its objects act when they are no longer used (``__del__``).
    """
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    if not issubclass(type(found), ModuleType):
        return None
    names: Any = object.__getattribute__(found, "__dict__")
    for part in path.split("."):
        found = names.get(part)
        if not issubclass(type(found), type):
            return None
        names = type.__getattribute__(found, "__dict__")
    return None if any("__del__" in vars(base) for base in found.__mro__) else found


def member_named(name: str) -> Enum | None:
    """Return the member of an enumeration with a name like ``module:Kind.MEMBER``, or None."""
    kind, _, member = name.rpartition(".")
    found = class_named(kind)
    if found is None or not issubclass(found, Enum):
        return None
    return found._member_map_.get(member)


def is_of_python(kind: type) -> bool:
    """Return whether a class is one of Python itself, or of jobrun."""
    return kind.__module__.partition(".")[0] in _OF_PYTHON


def is_stored(kind: type, name: str) -> bool:
    """Return whether a field is kept as it is: in a slot or the dictionary, not by a property."""
    found = next(_of_class(kind, name), None)
    return isinstance(found, MemberDescriptorType) or not hasattr(type(found), "__set__")


def set_field(obj: Any, name: str, value: Any) -> None:
    """Set a field past ``__setattr__`` and properties; raises AttributeError if it has no place."""
    for found in _of_class(type(obj), name):
        if isinstance(found, MemberDescriptorType):
            found.__set__(obj, value)
            return
    if not hasattr(obj, "__dict__"):
        raise AttributeError(f"a {type(obj).__name__} has no field {name!r}")
    obj.__dict__[name] = value


def _of_class(kind: type, name: str) -> Iterator[Any]:
    return (vars(base)[name] for base in kind.__mro__ if name in vars(base))
