"""Reading every byte of checkpoints, and saying what is damaged in which of them.

Values that did not change may be linked, so that one file (an inode) belongs to several
checkpoints.  It is read once, and what is wrong with it is said of each of them.  Neither numpy nor
zarr is imported here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from jobrun.checkpoint.fs import DEFAULT, Fs
from jobrun.checkpoint.manifest import File
from jobrun.checkpoint.pool import THREADS_FAR
from jobrun.checkpoint.record import SUCCESS, Record
from jobrun.checkpoint.verify import (
    check_payload,
    check_root,
    check_sizes,
    read_manifest,
    read_record,
)
from jobrun.errors import DamagedError, NotFoundError

__all__ = ["Fault", "Survey", "Verdict", "sharing"]

_NAME = re.compile(r"checkpoint_[0-9]+")
_THREADS = 4
Inode = tuple[int, int]
_OF_A_FILE = (DamagedError, NotFoundError)
"""What is wrong with a file; what is wrong with all of a store ends the survey."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A file that is not what was written: its path below the checkpoint, and why.

    ``blob`` is the leaf or tree that it belongs to (empty: the checkpoint itself), with its node in
    front if there are several.  ``inode`` is None where there is no file.
    """

    file: str
    reason: str
    blob: str = ""
    inode: Inode | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found in one checkpoint.  ``record`` is None where it cannot be read.

    ``path`` is its path or URL, ``name`` the last part of that.
    """

    path: str | Path
    record: Record | None
    faults: tuple[Fault, ...] = ()

    @property
    def name(self) -> str:
        """What the checkpoint is called."""
        return os.path.basename(self.path)

    @property
    def whole(self) -> bool:
        """Whether every byte is what was written."""
        return not self.faults


@dataclass(frozen=True, slots=True)
class _Part:
    """A file to be read: its path, what the manifest says of it, and whose it is."""

    path: str
    file: File
    blob: str
    inode: Inode | None
    size: int

    @property
    def key(self) -> tuple[Inode | str, File]:
        """What is read once: the same bytes are to be the same payload."""
        return self.inode or self.path, self.file


class Survey:
    """Verifies checkpoints one by one, as ``fs`` reads them.

    ``files`` and ``bytes`` is what it has read of manifests' files, each inode once.

    One that a writer removes meanwhile is left out.
    """

    def __init__(self, fs: Fs = DEFAULT) -> None:
        self._fs = fs
        self._reasons: dict[tuple[Inode | str, File], str] = {}
        self.files = 0
        self.bytes = 0

    def verify(self, paths: Iterable[str | Path]) -> Iterator[Verdict]:
        """The verdicts on checkpoints, in their order."""
        with ThreadPoolExecutor(THREADS_FAR if self._fs.far else _THREADS) as pool:
            for path in paths:
                verdict = self._verdict(path, pool)
                if verdict.whole or self._fs.far or not self._fs.is_gone(path):
                    yield verdict

    def _verdict(self, path: str | Path, pool: ThreadPoolExecutor) -> Verdict:
        faults: list[Fault] = []
        try:
            record = read_record(self._fs, str(path))
        except _OF_A_FILE as error:
            return Verdict(path, None, (_fault(path, error),))
        name = os.path.basename(path)
        if _NAME.fullmatch(name) and name != f"checkpoint_{record.id}":
            faults.append(Fault(SUCCESS, f"it is a copy of checkpoint {record.id}"))
        try:
            check_root(self._fs, str(path), record)
        except _OF_A_FILE as error:
            faults.append(_fault(path, error))
        parts: list[_Part] = []
        for node in record.nodes:
            try:
                parts += self._parts(path, record, node, faults)
            except _OF_A_FILE as error:
                faults.append(_fault(path, error))
        self._prove(parts, pool)
        faults += [
            Fault(os.path.relpath(part.path, path), reason, part.blob, part.inode)
            for part in parts
            if (reason := self._reasons[part.key])
        ]
        return Verdict(path, record, tuple(faults))

    def _parts(
        self, path: str | Path, record: Record, node: str, faults: list[Fault]
    ) -> list[_Part]:
        """The files of a node, which are there at their lengths; the others are faults."""
        found = []
        for name, file, entry in read_manifest(self._fs, str(path), record, node).files():
            place = f"{path}/{name}"
            blob = f"{node}:{entry.path}" if len(record.nodes) > 1 else entry.path
            if self._fs.far:  # it is fetched whole, whatever is asked of it
                found.append(_Part(place, file, blob, None, file.size))
                continue
            inode = _inode(place)
            try:
                check_sizes(self._fs, [(place, file)])
            except _OF_A_FILE as error:
                faults.append(_fault(path, error, blob, inode))
            else:
                found.append(_Part(place, file, blob, inode, file.size))
        return found

    def _prove(self, parts: Iterable[_Part], pool: ThreadPoolExecutor) -> None:
        """Read the files that were not read before."""
        new = {part.key: part for part in parts if part.key not in self._reasons}
        self._reasons.update(zip(new, pool.map(self._why_not, new.values()), strict=True))
        self.files += len(new)
        self.bytes += sum(part.size for part in new.values())

    def _why_not(self, part: _Part) -> str:
        """Why a file is not what was written; empty if it is."""
        try:
            check_payload(self._fs, part.path, part.file)
        except _OF_A_FILE as error:
            return error.message
        return ""


def sharing(verdicts: Sequence[Verdict]) -> dict[Inode, list[str]]:
    """The damaged files that belong to several checkpoints, with the names of these."""
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


def _fault(
    path: str | Path,
    error: DamagedError | NotFoundError,
    blob: str = "",
    inode: Inode | None = None,
) -> Fault:
    where = os.path.relpath(str(error.where), path) if error.where else "."
    return Fault(where, error.message, blob, inode)
