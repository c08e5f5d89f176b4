"""Values for tasks to read: read-only views of arrays, and dicts and lists of those.

Never the stored array, so that its shape and its write flag cannot be changed by accident.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jobrun.values.adapted import for_people, put_together
from jobrun.values.adapters.base import Note
from jobrun.values.boxes import Box, Tree, Value

__all__ = ["lend", "lend_all", "view", "view_plain"]


def view(value: Value) -> Any:
    """Return a value for a task to read: read-only views of arrays, dicts and lists of those."""
    return lend(value, [])


def lend(value: Value, lent: list[Any]) -> Any:
    """Return what ``view`` returns, and add each object that was made for it to ``lent``.

    Opaque values are not added: they are the user's objects.  Tied arrays are one object.
    """
    if type(value) is Box:  # without the search for ties: a column of a batch
        made = value.value.view() if value.kind == "array" else value.value
        if value.note is not None:
            made = put_together(value.note, made)
            lent.append(made)
        return made
    return _lend(value, lent, {}, put_together)


def lend_all(values: Iterable[Value], lent: list[Any]) -> list[Any]:
    """Return what ``lend`` returns for each of ``values``, each on its own."""
    return [
        value.value.view()  # without a call: a task may read an array of each of many nodes
        if type(value) is Box and value.kind == "array" and value.note is None
        else lend(value, lent)
        for value in values
    ]


def view_plain(value: Value) -> Any:
    """Return a value for display: as ``view``, but objects of libraries in their plain form."""
    return _lend(value, [], {}, for_people)


def _lend(
    value: Value, lent: list[Any], tied: dict[int, Any], make: Callable[[Note, Any], Any]
) -> Any:
    made: Any
    if type(value) is Box:
        if value.kind != "array":
            made = value.value
        elif value.tied:
            made = tied.setdefault(id(value), value.value.view())
        else:
            made = value.value.view()
        if value.note is None:
            return made
    else:
        assert isinstance(value, Tree)
        if value.kind == "dict":
            pairs = zip(value.names, value.items.values(), strict=True)
            made = {k: _lend(v, lent, tied, make) for k, v in pairs}
        else:
            made = [_lend(v, lent, tied, make) for v in value.items.values()]
    if value.note is not None:
        made = make(value.note, made)
    lent.append(made)
    return made
