"""The two protocols of adapters: objects of a type become plain values, and objects again.

*Plain* values are nested dicts (keys: strings, numbers, None, tuples of these) and lists of numpy
arrays, numpy scalars, bool, int, float, str and None, and whatever another value adapter takes.
There are two kinds of adapters:

- A **value** (an array of another library, a table, a tuple) is replaced as a whole, as every blob
  is.  A task is given an object that ``load`` makes for this one call.
- A **live object** (a module, an optimizer, an estimator) is made by ``setup``, and changed in
  place.  Its state is read once per save, and put back once per resume, after ``setup``.

Keys of a state that begin with a dot hold what belongs to the object beside the weights that other
programs know: exports leave them out, and files of weights do not replace them.

Neither imports its library: an object of it is there, so the library is.  Both are deterministic:
the same state gives the same plain value, bit for bit.  Nothing is ever pickled.

A library's module is ``jobrun/values/adapters/<top-level package>.py``.  It holds ``ADAPTERS``, a
dict of the qualified name of a type (``"torch.nn.modules.module.Module"``) to an adapter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

from jobrun.errors import ValueRefusedError

__all__ = ["MAX_META", "LiveAdapter", "Meta", "Note", "Plain", "ValueAdapter", "note"]

Plain = Any
"""A plain value: see the docstring of the module."""

Meta = Mapping[str, Any]
"""The part of a value that JSON holds beside its plain form."""

MAX_META: Final = 1 << 20
"""Bytes of JSON that the meta data of one value may have."""


@runtime_checkable
class ValueAdapter(Protocol):
    """Takes values of a type apart, and puts them together.

    ``name`` stands in checkpoints and is unique; ``version`` rises when the plain form changes.

    More attributes may be left out.  ``immutable``: no object of the type can be
    changed, so no call is checked for having changed one.  ``mark(value)`` returns what differs,
    by ``==``, after a change in place: then it is compared, and not the plain forms.  ``numeric``:
    a value with one element counts as a number, for metrics.  ``like(template,
    value, fill)`` returns the value for the place in a tree under ``state`` where ``setup`` put
    ``template``: the template itself, which other objects may hold, with the content of ``value``
    if ``fill`` is true and it can be changed; else ``value``, on the devices of the template.
    ``gradient(value)`` returns what a value in such a tree has gathered beside its content, or
    None, and ``put_gradient(value, gradient)`` puts it back, or None in its place.
    """

    name: str
    version: int

    def dump(self, value: Any) -> tuple[Plain, Meta]:
        """Return the plain form of ``value``, and its meta data.

        Arrays may be views of the value's memory.  Raises ValueRefusedError if it cannot be saved.
        """

    def load(self, plain: Plain, meta: Meta) -> Any:
        """Return the value of which ``plain`` and ``meta`` are the forms.

        Arrays are read-only, and lent, unless the value is to be updated.
        """


@runtime_checkable
class LiveAdapter(Protocol):
    """Reads the state of live objects, and puts it back.

    More attributes may be left out.  ``made(obj, like=None)`` is called when ``setup`` has made an
    object, or with one in the place of such a one, ``like``; what it returns is kept as long as
    the object is used.  ``warnings(obj)`` is called after that, and after ``state``: it yields what
    a resumed run will lack.  ``draws_from(obj)`` returns the global generator that an object may
    draw from (``rng.numpy``) and why, or None: a job that does not save that generator is warned.
    ``fills(obj, keys, address)`` returns whether a resume fills memory that ``setup`` has made, for
    the array that the keys of a state lead to: it is at this address now.  Without it that counts
    as true.  ``places``: ``restore`` copies tensors to the devices of ``obj``, so that those of a
    state are given on the processor: on a device the state would need its memory twice.
    """

    name: str
    version: int

    def state(self, obj: Any) -> Plain:
        """Return the state of ``obj``; arrays may be views of its memory."""

    def restore(self, obj: Any, state: Plain) -> Any:
        """Put ``state`` into ``obj``, as far as it can be changed in place; return the object.

        ``state`` belongs to the adapter: its arrays are writable and nobody else's.
        Raises ValueRefusedError, naming the place within the state, if it does not fit ``obj``.
        """

    def copy(self, obj: Any) -> Any:
        """Return a copy of ``obj`` that shares no memory with it."""


@dataclass(frozen=True, slots=True)
class Note:
    """The adapter that made a plain value, as a checkpoint keeps it beside the value."""

    name: str
    version: int = 1
    meta: Meta = field(default_factory=dict)


def note(adapter: ValueAdapter | LiveAdapter, meta: Meta | None = None) -> Note:
    """Return the note of a value that ``adapter`` took apart.

    Raises ValueRefusedError if ``meta`` is not JSON, or larger than MAX_META.
    """
    if not meta:
        return Note(adapter.name, adapter.version)
    try:
        text = json.dumps(meta, allow_nan=False, ensure_ascii=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueRefusedError(
            f"the meta data of adapter {adapter.name!r} are not JSON: {error}",
            hint="keep strings, numbers, lists and dicts with string keys in them",
        ) from error
    if len(text) > MAX_META:
        raise ValueRefusedError(
            f"the meta data of adapter {adapter.name!r} have {len(text):,} bytes, at most "
            f"{MAX_META:,} are kept",
            hint="keep what is large in the plain value, as arrays",
        )
    return Note(adapter.name, adapter.version, json.loads(text))
