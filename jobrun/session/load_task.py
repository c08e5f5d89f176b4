"""The blobs of another run or checkpoint as a task's function."""

from __future__ import annotations

from typing import Any

from jobrun.core.paths import is_url
from jobrun.core.template import render
from jobrun.errors import DamagedError, JobrunError, NotFoundError, TaskError
from jobrun.model.options import Load
from jobrun.remote.blobs import load_blobs
from jobrun.session.base import Places

__all__ = ["LoadTask"]


class LoadTask:
    """Called without arguments, returns the blobs ``wanted`` by the names they have there.

    Every byte is verified.  Raises TaskError for blobs that are missing or damaged.
    """

    def __init__(self, load: Load, wanted: tuple[str, ...], places: Places, node: str) -> None:
        self._load = load
        self._wanted = wanted
        self._texts = places.texts(node)
        self._folder = places.folder

    def __call__(self) -> dict[str, Any]:
        """Load the blobs."""
        text = str(render(self._load.run, self._texts))
        path = text if is_url(text) else self._folder / text
        try:
            found = load_blobs(path, self._wanted, self._load.epoch, self._load.id)
            self._check_single(found)
            return found
        except DamagedError as error:
            hint = "'epoch' or 'id' under 'load' selects an older checkpoint"
            raise TaskError(f"{error.where or path}: {error.message}", hint=hint) from None
        except JobrunError as error:
            raise TaskError(f"{error.where or path}: {error.message}", hint=error.hint) from None

    def _check_single(self, found: dict[str, Any]) -> None:
        """Raise NotFoundError for a name that matches more than one blob."""
        for name in self._wanted:
            if name not in found:
                raise NotFoundError(
                    f"{name!r} matches more than one blob", hint=f"name one of {', '.join(found)}"
                )
