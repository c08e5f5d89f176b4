"""The rules for names of blobs and nodes: they are folders of a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

__all__ = ["CASE_HINT", "are_names", "case_twins", "check_name", "is_name"]

CASE_HINT: Final = "some file systems cannot tell them apart; rename one"

_LEVEL = r"[A-Za-z0-9_-][A-Za-z0-9_.-]*"
_NAME: Final = re.compile(_LEVEL)
_PATH: Final = re.compile(rf"{_LEVEL}(?:/{_LEVEL})*")


def is_name(name: str) -> bool:
    """Return whether ``name`` can be one level of a blob's name."""
    return _NAME.fullmatch(name) is not None and name != "zarr.json"


def are_names(names: Collection[object]) -> bool:
    """Return whether all of ``names`` are strings for which ``is_name`` is true."""
    texts = [name for name in names if type(name) is str]
    if len(texts) < len(names):
        return False
    path = "/".join(texts)  # one look at all is quicker than one at each
    if path.count("/") < len(texts) and "zarr.json" not in path and _PATH.fullmatch(path):
        return True
    return all(map(is_name, texts))


def case_twins(names: Iterable[str]) -> tuple[str, str] | None:
    """Return the first two names of one folder that differ in case only, or None."""
    names = list(names)
    text = "".join(names)
    if text == text.casefold():  # as with most; one look at all is quicker than one at each
        return None
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            return other, name
    return None


def check_name(name: str) -> str | None:
    """Return the problem with the name of a blob, or None."""
    if _PATH.fullmatch(name) and "zarr.json" not in name:  # as with all but a few
        return None
    for part in name.split("/"):
        if not is_name(part):
            if part == "zarr.json":
                return "'zarr.json' cannot name a blob"
            return (
                f"{name!r} cannot name a blob: letters, digits, '_', '.', '-' "
                "('/' between the levels of a tree), not starting with a dot"
            )
    return None
