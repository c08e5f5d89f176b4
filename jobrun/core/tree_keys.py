"""Keys of dicts that are not names: the folder that each has in a checkpoint, and its JSON form.

A dict of the user may have any keys: ``"W"`` and ``"w"``, ``"a/b"``, an empty string, integers,
tuples of these.  A folder's name is made of letters, digits, ``_``, ``.``, ``-``, and differs from
others in more than case; so such a key stands in the manifest, beside a folder named like it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from jobrun.core.names import is_name

__all__ = ["Key", "decode_key", "encode_key", "folder_names", "is_key"]

Key = Any
"""A string, bool, integer, float or None, or a tuple of these."""

_STRANGE: Final = re.compile(r"[^A-Za-z0-9_.-]")
_LONGEST: Final = 100
_MOST_BITS: Final = 1_000
_SIMPLE: Final = frozenset({str, bool, int, float, type(None)})
_DEEPEST: Final = 8


def is_key(key: object, depth: int = 0) -> bool:
    """Return whether ``key`` can be a key of a dict in a checkpoint."""
    if type(key) is int:
        return key.bit_length() <= _MOST_BITS
    if type(key) is tuple:
        return depth < _DEEPEST and all(is_key(part, depth + 1) for part in key)
    return type(key) in _SIMPLE


def folder_names(keys: Sequence[Key]) -> list[str]:
    """Return a folder name for each key of one dict, distinct also when case is folded.

    A key that is a valid name keeps it, if no earlier key has taken it.
    """
    taken: set[str] = set()
    names = []
    # Names first, so that no made name takes theirs.
    own = {key for key in keys if type(key) is str and is_name(key)}
    for key in keys:
        name = key if type(key) is str and key in own else _name_like(key)
        number = 1
        found = name
        while found.casefold() in taken or (found in own and found != key):
            number += 1
            found = f"{name}.{number}"
        taken.add(found.casefold())
        names.append(found)
    return names


def _name_like(key: Key) -> str:
    text = ".".join(map(str, key)) if type(key) is tuple else str(key)
    name = _STRANGE.sub("_", text)[:_LONGEST].lstrip(".") or "_"
    return name if is_name(name) else f"_{name}"


def encode_key(key: Key) -> Any:
    """Return the JSON form of a key: strings, integers, bools and None as they are."""
    if type(key) is float:
        return {"float": key.hex()}
    if type(key) is tuple:
        return {"tuple": [encode_key(part) for part in key]}
    return key


def decode_key(form: Any, depth: int = 0) -> Key:
    """Return the key with a JSON form; raises ValueError if it is none."""
    if type(form) is dict and len(form) == 1 and depth < _DEEPEST:
        ((what, value),) = form.items()
        if what == "float" and type(value) is str:
            return float.fromhex(value)
        if what == "tuple" and type(value) is list:
            return tuple([decode_key(part, depth + 1) for part in value])
    if not is_key(form) or type(form) in (float, tuple):
        raise ValueError(f"no key has the form {str(form)[:80]}")
    return form
