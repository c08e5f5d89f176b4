"""Reading every byte of checkpoints, and reporting the damage of each.

Unchanged values may be linked, so that one file (an inode) belongs to several checkpoints.  It is
read once, and its damage is reported for each of them.  Leaves whose files are intact are also
loaded once, so that what is reported as whole can be loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from jobrun.checkpoint.integrity import (
    check_payload,
    check_root,
    check_sizes,
    read_manifest,
    read_record,
)
from jobrun.checkpoint.manifest import META, Entry, File
from jobrun.checkpoint.record import SUCCESS, Record
from jobrun.errors import DamagedError, JobrunError, NotFoundError, StoreError
from jobrun.storage.fs import DEFAULT, Fs
from jobrun.storage.threads import THREADS_FAR

__all__ = ["DamagedFile", "Survey", "Verdict", "sharing"]

_NAME = re.compile(r"checkpoint_[0-9]+")
_THREADS = 4
Inode = tuple[int, int]
_OF_A_FILE = (DamagedError, NotFoundError, StoreError)
"""Errors that are reported, each for its file, while the survey continues."""

_MISSES = 20
"""Files in a row that a store fails to deliver, after which it is not asked any more."""


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file that is not what was written: its path below the checkpoint, and why.

    ``blob`` is the leaf or tree that it belongs to (empty: the checkpoint itself), with its node in
    front if there are several.  ``inode`` is None if there is no file.
    """

    file: str
    reason: str
    blob: str = ""
    inode: Inode | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for one checkpoint.  ``record`` is None if it cannot be read.

    ``path`` is its path or URL, ``name`` the last part of that.
    """

    path: str | Path
    record: Record | None
    faults: tuple[DamagedFile, ...] = ()

    @property
    def name(self) -> str:
        """The name of the checkpoint."""
        return os.path.basename(self.path)

    @property
    def whole(self) -> bool:
        """Whether every byte is what was written."""
        return not self.faults


@dataclass(frozen=True, slots=True)
class _Part:
    """A file to read: its path, its entry in the manifest, and the blob it belongs to."""

    path: str
    file: File
    node: str
    entry: Entry
    blob: str
    inode: Inode | None
    size: int

    @property
    def leaf(self) -> tuple[Inode | str, Any]:
        """The key of what is loaded once: equal metadata and chunks are the same value."""
        entry = self.entry
        same = (entry.kind, repr(entry.dtype), entry.shape, entry.files, repr(entry.value))
        return self.inode or self.path, same

    @property
    def key(self) -> tuple[Inode | str, File]:
        """The key of what is read once: the same inode and the same expected payload."""
        return self.inode or self.path, self.file


class Survey:
    """Verifies checkpoints one by one, as ``fs`` reads them.

    ``files`` and ``bytes`` count the files that it has read, each inode once.  A checkpoint that a
    writer removes meanwhile is left out.  A file that a store fails to deliver counts as damaged;
    raises StoreError if it is the first file, and after 20 of them in a row.
    """

    def __init__(self, fs: Fs = DEFAULT) -> None:
        self._fs = fs
        self._reasons: dict[tuple[Inode | str, File], str] = {}
        self._values: dict[tuple[Inode | str, Any], DamagedFile | None] = {}
        self._delivered = False
        self._misses = 0
        self.files = 0
        self.bytes = 0

    def verify(self, paths: Iterable[str | Path]) -> Iterator[Verdict]:
        """Yield the verdicts on checkpoints, in their order."""
        with ThreadPoolExecutor(THREADS_FAR if self._fs.far else _THREADS) as pool:
            for path in paths:
                verdict = self._verdict(path, pool)
                if verdict.whole or self._fs.far or not self._fs.is_gone(path):
                    yield verdict

    def _verdict(self, path: str | Path, pool: ThreadPoolExecutor) -> Verdict:
        faults: list[DamagedFile] = []
        try:
            record = read_record(self._fs, str(path))
        except _OF_A_FILE as error:
            return Verdict(path, None, (self._fault(path, error),))
        self._delivered = True
        name = os.path.basename(path)
        if _NAME.fullmatch(name) and name != f"checkpoint_{record.id}":
            faults.append(DamagedFile(SUCCESS, f"it is a copy of checkpoint {record.id}"))
        try:
            check_root(self._fs, str(path), record)
        except _OF_A_FILE as error:
            faults.append(self._fault(path, error))
        parts: list[_Part] = []
        for node in record.nodes:
            try:
                parts += self._parts(path, record, node, faults)
            except _OF_A_FILE as error:
                faults.append(self._fault(path, error))
        self._prove(parts, pool)
        faults += self._unloadable(path, parts, pool)
        faults += [
            DamagedFile(os.path.relpath(part.path, path), reason, part.blob, part.inode)
            for part in parts
            if (reason := self._reasons[part.key])
        ]
        return Verdict(path, record, tuple(faults))

    def _parts(
        self, path: str | Path, record: Record, node: str, faults: list[DamagedFile]
    ) -> list[_Part]:
        """Return the files of a node with their full lengths; add the others to ``faults``."""
        found = []
        for name, file, entry in read_manifest(self._fs, str(path), record, node).files():
            place = f"{path}/{name}"
            blob = f"{node}:{entry.path}" if len(record.nodes) > 1 else entry.path
            if self._fs.far:  # any access fetches the whole file
                found.append(_Part(place, file, node, entry, blob, None, file.size))
                continue
            inode = _inode(place)
            try:
                check_sizes(self._fs, {place: file.size})
            except _OF_A_FILE as error:
                faults.append(self._fault(path, error, blob, inode))
            else:
                found.append(_Part(place, file, node, entry, blob, inode, file.size))
        return found

    def _prove(self, parts: Iterable[_Part], pool: ThreadPoolExecutor) -> None:
        """Read the files that were not read before."""
        new = {part.key: part for part in parts if part.key not in self._reasons}
        self._reasons.update(zip(new, pool.map(self._why_not, new.values()), strict=True))
        self.files += len(new)
        self.bytes += sum(part.size for part in new.values())

    def _unloadable(
        self, path: str | Path, parts: Sequence[_Part], pool: ThreadPoolExecutor
    ) -> list[DamagedFile]:
        """Return the leaves whose files are intact but which cannot be loaded."""
        bad = {part.blob for part in parts if self._reasons[part.key]}
        metas = [p for p in parts if p.file.name == META and not p.entry.is_tree]
        whole = [part for part in metas if part.blob not in bad]
        new = {part.leaf: part for part in whole if part.leaf not in self._values}
        prove = partial(self._no_value, path)
        self._values.update(zip(new, pool.map(prove, new.values()), strict=True))
        return [
            replace(fault, blob=part.blob, inode=part.inode)
            for part in whole
            if (fault := self._values[part.leaf]) is not None
        ]

    def _no_value(self, path: str | Path, part: _Part) -> DamagedFile | None:
        """Return why a leaf cannot be loaded; None if it can."""
        from jobrun.checkpoint.leaf_reading import prove_leaf  # needs numpy, which listing does not

        try:
            prove_leaf(self._fs, f"{path}/{part.node}", part.entry)
        except _OF_A_FILE as error:
            return self._fault(path, error, part.blob, part.inode)
        return None

    def _why_not(self, part: _Part) -> str:
        """Return why a file is not what was written; empty if it is."""
        try:
            check_payload(self._fs, part.path, part.file)
        except _OF_A_FILE as error:
            return self._counted(error).message
        self._misses = 0
        return ""

    def _counted(self, error: JobrunError) -> JobrunError:
        """Return an error of a file; raise a StoreError that is not of one file alone."""
        self._misses = self._misses + 1 if isinstance(error, StoreError) else 0
        if self._misses >= _MISSES or (self._misses and not self._delivered):
            raise error
        return error

    def _fault(
        self, path: str | Path, error: JobrunError, blob: str = "", inode: Inode | None = None
    ) -> DamagedFile:
        """Return the damaged file that an error names."""
        where = os.path.relpath(str(error.where), path) if error.where else "."
        return DamagedFile(where, self._counted(error).message, blob, inode)


def sharing(verdicts: Sequence[Verdict]) -> dict[Inode, list[str]]:
    """Return the damaged files that belong to several checkpoints, with the names of these."""
    owners: dict[Inode, list[str]] = {}
    for verdict in verdicts:
        for inode in dict.fromkeys(f.inode for f in verdict.faults if f.inode is not None):
            owners.setdefault(inode, []).append(verdict.name)
    return {inode: paths for inode, paths in owners.items() if len(paths) > 1}


def _inode(path: str) -> Inode | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
