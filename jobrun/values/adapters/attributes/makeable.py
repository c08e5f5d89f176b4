"""Of which classes a resumed run makes objects that its ``setup`` has not made.

A checkpoint may be forged, and an object of the wrong class acts when the job uses it.  So the
classes are those of objects that ``setup`` has made, and all of the packages that define them; but
of a library that has adapters, such as PyTorch, only the classes themselves.  And modules that are
not installed, such as the one of the job's functions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final

from jobrun.values.adapters.named_classes import class_named, is_of_python, name_of
from jobrun.values.adapters.registry import has_adapters

__all__ = ["Makeable", "made_of_fields"]

_MADE_BY_PYTHON: Final = 1 << 9
"""The flag of a class that a ``class`` statement makes, as opposed to one of C."""

_INSTALLED: Final = ("/site-packages/", "/dist-packages/")


class Makeable:
    """The classes of which a restore makes objects; ``objects`` are those of ``setup``."""

    def __init__(self, objects: Iterable[Any]) -> None:
        self._kinds = frozenset(map(type, objects))
        tops = {kind.__module__.partition(".")[0] for kind in self._kinds}
        self._packages = frozenset(top for top in tops if not has_adapters(top))

    def why_not(self, kind: type) -> str | None:
        """Return why no object of a class is made; None if one is, of nothing but its fields."""
        if not made_of_fields(kind):
            return "a class of which objects are more than their fields"
        return self._why_not(kind)

    def why_not_named(self, kind: type) -> str | None:
        """Return why no named tuple of a class is made; None if one is."""
        if not issubclass(kind, tuple) or not hasattr(kind, "_fields"):
            return "a class that is not that of named tuples"
        return self._why_not(kind)

    def _why_not(self, kind: type) -> str | None:
        if is_of_python(kind):
            return "a class of Python itself"
        if hasattr(kind, "__del__"):
            return "a class with a method __del__"
        if class_named(name_of(kind)) is not kind:
            return "a class that no module has under its name"
        if kind in self._kinds or kind.__module__.partition(".")[0] in self._packages:
            return None
        file = getattr(sys.modules[kind.__module__], "__file__", None) or ""
        if any(part in file for part in _INSTALLED):
            return "a class of a library of which 'setup' has made no object there"
        return None


def made_of_fields(kind: Any) -> bool:
    """Return whether objects of a class consist of their fields, and of nothing else."""
    if kind.__reduce_ex__ is not object.__reduce_ex__ or kind.__reduce__ is not object.__reduce__:
        return False
    return all(base.__flags__ & _MADE_BY_PYTHON for base in kind.__mro__[:-1])
