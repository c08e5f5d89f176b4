"""The interfaces that the manager uses: the source of the parts, the lock, and the watch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from jobrun.checkpoint.part import PartSummary, check_part, mark_saved, write_parts
from jobrun.checkpoint.record import Record
from jobrun.core.names import CASE_HINT, case_twins, is_name
from jobrun.errors import UsageError, ValueRefusedError
from jobrun.model.policy import Compress
from jobrun.storage.fs import DEFAULT, Fs
from jobrun.values.adoption import adopt
from jobrun.values.boxes import Box, Tree, Value
from jobrun.values.overlap import overlapping

__all__ = ["BlobSource", "PartSource", "RunLock", "SaveWatch"]

Array = npt.NDArray[Any]
Nodes = Mapping[str, Mapping[str, Value]]


class RunLock(Protocol):
    """The lock against other writers: ``storage.lock.Lock``, or one that is held already."""

    def acquire(self) -> None:
        """Acquire the lock; raises LockedError if another process holds it."""

    def release(self) -> None:
        """Release the lock."""

    def held(self) -> bool:
        """Return whether any process holds the lock, including this one."""


class PartSource(Protocol):
    """The holder of the blobs of a snapshot, which writes them."""

    def write(
        self, directory: str, id: int, share_with: Sequence[str], compress: Sequence[Compress]
    ) -> list[PartSummary]:
        """Write the parts of all nodes of checkpoint ``id``, durably: see ``part.write_parts``."""

    def saved(self, id: int) -> None:
        """Record that the checkpoint is durable: values without a version get this one."""

    def release(self) -> None:
        """Release the values: the save has ended, successfully or not."""


class SaveWatch(Protocol):
    """The observer of saves, called by the thread that saves."""

    def admit(self, id: int) -> None:
        """Allow checkpoint ``id``, of which nothing is written yet, or raise SaveError."""

    def published(self, record: Record, path: Path) -> None:
        """Note that the checkpoint is whole and durable; must not raise."""


@dataclass(frozen=True, slots=True)
class BlobSource:
    """A snapshot in this process: the blobs of each node, by reference."""

    blobs: Nodes
    fs: Fs = DEFAULT

    @classmethod
    def of(
        cls, blobs: Mapping[str, Mapping[str, object]], *, copy: bool, fs: Fs = DEFAULT
    ) -> BlobSource:
        """Return a snapshot of the caller's values.

        The caller may change them once the save returns or, with ``copy``, at once.  Raises
        UsageError or ValueRefusedError for values that cannot be saved.
        """
        if not blobs or not all(isinstance(items, Mapping) for items in blobs.values()):
            raise UsageError(
                "blobs must be {node: {name: value}}",
                hint='with one node: {"main": {"w": w, "b": b}}',
            )
        if twins := case_twins(blobs):
            one, other = twins
            raise ValueRefusedError(
                f"nodes {one!r} and {other!r} differ in case only", hint=CASE_HINT
            )
        value = _copied if copy else _value
        nodes = {
            node: {name: value(item) for name, item in items.items()}
            for node, items in blobs.items()
        }
        for node, values in nodes.items():
            check_part(node, values)
        return cls(nodes, fs)

    def write(
        self, directory: str, id: int, share_with: Sequence[str], compress: Sequence[Compress]
    ) -> list[PartSummary]:
        """Write the parts, in the order of the nodes."""
        return write_parts(
            directory, self.blobs, id=id, share_with=share_with, compress=compress, fs=self.fs
        )

    def saved(self, id: int) -> None:
        """Give the boxes without a version this one."""
        for blobs in self.blobs.values():
            mark_saved(blobs, id)

    def release(self) -> None:
        """Do nothing: the values are freed with this object."""


def _copied(item: object) -> Value:
    return adopt([item])


def _value(item: object) -> Value:
    """Return a value with its arrays as they are: they are on disk before the save returns.

    A tree in which one array may occur twice is adopted, which finds out what is tied.
    """
    arrays: list[Array] = []
    if not _is_plain(item, arrays) or overlapping(arrays) is not None:
        return adopt([item])
    return _as_it_is(item)


def _is_plain(item: object, arrays: list[Array], depth: int = 0) -> bool:
    """Return whether a value can be written without a copy; add its arrays to ``arrays``."""
    if type(item) is np.ndarray and item.flags.c_contiguous and item.dtype.isbuiltin == 1:
        arrays.append(item)
        return True
    if type(item) is dict and depth < 64:
        return all(
            type(k) is str and is_name(k) and _is_plain(below, arrays, depth + 1)
            for k, below in item.items()
        )
    return isinstance(item, bool | int | float | str | None)


def _as_it_is(item: object) -> Value:
    if isinstance(item, np.ndarray):
        return Box(item, "array")
    if isinstance(item, dict):
        return Tree("dict", {name: _as_it_is(below) for name, below in item.items()})
    return adopt([item])
