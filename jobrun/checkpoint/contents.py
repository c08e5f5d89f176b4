"""The contents of a checkpoint, blob by blob, and the disk space of checkpoints.

Unchanged values may be linked: their files belong to several checkpoints, and take disk space
once.  Neither numpy nor zarr is imported here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from jobrun.checkpoint.catalog import Catalog
from jobrun.checkpoint.integrity import read_manifest, read_record
from jobrun.checkpoint.leaf_keys import LeafKeys, leaf_keys
from jobrun.checkpoint.manifest import Entry, File
from jobrun.checkpoint.record import Record
from jobrun.core.text import size
from jobrun.storage.fs import DEFAULT, Fs

__all__ = [
    "EarlierCheckpoints",
    "LeafSummary",
    "contents",
    "disk_use",
    "disk_use_text",
    "freed_by",
    "small_disk_use",
]

MOST_FILES = 10_000
"""Files of all checkpoints together up to which they are looked at for the room that they take.

Measured: 10,000 checkpoints of 4 files take 0.6 s, and reading their records 0.3 s."""


@dataclass(frozen=True, slots=True)
class LeafSummary:
    """One leaf: ``name`` has the node in front if there are several.

    ``bytes`` is the size of its files, ``version`` the id of the checkpoint that first wrote its
    value, and ``links`` the number of names of each of its files, without those of tied arrays in
    the same checkpoint (1: no other checkpoint holds them).  ``linked`` is the number of its bytes
    that an earlier checkpoint shares: all, or those of some chunks.
    """

    name: str
    node: str
    entry: Entry
    links: int
    keys: LeafKeys
    linked: int = 0

    @property
    def bytes(self) -> int:
        """The size of its files in bytes."""
        return sum(file.size for file in self.entry.files)

    @property
    def version(self) -> int | None:
        """The id of the checkpoint that first wrote the value."""
        return self.entry.version

    @property
    def stored(self) -> str:
        """``linked`` if an earlier checkpoint shares it, ``in part``, or ``written``."""
        if not self.linked:
            return "written"
        return "linked" if self.linked == self.bytes else "in part"


def contents(checkpoint: str | Path, fs: Fs = DEFAULT) -> tuple[Record, list[LeafSummary]]:
    """Return the record of a checkpoint and its leaves, in order.

    Files at a URL have one name each.  Raises DamagedError, naming the file, if ``_SUCCESS`` or a
    manifest is not what was written.
    """
    record = read_record(fs, str(checkpoint))
    earlier = EarlierCheckpoints(checkpoint, record.id, fs)
    items = []
    for node in record.nodes:
        entries = read_manifest(fs, str(checkpoint), record, node).entries
        tied: dict[str, list[str]] = {}
        keys = leaf_keys(entries)
        for entry in entries:
            if entry.same_as is not None:
                tied.setdefault(entry.same_as, [entry.same_as]).append(entry.path)
        for entry in entries:
            if not entry.is_tree:
                name = f"{node}:{entry.path}" if len(record.nodes) > 1 else entry.path
                places = tied.get(entry.same_as or entry.path, [entry.path])
                links = 1 if fs.far else _links(f"{checkpoint}/{node}", entry, places)
                summary = LeafSummary(name, node, entry, links, keys[entry.path])
                if entry.version not in (None, record.id):  # the value is older than the checkpoint
                    linked = summary.bytes if links > 1 else 0
                else:
                    linked = earlier.linked_bytes(node, entry)
                items.append(replace(summary, linked=linked))
    return record, items


class EarlierCheckpoints:
    """The checkpoints of a run before one of them, whose chunks it may share."""

    def __init__(self, checkpoint: str | Path, id: int, fs: Fs = DEFAULT) -> None:
        self._checkpoint = checkpoint
        catalog = Catalog(Path(checkpoint).parent)
        ids = [] if fs.far else catalog.ids()  # files at a URL have one name each
        self._earlier = [catalog.path(earlier) for earlier in reversed(ids) if earlier < id]

    def linked_bytes(self, node: str, entry: Entry) -> int:
        """Return the bytes of an array's chunks that an earlier checkpoint shares.

        An array of one chunk is shared as a whole or not at all, which its version tells.
        """
        chunks = entry.files[1:]
        if len(chunks) < 2 or not self._earlier:
            return 0
        folder = f"{node}/{entry.path}"
        shared = _several_names(f"{self._checkpoint}/{folder}", chunks)
        linked = 0
        for earlier in self._earlier if shared else ():
            with suppress(OSError), os.scandir(f"{earlier}/{folder}") as files:
                linked += sum(shared.pop(file.inode(), 0) for file in files)
            if not shared:
                break
        return linked


def _several_names(folder: str, files: Iterable[File]) -> dict[int, int]:
    """Return the sizes of files that have several names, by inode."""
    found = {}
    for file in files:
        with suppress(OSError):
            status = os.lstat(f"{folder}/{file.name}")
            if status.st_nlink > 1:
                found[status.st_ino] = file.size
    return found


def _links(folder: str, entry: Entry, places: Sequence[str]) -> int:
    """Return the links of a leaf's files, without those at the other ``places`` of the array.

    Return 0 if a file is missing.
    """
    try:
        return min(_names_outside(folder, entry.path, file.name, places) for file in entry.files)
    except OSError:
        return 0


def _names_outside(folder: str, path: str, name: str, places: Sequence[str]) -> int:
    own = os.lstat(f"{folder}/{path}/{name}")
    beside = [os.lstat(f"{folder}/{place}/{name}") for place in places if place != path]
    return own.st_nlink - sum(os.path.samestat(own, other) for other in beside)


def disk_use(directories: Iterable[Path]) -> int:
    """Return the bytes that directories take on the disk, as ``du`` counts them.

    That is the allocated blocks of all files and directories in them, of each inode once.
    """
    return sum(_allocated(status) for status, _ in _inodes(directories))


def small_disk_use(catalog: Catalog, records: Sequence[Record]) -> int | None:
    """Return the ``disk_use`` of checkpoints, or None if they have more than ``MOST_FILES``."""
    if sum(record.files for record in records) > MOST_FILES:
        return None
    return disk_use(catalog.path(record.id) for record in records)


def disk_use_text(catalog: Catalog, records: Sequence[Record]) -> str:
    """Return the room that checkpoints take, ``9.3 kB on disk``.

    If they have more than ``MOST_FILES``, it is their size, linked files counted each time:
    ``9.3 MB in 40004 files``.
    """
    use = small_disk_use(catalog, records)
    if use is not None:
        return f"{size(use)} on disk"
    files = sum(record.files for record in records)
    return f"{size(sum(record.bytes for record in records))} in {files} files"


def freed_by(directories: Iterable[Path]) -> int:
    """Return the bytes that deleting directories frees: those that nothing else holds."""
    return sum(_allocated(s) for s, names in _inodes(directories) if names >= s.st_nlink)


_BLOCK = 512
"""Bytes of a block of ``st_blocks``, whatever the file system's own are."""


def _allocated(status: os.stat_result) -> int:
    return status.st_blocks * _BLOCK


def _inodes(directories: Iterable[Path]) -> Iterable[tuple[os.stat_result, int]]:
    """Return every inode with the number of its names in directories on one file system.

    A directory has all its names there.  What vanishes meanwhile, or cannot be read, is left out.
    """
    found: dict[int, tuple[os.stat_result, int]] = {}
    folders = [str(path) for path in directories]
    while folders:
        folder = folders.pop()
        with suppress(OSError), os.scandir(folder) as entries:
            own = os.stat(folder)
            found[own.st_ino] = (own, own.st_nlink)
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif known := found.get(entry.inode()):  # linked: one stat is enough
                    found[entry.inode()] = (known[0], known[1] + 1)
                else:
                    found[entry.inode()] = (entry.stat(follow_symlinks=False), 1)
    return found.values()
