"""What a task is given to read: read-only views of arrays, and dicts and lists of those.

Never the stored array, so that neither ``resize`` nor the flag of the owner can be reached by
accident.
"""

from __future__ import annotations

from typing import Any

from jobrun.values.boxes import Box, Tree, Value

__all__ = ["lend", "view"]


def view(value: Value) -> Any:
    """What a task is given to read: read-only views of arrays, dicts and lists of those."""
    return lend(value, [])


def lend(value: Value, lent: list[Any]) -> Any:
    """Return what ``view`` returns, and add each dict and list that was made for it to ``lent``.

    Not those that are opaque values: they are the user's own objects.  Tied arrays are one object.
    """
    return _lend(value, lent, {})


def _lend(value: Value, lent: list[Any], tied: dict[int, Any]) -> Any:
    if type(value) is Box:
        if value.kind != "array":
            return value.value
        if value.tied:
            return tied.setdefault(id(value), value.value.view())
        return value.value.view()
    assert isinstance(value, Tree)
    made: Any
    if value.kind == "dict":
        made = {k: _lend(v, lent, tied) for k, v in value.items.items()}
    else:
        made = [_lend(v, lent, tied) for v in value.items.values()]
    lent.append(made)
    return made
