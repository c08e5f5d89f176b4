"""The blobs written in the current epoch, so that no older value is taken for a new one.

A blob that persists keeps the value of ``init``, or of an earlier epoch, where the step that writes
it is not due, or has no batch to run on.  Metrics and conditions must not take that for a value of
the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jobrun.core.blob_paths import Key

__all__ = ["Written"]


class Written:
    """Records the epoch in which each blob was last written.

    ``of_epoch`` are the blobs that the tasks of the group ``epoch`` write.  ``epoch`` is the number
    of the current epoch, or of the last one that ran; 0 before the first.  ``note`` may be called
    from any thread.
    """

    def __init__(self, of_epoch: Iterable[Key] = ()) -> None:
        self._of_epoch = frozenset(of_epoch)
        self._last: dict[Key, int] = {}
        self.epoch = 0

    def note(self, *keys: Key) -> None:
        """Record that blobs, or trees of them, are written now."""
        epoch, last = self.epoch, self._last
        for key in keys:
            last[key] = epoch

    def by_epoch(self, key: Key) -> bool:
        """Return whether a task of ``epoch`` writes the blob, or a tree that contains it."""
        return any(k in self._of_epoch for k in _with_trees(key))

    def is_new(self, key: Key) -> bool:
        """Return whether the blob, or a tree that contains it, was written in the current epoch."""
        return any(self._last.get(k) == self.epoch for k in _with_trees(key))

    def is_stale(self, key: Key) -> bool:
        """Return whether the blob only has a value from before the current epoch.

        A blob that no task of ``epoch`` writes is never stale: it is a constant.
        """
        if not self.epoch or self.is_new(key):
            return False
        return self.by_epoch(key)


def _with_trees(key: Key) -> Iterator[Key]:
    """Yield the key, and those of the trees that contain it."""
    node, path = key
    yield key
    while "/" in path:
        path = path.rpartition("/")[0]
        yield node, path
