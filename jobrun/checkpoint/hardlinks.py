"""Files of an earlier checkpoint that a new one shares by hard links.

An unchanged blob has the version of the checkpoint that first wrote it; if an earlier checkpoint
holds that version, its files are linked, and neither read nor hashed.  A ``zarr.json`` that would
have the same bytes is linked even if the values differ.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from threading import Lock

from jobrun.checkpoint.chunk_links import EarlierLeaf
from jobrun.checkpoint.integrity import read_manifest, read_record
from jobrun.checkpoint.manifest import META, Entry
from jobrun.checkpoint.zarr_metadata import Form
from jobrun.errors import JobrunError
from jobrun.storage.fs import Fs, FsError

__all__ = ["Sources", "remember"]

_Entries = Mapping[str, Entry]
_MOST_RUNS = 8
_MOST_OF_A_NODE = 3
"""A save links from the last checkpoint or from the one before it, and becomes the last."""

# The manifests that this process wrote or read, so that a save need not read them again: the last
# few run directories, and of each node the last few manifests.  They are kept by digest, since a
# checkpoint's path could have been used before.
_remembered: OrderedDict[str, dict[str, OrderedDict[str, _Entries]]] = OrderedDict()
_fine: dict[tuple[str, str], dict[str, int]] = {}
"""Arrays that were seen to change in part, by run directory and node: see ``chunk_links``."""

_lock = Lock()
_NONE: Mapping[str, _Entries] = {}


def remember(run_dir: str, node: str, digest: str, entries: Sequence[Entry]) -> _Entries:
    """Keep the entries of a manifest that was just written or read; return them by path."""
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

    Missing and damaged ones are ignored: nothing is shared with them.
    """

    def __init__(self, fs: Fs, checkpoints: Sequence[str | os.PathLike[str]], node: str) -> None:
        self._fs = fs
        self._found: list[tuple[str, _Entries]] = []
        self._owner = (os.path.dirname(os.fspath(checkpoints[0])) if checkpoints else "", node)
        for checkpoint in checkpoints:
            path = os.fspath(checkpoint)
            try:
                entries = _entries(fs, path, node)
            except JobrunError:
                continue
            self._found.append((f"{path}/{node}", entries))

    def unchanged(self, path: str, kind: str, version: int) -> tuple[str, Entry] | None:
        """Return the folder and entry of a leaf with the value of this version, or None."""
        if version < 0:
            return None
        for folder, entries in self._found:
            entry = entries.get(path)
            if entry is not None and entry.version == version and entry.kind == kind:
                return folder, entry
        return None

    def arrays(self, path: str, form: Form) -> list[EarlierLeaf]:
        """Return the arrays at ``path`` with the same dtype, shape of a row and codec."""
        if form.kind != "array" or not form.shape or not form.chunks:
            return []
        codec = None if form.codec is None else form.codec.to_json()
        found = []
        for folder, entries in self._found:
            entry = entries.get(path)
            if (
                entry is not None
                and (entry.kind, entry.dtype) == (form.kind, form.dtype)
                and entry.shape is not None
                and entry.shape[1:] == form.shape[1:]
                and entry.codec == codec
                and len(entry.files) > 1
            ):
                files = {file.name: file for file in entry.files[1:]}
                found.append(EarlierLeaf(f"{folder}/{path}", entry, files))
        return found

    @property
    def fine(self) -> MutableMapping[str, int]:
        """Rows of a chunk of the arrays of this node that are cut finely, by path."""
        with _lock:
            return _fine.setdefault(self._owner, {})

    def same_meta(self, path: str, form: Form) -> str | None:
        """Return the path of a ``zarr.json`` with the same bytes, or None.

        Only of a leaf with chunks or a tree, where the bytes follow from kind, dtype and shape: a
        value in it could have another value's checksum.  The bytes are compared, since many leaves
        may come to share the file.
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
