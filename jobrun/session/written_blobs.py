"""Which blobs have been written in the epoch of now, so that no older value is taken for new.

A blob that persists keeps the value of ``init``, or of an earlier epoch, where the step that writes
it is not due, or has no batch to run on.  Metrics and conditions must not take that for a value of
the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jobrun.analysis.names import Key

__all__ = ["Written"]


class Written:
    """Remembers in which epoch each blob was last written.

    ``of_epoch`` are the blobs that the tasks of the group ``epoch`` write.  ``epoch`` is the number
    of the one that runs, or ran last; 0 before the first.  ``note`` may be called from any thread.
    """

    def __init__(self, of_epoch: Iterable[Key] = ()) -> None:
        self._of_epoch = frozenset(of_epoch)
        self._last: dict[Key, int] = {}
        self.epoch = 0

    def note(self, key: Key) -> None:
        """Remember that a blob, or a tree of them, is written now."""
        self._last[key] = self.epoch

    def by_epoch(self, key: Key) -> bool:
        """Return whether a task of ``epoch`` writes the blob, or a tree in which it lies."""
        return any(k in self._of_epoch for k in _with_trees(key))

    def is_new(self, key: Key) -> bool:
        """Return whether the blob, or a tree in which it lies, was written in the epoch of now."""
        return any(self._last.get(k) == self.epoch for k in _with_trees(key))

    def is_stale(self, key: Key) -> bool:
        """Return whether the blob has a value of before the epoch of now only.

        A blob that no task of ``epoch`` writes is never stale: it is a constant.
        """
        if not self.epoch or self.is_new(key):
            return False
        return self.by_epoch(key)


def _with_trees(key: Key) -> Iterator[Key]:
    """The key, and those of the trees in which it lies."""
    node, path = key
    yield key
    while "/" in path:
        path = path.rpartition("/")[0]
        yield node, path
