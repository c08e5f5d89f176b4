"""Which files of an earlier checkpoint a new one can share, by hard links.

A blob that has not changed has the version of the checkpoint that first wrote it; where an earlier
checkpoint holds that version, its files are linked and neither read nor hashed.  A ``zarr.json``
that would have the same bytes is linked even if the values are others.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock

from jobrun.checkpoint.integrity import read_manifest, read_record
from jobrun.checkpoint.manifest import META, Entry
from jobrun.checkpoint.zarr_metadata import Form
from jobrun.errors import JobrunError
from jobrun.storage.fs import Fs, FsError

__all__ = ["Sources", "remember"]

_Entries = Mapping[str, Entry]
_MOST_RUNS = 8
_MOST_OF_A_NODE = 3
"""A save links from the checkpoint before the last or from one before; it is then the last."""

# Manifests of checkpoints of this process, so that a save does not read back what an earlier one
# wrote: of the last few run directories, of each node the last few, by digest, since a checkpoint's
# path could have been used before.
_remembered: OrderedDict[str, dict[str, OrderedDict[str, _Entries]]] = OrderedDict()
_lock = Lock()
_NONE: Mapping[str, _Entries] = {}


def remember(run_dir: str, node: str, digest: str, entries: Sequence[Entry]) -> _Entries:
    """Keep the entries of a manifest that was just written or read; they by their paths."""
    by_path = {entry.path: entry for entry in entries}
    with _lock:
        own = _remembered.setdefault(run_dir, {}).setdefault(node, OrderedDict())
        own[digest] = by_path
        if len(own) > _MOST_OF_A_NODE:
            own.popitem(last=False)
        _remembered.move_to_end(run_dir)
        if len(_remembered) > _MOST_RUNS:
            _remembered.popitem(last=False)
    return by_path


class Sources:
    """The earlier checkpoints that a node's part may share files with, the preferred one first.

    One that is gone or damaged is passed over: then there is nothing to share with it.
    """

    def __init__(self, fs: Fs, checkpoints: Sequence[str | os.PathLike[str]], node: str) -> None:
        self._fs = fs
        self._found: list[tuple[str, _Entries]] = []
        for checkpoint in checkpoints:
            path = os.fspath(checkpoint)
            try:
                entries = _entries(fs, path, node)
            except JobrunError:
                continue
            self._found.append((f"{path}/{node}", entries))

    def unchanged(self, path: str, kind: str, version: int) -> tuple[str, Entry] | None:
        """The folder and entry of a leaf that holds this very value, or None."""
        if version < 0:
            return None
        for folder, entries in self._found:
            entry = entries.get(path)
            if entry is not None and entry.version == version and entry.kind == kind:
                return folder, entry
        return None

    def same_meta(self, path: str, form: Form) -> str | None:
        """The ``zarr.json`` of a leaf with chunks, or of a tree, that has the same bytes, or None.

        Only where the bytes follow from kind, dtype and shape: a value in it could have another
        value's checksum.  They are compared, since many leaves may come to share the file.
        """
        for folder, entries in self._found:
            other = entries.get(path)
            if other is not None and _alike(form, other):
                source = f"{folder}/{path}/{META}"
                with suppress(FsError):
                    if self._fs.read(source, len(form.meta)) == form.meta:
                        return source
        return None


def _alike(form: Form, other: Entry) -> bool:
    return (
        (form.kind, form.dtype, form.shape) == (other.kind, other.dtype, other.shape)
        and [chunk.key for chunk in form.chunks] == [file.name for file in other.files[1:]]
        and form.file == other.files[0]
    )


def _entries(fs: Fs, checkpoint: str, node: str) -> _Entries:
    record = read_record(fs, checkpoint)
    run_dir, digest = os.path.dirname(checkpoint), record.manifests.get(node, "")
    with _lock:
        known = _remembered.get(run_dir, {}).get(node, _NONE).get(digest)
    if known is not None:
        return known
    manifest = read_manifest(fs, checkpoint, record, node)
    return remember(run_dir, node, digest, manifest.entries)
