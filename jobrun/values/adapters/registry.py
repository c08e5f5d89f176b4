"""The adapter that takes an object, by its type and those that it derives from.

Looked up in this order: what the user registered; the module of the library that defines the type,
found by name, so that nothing is imported before an object of it is there; the entry points
``jobrun.values`` of installed packages; then the structure (a dataclass, a named tuple).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from jobrun.errors import UsageError
from jobrun.values.adapters import structural
from jobrun.values.adapters.base import LiveAdapter, ValueAdapter

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["adapter_named", "has_adapters", "live_adapter", "register", "value_adapter"]

Adapter = ValueAdapter | LiveAdapter

_PACKAGE: Final = "jobrun.values.adapters"
_DEFINED_BY: Final = {
    "builtins": "python",
    "_random": "python",
    "random": "python",
    "jaxlib": "jax",
}
"""Packages whose adapters stand in the module of another name."""

_PLAIN_TYPES: Final = frozenset({dict, list, str, int, float, bool, type(None)})

_registered: dict[type, Adapter] = {}
_by_name: dict[str, Adapter] = {}
_found: WeakKeyDictionary[type, tuple[ValueAdapter | None, LiveAdapter | None]] = (
    WeakKeyDictionary()
)


def register(type_: type, adapter: Adapter) -> None:
    """Use ``adapter`` for objects of ``type_`` and of types that derive from it.

    Raises UsageError if ``adapter`` has neither ``dump`` and ``load`` nor ``state``, ``restore``
    and ``copy``, or no name and version.
    """
    if not isinstance(type_, type):
        raise UsageError(f"expected a type, got {type_!r}")
    if not isinstance(adapter, ValueAdapter | LiveAdapter):
        raise UsageError(
            f"{adapter!r} is not an adapter",
            hint="an adapter has name, version, and dump and load (for a value) or state, restore "
            "and copy (for a live object)",
        )
    if isinstance(adapter, type):
        raise UsageError(f"expected an adapter, got the class {adapter.__name__}; make one of it")
    _registered[type_] = adapter
    _found.clear()
    _by_name.clear()


def value_adapter(obj: Any) -> ValueAdapter | None:
    """Return the adapter that takes ``obj`` as a value, or None."""
    kind = type(obj)
    if kind in _PLAIN_TYPES:
        return None
    return _adapters(kind)[0]


def live_adapter(obj: Any) -> LiveAdapter | None:
    """Return the adapter that takes ``obj`` as a live object, or None."""
    return _adapters(type(obj))[1]


def adapter_named(name: str) -> Adapter | None:
    """Return the adapter that checkpoints know as ``name``, or None if there is none here.

    Only modules of jobrun and what has been registered are looked at: a name in a checkpoint never
    causes an import of anything else.
    """
    adapter = _by_name.get(name)
    if adapter is None:
        own = _of_library(name.partition(".")[0]).values()
        plugins = (adapter for _, adapter in _of_entry_points())
        known = (*_registered.values(), *structural.ADAPTERS, *own, *plugins)
        adapter = next((adapter for adapter in known if adapter.name == name), None)
        if adapter is not None:
            _by_name[name] = adapter
    return adapter


def has_adapters(package: str) -> bool:
    """Return whether jobrun has adapters for the types of a package."""
    return bool(_of_library(package))


def _adapters(kind: type) -> tuple[ValueAdapter | None, LiveAdapter | None]:
    found = _found.get(kind)
    if found is None:
        # The adapter of the most special type decides; it may be both.
        adapter = next(_candidates(kind), None)
        value = adapter if isinstance(adapter, ValueAdapter) else None
        live = adapter if isinstance(adapter, LiveAdapter) else None
        found = _found[kind] = (value, live)
    return found


def _candidates(kind: type) -> Iterator[Adapter]:
    for base in kind.__mro__:
        if base in _registered:
            yield _registered[base]
    for base in kind.__mro__:
        name = f"{base.__module__}.{base.__qualname__}"
        top = base.__module__.partition(".")[0]
        if _DEFINED_BY.get(top) == "python" and base is not kind:
            continue  # what derives from a tuple or a number has more to it
        if name in _of_library(top):
            yield _of_library(top)[name]
        if name in _entry_points():
            yield _of_entry_point(name)
    yield from structural.adapters_of(kind)


@cache
def _of_library(top: str) -> Mapping[str, Adapter]:
    """Return the adapters of a library's module, by the qualified names of types."""
    name = f"{_PACKAGE}.{_DEFINED_BY.get(top, top)}"
    if not top.isidentifier() or find_spec(name) is None:
        return {}
    adapters: Mapping[str, Adapter] = getattr(importlib.import_module(name), "ADAPTERS", {})
    return adapters if isinstance(adapters, Mapping) else {}


def _of_entry_points() -> Iterator[tuple[str, Adapter]]:
    """Yield the adapters of installed packages: an entry point is named like its type.

    Only of packages that have been imported: loading it then runs nothing that the job does not.
    """
    for name in _entry_points():
        if name.partition(".")[0] in sys.modules:
            yield name, _of_entry_point(name)


@cache
def _entry_points() -> Mapping[str, EntryPoint]:
    from importlib.metadata import entry_points  # 19 ms

    return {point.name: point for point in entry_points(group="jobrun.values")}


@cache
def _of_entry_point(name: str) -> Adapter:
    adapter = _entry_points()[name].load()
    if not isinstance(adapter, ValueAdapter | LiveAdapter):
        raise UsageError(f"the entry point {name!r} of group jobrun.values is not an adapter")
    return adapter
