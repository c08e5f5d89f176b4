"""Why an object cannot be saved: what it is, where within it the reason lies, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from jobrun.core.tree_keys import is_key
from jobrun.errors import ValueRefusedError, with_article
from jobrun.values.adapted import take_apart
from jobrun.values.adapters.registry import live_adapter
from jobrun.values.adapters.state_dict import has_state_dict

__all__ = ["described_type", "why_opaque"]

_REMEDIES: Final[Mapping[str, str]] = {
    "builtins.set": "sorted(x) makes a list, which has an order",
    "builtins.frozenset": "sorted(x) makes a list, which has an order",
    "builtins.range": "np.arange makes an array of the same numbers",
    "builtins.memoryview": "bytes(x) makes bytes",
    "builtins.generator": "list(x) makes a list",
    "datetime.datetime": "np.datetime64(x) is saved, without a time zone, and so is x.isoformat()",
    "datetime.date": "np.datetime64(x) is saved, and so is x.isoformat()",
    "datetime.time": "x.isoformat() makes a string",
    "datetime.timedelta": "np.timedelta64(x) is saved",
    "decimal.Decimal": "str(x) makes a string with all digits",
    "fractions.Fraction": "x.as_integer_ratio() makes a tuple of two integers",
    "pathlib.PurePath": "str(x) makes a string",
    "enum.Enum": "x.name makes a string",
    "collections.deque": "list(x) makes a list",
}
"""Substitutes for values of types without an adapter, and of types derived from them."""

_OTHERS: Final = (
    "blobs that persist are arrays, numbers, strings, and dicts, lists and tuples of those; what "
    "can be rebuilt belongs in 'setup'; jobrun.register(Type, adapter) adds a type"
)
_DEEPEST: Final = 16


def described_type(obj: object) -> str:
    """Return the type of an object in words: ``a mycode.Config``."""
    name = f"{type(obj).__module__}.{type(obj).__qualname__}"
    return with_article(name.removeprefix("builtins."))


def why_opaque(obj: Any) -> tuple[str, str]:
    """Return what an object is that cannot be saved, and what to do.

    If it has an adapter, the part of it that is refused is named.
    """
    try:
        taken = take_apart(obj)
    except ValueRefusedError as error:
        return f"{described_type(obj)}: {error.message}", error.hint
    if taken is not None:
        found = _refused_part(taken[0], "", 0)
        if found is not None:
            what, hint = why_opaque(found[1])
            return f"{described_type(obj)}, and its {found[0]} is {what}", hint
    return _described(obj)


def _refused_part(plain: Any, place: str, depth: int) -> tuple[str, Any] | None:
    """Return the place and the object of the first part of a plain value that has no plain form."""
    if depth > _DEEPEST:
        return None
    pairs: Any = ()
    if type(plain) is dict and all(map(is_key, plain)):
        pairs = plain.items()
    elif type(plain) in (list, tuple):
        pairs = enumerate(plain)
    elif place and _is_refused(plain):
        return place, plain
    for key, item in pairs:
        found = _refused_part(item, f"{place}[{key!r}]", depth + 1)
        if found is not None:
            return found
    return None


def _is_refused(obj: Any) -> bool:
    if obj is None or isinstance(obj, bool | int | float | str | np.generic):
        return False
    if type(obj) is np.ndarray:
        return bool(obj.dtype.hasobject and obj.dtype.kind != "T")
    try:
        taken = take_apart(obj)
    except ValueRefusedError:
        return True
    return taken is None or _refused_part(taken[0], "", 0) is not None


def _described(obj: Any) -> tuple[str, str]:
    """Return what an object without an adapter is, and what to do."""
    if isinstance(obj, np.ndarray):
        if not obj.dtype.hasobject:
            return described_type(obj), "turn it into an array of numbers or fixed strings"
        kinds = sorted({type(item).__name__ for item in obj.reshape(-1)[:100].tolist()})
        what = (
            f"an array of Python objects ({', '.join(kinds[:3])})"
            if kinds
            else ("an array of Python objects")
        )
        return what, "turn it into an array of numbers or fixed strings, such as x.astype(str)"
    if isinstance(obj, dict):
        return _described_dict(obj)
    if live_adapter(obj) is not None or has_state_dict(obj):
        return (
            f"{described_type(obj)}, an object whose state can be saved",
            "make it in 'setup', and name it under 'state': jobrun docs libraries",
        )
    names = (f"{base.__module__}.{base.__qualname__}" for base in type(obj).__mro__)
    remedy = next((_REMEDIES[name] for name in names if name in _REMEDIES), _OTHERS)
    return described_type(obj), remedy


def _described_dict(obj: dict[Any, Any]) -> tuple[str, str]:
    bad = next((key for key in obj if not is_key(_item(key))), None)
    if bad is None:
        return described_type(obj), "dict(x) makes a plain dict"
    return (
        f"{described_type(obj)} whose keys are not all strings, numbers or tuples: one is "
        f"{described_type(bad)}",
        "keys are strings, numbers, None, and tuples of these",
    )


def _item(key: Any) -> Any:
    return key.item() if isinstance(key, np.generic) else key
