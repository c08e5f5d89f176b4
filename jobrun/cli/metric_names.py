"""The metrics, or numbers of steps, that the names and patterns of a command mean."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from jobrun.core.suggestions import did_you_mean_or_all
from jobrun.errors import NotFoundError

__all__ = ["matching"]


def matching(known: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the names that patterns match; raises NotFoundError for one that matches none."""
    if not wanted:
        return list(known)
    for name in wanted:
        if not any(name == k or fnmatchcase(k, name) for k in known):
            hint = did_you_mean_or_all(name, known) or "no metric has"
            raise NotFoundError(f"no metric {name!r} has a value in these epochs", hint=hint)
    return [k for k in known if any(name == k or fnmatchcase(k, name) for name in wanted)]
