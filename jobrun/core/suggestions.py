"""Hints for unknown names: the nearest known ones, or all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from heapq import nlargest

__all__ = ["ALL", "did_you_mean", "did_you_mean_or_all", "few_hints", "listed", "nearest"]

MOST_LISTED = 12
"""The largest number of names that a hint lists of those that a user chose."""
ALL = 1000
"""The largest number of names that a hint lists of those that jobrun itself defines."""

_MANY = 1000
_MOST_COMPARED = 10_000
_PLAIN = re.compile(r"[^\s'\",;]+")
_compared: ContextVar[list[int] | None] = ContextVar("jobrun_compared", default=None)


@contextmanager
def few_hints() -> Iterator[None]:
    """Limit the names that ``did_you_mean`` compares while the context lasts.

    Comparing is slow, and nobody needs the nearest of ten thousand names ten thousand times.
    """
    token = _compared.set([0])
    try:
        yield
    finally:
        _compared.reset(token)


def nearest(name: str, known: Sequence[str], most: int = 3) -> list[str]:
    """Return the names of ``known`` that ``name`` may have meant, best first."""
    if len(known) > _MANY:  # look at those alone that may be near
        ends = (name[:2], name[-2:])
        known = [
            k
            for k in known
            if abs(len(k) - len(name)) < 3 and (k[:2] == ends[0] or k[-2:] == ends[1])
        ]
    if len(known) > _MANY:
        known = nlargest(
            _MANY, known, key=lambda k: _common(k, name) + _common(k[::-1], name[::-1])
        )
    lowered = {k.lower(): k for k in reversed(list(known))}
    from difflib import get_close_matches  # 1 ms, and few commands suggest anything

    found = get_close_matches(name.lower(), list(lowered), n=most, cutoff=0.6)
    return [lowered[f] for f in found]


def _common(a: str, b: str) -> int:
    """Return the length of the common prefix of two strings."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return ``did you mean 'x' or 'y'?`` for an unknown name, or an empty string."""
    spent = _compared.get()
    if spent is not None:
        spent[0] += min(len(known), _MANY)
        if spent[0] > _MOST_COMPARED:
            return ""
    names = nearest(name, known)
    return f"did you mean {' or '.join(repr(n) for n in names)}?" if names else ""


def did_you_mean_or_all(
    name: str, known: Sequence[str], lead: str = "", most: int = MOST_LISTED
) -> str:
    """Return the nearest names, or the first of all if none is near; see ``listed``."""
    return did_you_mean(name, known) or listed(known, lead, most)


def listed(known: Sequence[str], lead: str = "", most: int = MOST_LISTED) -> str:
    """Return ``there are x, y, …`` with the first names, or an empty string without names.

    ``lead`` is written in place of "there are".  A name that is not a plain word is quoted.
    """
    names = dict.fromkeys(known[:most])
    shown = ", ".join(name if _PLAIN.fullmatch(name) else repr(name) for name in names)
    lead = lead or ("there is" if len(known) == 1 else "there are")
    return f"{lead} {shown}{', …' if len(known) > most else ''}" if known else ""
