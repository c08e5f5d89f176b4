"""Which checkpoints a run directory holds.

*Listed* is a real directory ``checkpoint_<id>`` whose ``_SUCCESS`` and manifests verify and name
that id, and whose files are all there at their full lengths.  *Proven* is one of which every byte
has been read and compared with its checksum.  Everything else in the directory is none of ours.
Neither numpy nor zarr is imported here.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from jobrun.checkpoint.integrity import (
    check_payload,
    check_root,
    check_sizes,
    kind_of,
    read_manifest,
    read_record,
)
from jobrun.checkpoint.record import ID, MAX_ID, SUCCESS, Record
from jobrun.errors import DamagedError, JobrunError, NotFoundError, SaveError
from jobrun.storage.fs import DEFAULT, Fs, FsError

__all__ = ["Catalog", "Ignored", "listed", "prove", "removal_is_said", "span"]

_LOOKS_LIKE = "checkpoint_"
_NAME = re.compile(rf"checkpoint_({ID})")
_NUMBER = re.compile(r"checkpoint_([0-9]{1,12})")


@dataclass(frozen=True, slots=True)
class Ignored:
    """An entry that is named like a checkpoint and is not listed; ``id`` is None in odd names."""

    name: str
    reason: str
    id: int | None = None


def listed(run_dir: str | os.PathLike[str], fs: Fs = DEFAULT) -> list[Record]:
    """The listed checkpoints of a run directory, by rising id; none if there is no directory."""
    return Catalog(run_dir, fs).listed()


class Catalog:
    """The checkpoints of one run directory, as they are on disk at each call.

    Every look raises NotFoundError where the machine does not let us look: that no checkpoint can
    be seen does not mean that there is none.
    """

    def __init__(self, run_dir: str | os.PathLike[str], fs: Fs = DEFAULT) -> None:
        self.run_dir = Path(run_dir)
        self._fs = fs

    def path(self, id: int) -> Path:
        """Where the checkpoint of an id is."""
        return self.run_dir / f"checkpoint_{id}"

    def ids(self) -> list[int]:
        """The ids of what is named like a checkpoint, whole or not, rising."""
        return sorted(int(m[1]) for name in self._names() if (m := _NAME.fullmatch(name)))

    def check(self, id: int) -> Record:
        """The record of a checkpoint that is listed.

        Raises DamagedError, saying why, if it is not, NotFoundError if it cannot be looked at.
        """
        path = str(self.path(id))
        record = self._record(id)
        check_root(self._fs, path, record)
        for node in record.nodes:
            files = read_manifest(self._fs, path, record, node).files()
            check_sizes(self._fs, [(f"{path}/{name}", file) for name, file, _ in files])
        return record

    def _record(self, id: int) -> Record:
        """What ``_SUCCESS`` says of a checkpoint; nothing else is looked at."""
        path = str(self.path(id))
        if kind_of(self._fs, path) != "directory":
            raise DamagedError("it is not a directory", where=path)
        record = read_record(self._fs, path)
        if record.id != id:
            raise DamagedError(f"it is a copy of checkpoint {record.id}", where=path)
        return record

    def glance(self, epoch: int | None = None, id: int | None = None) -> Record:
        """The record of the checkpoint of an epoch or id, or of the newest, listed or not.

        For who proves what is read of it: nothing but ``_SUCCESS`` is looked at, which costs the
        same for thousands of blobs as for one.  Raises DamagedError where that is not what was
        written, also of a newer checkpoint, NotFoundError if there is none.
        """
        for found in [id] if id is not None else self.newest_first():
            record = self._record(found)
            if epoch is None or (record.epoch == epoch and record.at_boundary):
                return record
        raise NotFoundError("no such checkpoint", where=str(self.run_dir))

    def was_whole(self, id: int) -> bool:
        """Whether what is named like a checkpoint was one here, damaged by now or not.

        A copy under another name, a link, or what has no ``_SUCCESS`` is none of ours.
        """
        path = str(self.path(id))
        try:
            if kind_of(self._fs, path) != "directory" or not kind_of(self._fs, f"{path}/{SUCCESS}"):
                return False
            return read_record(self._fs, path).id == id
        except JobrunError:
            return True

    def is_ours(self, id: int) -> bool:
        """Whether it is a checkpoint of ours, damaged by now or not, even without ``_SUCCESS``:
        a checkpoint has its name only once that is written."""
        names = self._below(self.path(id).name)
        with suppress(JobrunError):  # what cannot be looked at may be ours
            if kind_of(self._fs, str(self.path(id))) == "link":
                return False
        return self.was_whole(id) or (SUCCESS not in names and any(map(_is_manifest, names)))

    def listed(self) -> list[Record]:
        """The listed checkpoints, by rising id."""
        return [found for _, found in self._scan() if isinstance(found, Record)]

    def ignored(self, listed: Collection[int] = ()) -> list[Ignored]:
        """What is named like a checkpoint and is none, with the reason.

        ``listed`` are ids that are known to be listed.
        """
        return [found for _, found in self._scan(listed) if isinstance(found, Ignored)]

    def latest(self) -> Record | None:
        """The listed checkpoint of the highest id, or None."""
        for id in self.newest_first():
            try:
                return self.check(id)
            except DamagedError:
                continue
        return None

    def newest_first(self) -> Iterator[int]:
        """All ids from the highest down, looking again for new ones where the directory changed.

        So a reader finds a checkpoint while a writer's retention removes what it has just seen.
        Each id is given once, and the directory is not read again for each of them: there may be
        thousands that are none.
        """
        seen: set[int] = set()
        while True:
            changed = self._changed()
            left = [id for id in reversed(self.ids()) if id not in seen]
            if not left:
                return
            for id in left:
                seen.add(id)
                yield id
                if self._changed() != changed:
                    break

    def _changed(self) -> int:
        """When a name in the run directory was added or removed last."""
        try:
            return os.stat(self.run_dir).st_mtime_ns
        except OSError:
            return 0

    def by_id(self, id: int) -> Record:
        """The checkpoint of an id.

        Raises NotFoundError if there is none, DamagedError if it is not whole.
        """
        if id not in self.ids():
            raise NotFoundError(
                f"no checkpoint of id {id}; there are {span(r.id for r in self.listed())}",
                where=str(self.run_dir),
            )
        return self._check_named(id)

    def by_epoch(self, epoch: int) -> Record:
        """The checkpoint at the end of an epoch (0: after ``init``), the newest if several are.

        Raises NotFoundError if there is none, DamagedError if it is not whole.
        """
        known: list[int] = []
        for id in reversed(self.ids()):
            try:
                record = read_record(self._fs, str(self.path(id)))
            except JobrunError:
                continue
            if record.epoch == epoch and record.at_boundary and record.id == id:
                return self._check_named(id)
            if record.at_boundary and record.id == id:
                known.append(record.epoch)
        odd = "; ".join(f"{i.name} is ignored: {i.reason}" for i in self.ignored())
        raise NotFoundError(
            f"no checkpoint of epoch {epoch}; there are {span(known)}",
            where=str(self.run_dir),
            hint=odd,
        )

    def _check_named(self, id: int) -> Record:
        with removal_is_said(self.path(id)):
            return self.check(id)

    def next_id(self, floor: int = 0) -> int:
        """An id that no checkpoint has or had here: above every ``checkpoint_<integer>``, whole or
        not, those that a rewind moved to ``attempts/``, and at least ``floor``.

        A number of more than 12 digits is none of ours, and does not count.  Raises SaveError where
        there is no id left.
        """
        names = self._names()
        for attempt in self._below("attempts"):
            names += self._below(f"attempts/{attempt}")
        ids = [int(m[1]) for name in names if (m := _NUMBER.fullmatch(name))]
        next_id = max([floor, *(id + 1 for id in ids)])
        if next_id > MAX_ID:
            raise SaveError(
                f"there is no id above checkpoint_{next_id - 1}: ids have at most 12 digits",
                where=str(self.run_dir),
                hint="remove or rename that directory",
            )
        return next_id

    def _scan(self, but: Collection[int] = ()) -> Iterator[tuple[str, Record | Ignored]]:
        known = {self.path(id).name for id in but}
        names = [n for n in self._names() if n.startswith(_LOOKS_LIKE) and n not in known]
        for name in sorted(names, key=_order):
            match = _NAME.fullmatch(name)
            if match is None:
                yield name, Ignored(name, _odd(name))
                continue
            try:
                yield name, self.check(int(match[1]))
            except JobrunError as error:
                yield name, Ignored(name, _reason(error, self.path(int(match[1]))), int(match[1]))

    def _names(self) -> list[str]:
        return self._below("")

    def _below(self, folder: str) -> list[str]:
        try:
            return [entry.name for entry in self._fs.entries(os.path.join(self.run_dir, folder))]
        except FsError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return []
            raise NotFoundError(f"it cannot be looked into: {error}") from error


def prove(run_dir: str | os.PathLike[str], record: Record, fs: Fs = DEFAULT) -> None:
    """Read every byte of a listed checkpoint, compare it with its checksum, and see that it loads.

    Raises DamagedError, naming the first file that is not what was written.
    """
    from jobrun.checkpoint.reading import prove_leaf  # needs numpy, which listing does not

    path = str(Catalog(run_dir, fs).path(record.id))
    check_root(fs, path, record)
    for node in record.nodes:
        manifest = read_manifest(fs, path, record, node)
        for name, file, _ in manifest.files():
            check_payload(fs, f"{path}/{name}", file)
        for entry in manifest.entries:
            prove_leaf(fs, f"{path}/{node}", entry)


@contextmanager
def removal_is_said(checkpoint: str | os.PathLike[str]) -> Iterator[None]:
    """While a checkpoint is read that somebody named: NotFoundError if all of it is gone since.

    A writer's retention takes it from under a reader's hands, which is no damage.
    """
    try:
        yield
    except DamagedError as error:
        if not DEFAULT.is_gone(checkpoint):
            raise
        where = os.fspath(checkpoint)
        raise NotFoundError("it was removed while it was read", where=where) from error


def span(numbers: Iterable[int]) -> str:
    """Numbers as people write them: ``0..4, 6, 8``; ``none`` if there are none."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = (f"{r[0]}..{r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs)
    return ", ".join(texts) or "none"


def _is_manifest(name: str) -> bool:
    return name.startswith("manifest.") and name.endswith(".json")


def _odd(name: str) -> str:
    """Why a name is none of a checkpoint."""
    if re.fullmatch(r"checkpoint_[1-9][0-9]*", name):
        return "the number has more than 12 digits"
    return "the name is not checkpoint_<number>"


def _order(name: str) -> tuple[int, str]:
    match = _NAME.fullmatch(name)
    return (int(match[1]) if match else -1, name)


def _reason(error: JobrunError, path: Path) -> str:
    """Why, with the place below the checkpoint."""
    where = os.path.relpath(str(error.where), path) if error.where else "."
    return error.message if where == "." else f"{where}: {error.message}"
