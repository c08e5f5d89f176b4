"""Values with an adapter: taking them apart for a workspace, and putting them together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from jobrun.errors import ValueRefusedError
from jobrun.values.adapters import python
from jobrun.values.adapters.base import LiveAdapter, Note, Plain, ValueAdapter, note
from jobrun.values.adapters.numpy import STRINGS
from jobrun.values.adapters.registry import adapter_named, value_adapter

__all__ = [
    "INTEGER",
    "TUPLE",
    "check_version",
    "for_people",
    "is_immutable",
    "is_number",
    "mark_of",
    "put_together",
    "same_plain",
    "take_apart",
]

TUPLE = note(python.TUPLE)
INTEGER = note(python.INTEGER)

_BY_PEOPLE = frozenset({"python", "numpy"})
"""Libraries whose adapters belong to jobrun and import nothing: their values are shown as is."""


def take_apart(obj: Any) -> tuple[Plain, Note] | None:
    """Return the plain form of an object and the note that goes with it, or None without adapter.

    Raises ValueRefusedError if its adapter refuses it.
    """
    strings = type(obj) is np.ndarray and obj.dtype.kind == "T"
    adapter = STRINGS if strings else value_adapter(obj)
    if adapter is None:
        return None
    plain, meta = adapter.dump(obj)
    return plain, note(adapter, meta)


def put_together(made: Note, plain: Plain) -> Any:
    """Return the object of which ``plain`` is the plain form.

    Raises ValueRefusedError if there is no such adapter, or it refuses the form.
    """
    if made.meta.get("live"):  # the state of an object, which only its own adapter can restore
        return plain
    adapter = adapter_named(made.name)
    load = getattr(adapter, "load", None)  # isinstance of a protocol takes 12 µs, and this 0.1
    if adapter is None:
        raise ValueRefusedError(
            f"the value was made by the adapter {made.name!r}, which is not there now",
            hint="register it beside the job's functions: jobrun.register(Type, adapter)",
        )
    if load is None:
        return plain
    if made.version > adapter.version:
        check_version(made, adapter)
    try:
        return load(plain, made.meta)
    except ValueRefusedError:
        raise
    except Exception as error:  # of many kinds, by library
        raise ValueRefusedError(
            f"the value is not one that the adapter {made.name!r} could have made: {error!r}"
        ) from error


def check_version(made: Note, adapter: ValueAdapter | LiveAdapter) -> None:
    """Raise ValueRefusedError if a newer version of ``adapter`` made a value."""
    if made.version > adapter.version:
        raise ValueRefusedError(
            f"the value was made by version {made.version} of the adapter {made.name!r}, and this "
            f"one is version {adapter.version}",
            hint="install the version of jobrun, or of the adapter, that saved it",
        )


def is_immutable(obj: Any) -> bool:
    """Return whether no object of the type of ``obj`` can be changed, as its adapter says."""
    return bool(getattr(value_adapter(obj), "immutable", False))


def for_people(made: Note, plain: Plain) -> Any:
    """Return the object if it is one of Python or numpy, else its plain form.

    A checkpoint never causes an import.
    """
    return put_together(made, plain) if made.name.partition(".")[0] in _BY_PEOPLE else plain


def mark_of(obj: Any) -> Callable[[], Any] | None:
    """Return what tells cheaply whether an object was changed in place, None if nothing does.

    Two calls return the same unless it was changed between them.
    """
    mark = getattr(value_adapter(obj), "mark", None)
    return None if mark is None else partial(mark, obj)


def is_number(made: Note) -> bool:
    """Return whether a value with one element counts as a number, as a tensor does."""
    return bool(getattr(adapter_named(made.name), "numeric", False))


def same_plain(a: Plain, b: Plain) -> bool:
    """Return whether two plain values are the same: kinds, keys and their order, and all bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return [*a] == [*b] and all(same_plain(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same_plain, a, b))
    if isinstance(a, np.ndarray):
        return _same_array(a, b)
    if isinstance(a, float | np.generic):
        return np.asarray(a).dtype == np.asarray(b).dtype and (
            np.asarray(a).tobytes() == np.asarray(b).tobytes()
        )
    taken = take_apart(a)
    if taken is not None:
        other = take_apart(b)
        return other is not None and taken[1] == other[1] and same_plain(taken[0], other[0])
    return a is b or bool(a == b)


def _same_array(a: Any, b: Any) -> bool:
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    one, other = a.__array_interface__, b.__array_interface__
    if one["data"][0] == other["data"][0] and a.strides == b.strides:
        return True  # read-only memory of the workspace
    if a.dtype.hasobject:
        return all(map(same_plain, a.reshape(-1).tolist(), b.reshape(-1).tolist()))
    return bool(a.tobytes() == b.tobytes())
