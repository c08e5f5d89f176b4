"""The blobs of a run, for its caller: those of the session, or of the checkpoint it ended with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jobrun.checkpoint.read_blobs import load_blobs
from jobrun.errors import NotFoundError, TaskError
from jobrun.session.base import Session

__all__ = ["Results"]


class Results(Mapping[str, Any]):
    """Blobs by name, read-only: of a session, or of a run that had nothing left to do.

    With several nodes the names are ``node:name``.  A tree is found by its name too; iteration
    yields the leaves.
    """

    def __init__(self, session: Session | None, checkpoint: Path | None) -> None:
        self._session = session
        self._checkpoint = checkpoint

    def __getitem__(self, name: str) -> Any:
        try:
            if self._checkpoint is not None:
                return load_blobs(self._checkpoint, [name])[name]
            if self._session is not None:
                return self._session.blob(name)
        except (TaskError, NotFoundError) as error:
            raise KeyError(str(error)) from None
        raise KeyError(f"{name!r}: the job has not been run")

    def __iter__(self) -> Iterator[str]:
        if self._checkpoint is not None:
            return iter(load_blobs(self._checkpoint))
        names = self._session.names() if self._session is not None else []
        parents = {name.rpartition("/")[0] for name in names}
        return (name for name in names if name not in parents)

    def __len__(self) -> int:
        return sum(1 for _ in self)
