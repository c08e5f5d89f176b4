"""Which files of an earlier checkpoint a new one can share, by hard links.

A blob that has not changed has the version of the checkpoint that first wrote it; where an earlier
checkpoint holds that version, its files are linked and neither read nor hashed.  A ``zarr.json``
that would have the same bytes is linked even if the values are others.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock

from jobrun.checkpoint.fs import Fs
from jobrun.checkpoint.manifest import Entry
from jobrun.checkpoint.verify import read_manifest, read_record
from jobrun.errors import JobrunError

__all__ = ["Sources", "remember"]

_Entries = Mapping[str, Entry]
_MOST_REMEMBERED = 64

# Manifests of checkpoints of this process, so that a save does not read back what an earlier one
# wrote; by digest, since a checkpoint's path could have been used before.
_remembered: OrderedDict[tuple[str, str], _Entries] = OrderedDict()
_lock = Lock()


def remember(node: str, digest: str, entries: Sequence[Entry]) -> None:
    """Keep the entries of a manifest that was just written."""
    with _lock:
        _remembered[node, digest] = {entry.path: entry for entry in entries}
        while len(_remembered) > _MOST_REMEMBERED:
            _remembered.popitem(last=False)


class Sources:
    """The earlier checkpoints that a node's part may share files with, the preferred one first.

    One that is gone or damaged is passed over: then there is nothing to share with it.
    """

    def __init__(self, fs: Fs, checkpoints: Sequence[str | os.PathLike[str]], node: str) -> None:
        self._found: list[tuple[str, _Entries]] = []
        for checkpoint in checkpoints:
            path = os.fspath(checkpoint)
            try:
                entries = _entries(fs, path, node)
            except JobrunError:
                continue
            self._found.append((f"{path}/{node}", entries))

    @property
    def any(self) -> bool:
        """Whether there is a checkpoint to share files with."""
        return bool(self._found)

    def unchanged(self, path: str, kind: str, version: int) -> tuple[str, Entry] | None:
        """The folder and entry of a leaf that holds this very value, or None."""
        if version < 0:
            return None
        for folder, entries in self._found:
            entry = entries.get(path)
            if entry is not None and entry.version == version and entry.kind == kind:
                return folder, entry
        return None

    def same_meta(self, entry: Entry) -> str | None:
        """The folder of an entry whose ``zarr.json`` has the same bytes, or None.

        Only where the bytes follow from kind, dtype and shape: a value in it could have another
        value's checksum.
        """
        if not entry.is_tree and len(entry.files) < 2:
            return None
        for folder, entries in self._found:
            other = entries.get(entry.path)
            if other is not None and _alike(entry, other):
                return folder
        return None


def _alike(entry: Entry, other: Entry) -> bool:
    return (
        (entry.kind, entry.dtype, entry.shape) == (other.kind, other.dtype, other.shape)
        and [f.name for f in entry.files] == [f.name for f in other.files]
        and entry.files[0] == other.files[0]
    )


def _entries(fs: Fs, checkpoint: str, node: str) -> _Entries:
    record = read_record(fs, checkpoint)
    key = (node, record.manifests.get(node, ""))
    with _lock:
        known = _remembered.get(key)
    if known is None:
        manifest = read_manifest(fs, checkpoint, record, node)
        remember(node, key[1], manifest.entries)
        known = {entry.path: entry for entry in manifest.entries}
    return known
