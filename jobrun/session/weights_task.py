"""The arrays of a file of weights as a task's function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.core.events import Warned
from jobrun.core.suggestions import did_you_mean_or_all
from jobrun.core.template import render
from jobrun.data.weights import read_weights
from jobrun.errors import DataError, JobrunError, TaskError
from jobrun.model.options import Load
from jobrun.session.base import Places
from jobrun.session.current import current
from jobrun.values.weights import Unused, nested

__all__ = ["PutWeights", "WeightsTask"]

PutWeights = Callable[[Mapping[str, npt.NDArray[Any]], bool], tuple[Any, Unused]]
"""Puts weights into a live object, all or (not strict) what fits; returns it, and the rest."""


class WeightsTask:
    """Called without arguments, returns what the file has for each name or pattern ``wanted``.

    A name is that of one array; of a pattern (``encoder.*``) the string matched by ``*`` is the
    name in the result.  ``live`` holds, for those that are live objects, how weights get in; of
    others new dicts are made.  Raises TaskError, naming file and key.
    """

    def __init__(
        self,
        load: Load,
        wanted: tuple[str, ...],
        places: Places,
        node: str,
        live: Mapping[str, PutWeights],
    ) -> None:
        self._load = load
        self._wanted = wanted
        self._texts = places.texts(node)
        self._folder = places.folder
        self._live = live

    def __call__(self) -> dict[str, Any]:
        """Read the file."""
        path = self._folder / str(render(self._load.file, self._texts))
        known: list[str] = []

        def is_wanted(name: str) -> bool:
            known.append(name)
            return any(_rest(pattern, name) is not None for pattern in self._wanted)

        try:
            found = read_weights(path, is_wanted)
            return {pattern: self._made(pattern, found, known) for pattern in self._wanted}
        except JobrunError as error:
            raise TaskError(f"{path}: {error.message}", hint=error.hint) from None

    def _made(self, pattern: str, found: Mapping[str, Any], known: list[str]) -> Any:
        """Return the value of one name or pattern."""
        own = {rest: found[n] for n in found if (rest := _rest(pattern, n)) is not None}
        if not own:
            hint = did_you_mean_or_all(pattern, known) or "it has no keys"
            raise DataError(f"no key of the file is {pattern!r}", hint=hint)
        if pattern not in self._live:
            return nested(own) if "*" in pattern else np.array(own[pattern])
        made, unused = self._live[pattern](own, self._load.strict)
        running = current()
        if unused and running is not None:
            running.control.report(Warned(f"{self._load.file}: {pattern!r}: {unused}"))
        return made


def _rest(pattern: str, name: str) -> str | None:
    """Return what ``*`` of a pattern stands for in a name, or an equal name; None if none."""
    start, star, end = pattern.partition("*")
    if not star:
        return name if name == pattern else None
    fits = name.startswith(start) and name.endswith(end) and len(name) > len(start) + len(end)
    return name[len(start) : len(name) - len(end)] if fits else None
