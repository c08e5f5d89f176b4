"""The state of a user's iterator as a JSON value, which a checkpoint keeps as the mark of a place.

JSON's own values are themselves.  Arrays, bytes, tuples, dicts with other keys, and whatever an
adapter of values takes apart (a tensor of torch, a generator of numpy), are dicts with one key of
ours.  Nothing is pickled.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import numpy as np

from jobrun.errors import ValueRefusedError, with_article
from jobrun.values.adapted import put_together, take_apart
from jobrun.values.adapters.base import Note

__all__ = ["state_from_json", "state_to_json"]

_OURS: Final = "__jobrun__"
_NUMBERS: Final = "biufc"


def state_to_json(state: Any, place: str = "") -> Any:
    """Return ``state`` as a JSON value.

    Raises ValueRefusedError, naming the key, for what cannot be saved.
    """
    if state is None or type(state) in (bool, int, float, str):
        return state
    if type(state) is list:
        return [state_to_json(item, f"{place}[{i}]") for i, item in enumerate(state)]
    if isinstance(state, dict):
        pairs = [(k, state_to_json(v, f"{place}[{k!r}]")) for k, v in state.items()]
        if all(type(k) is str for k in state) and _OURS not in state:
            return dict(pairs)
        return {_OURS: "dict", "items": [[state_to_json(k, f"{place} key"), v] for k, v in pairs]}
    if isinstance(state, np.ndarray | np.generic) and state.dtype.kind in _NUMBERS:
        data = base64.b64encode(state.tobytes()).decode()
        kind = "array" if isinstance(state, np.ndarray) else "scalar"
        return {_OURS: kind, "dtype": state.dtype.str, "shape": [*state.shape], "data": data}
    taken = take_apart(state)
    if taken is None:
        what = with_article(type(state).__name__)
        raise ValueRefusedError(
            f"its state{place} is {what}, which cannot be saved",
            hint="it may hold numbers, texts, bytes, arrays, tensors, and lists, tuples and dicts "
            "of them",
        )
    plain, made = taken
    note = {"name": made.name, "version": made.version, "meta": dict(made.meta)}
    return {_OURS: "object", "note": note, "plain": state_to_json(plain, place)}


def state_from_json(value: Any) -> Any:
    """Return the state of which ``state_to_json`` made ``value``.

    Arrays are writable.  Raises ValueRefusedError for what it could not have made.
    """
    if isinstance(value, list):
        return [state_from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(_OURS)
    if kind is None:
        return {k: state_from_json(v) for k, v in value.items()}
    try:
        if kind == "dict":
            return {state_from_json(k): state_from_json(v) for k, v in value["items"]}
        if kind == "object":
            return put_together(Note(**value["note"]), state_from_json(value["plain"]))
        array = np.frombuffer(base64.b64decode(value["data"]), value["dtype"])
        array = array.reshape(value["shape"]).copy()
        return array if kind == "array" else array[()]
    except (KeyError, TypeError, ValueError) as error:
        text = json.dumps(value)[:60]
        raise ValueRefusedError(f"the state of an iterator holds {text}: {error!r}") from error
