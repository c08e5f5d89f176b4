"""The checkpoints of a run, in its directory or at a URL.

*Listed* is a real directory ``checkpoint_<id>`` whose ``_SUCCESS`` verifies and names that id: one
file is read, however many there are.  *Whole* is one whose manifests verify too, and whose files
are all there at their full lengths: that is looked at before a checkpoint is used.  *Proven* is one
of which every byte has been read and compared with its checksum.  Everything else in the directory
is ignored.  Neither numpy nor zarr is imported here.

There is no index beside the checkpoints, which could disagree with them.  Measured for 10,000 of
them: 66 ms to read every ``_SUCCESS``, and 44 ms to look for changes that would make an entry of an
index invalid.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jobrun.checkpoint.integrity import (
    check_payload,
    check_root,
    check_sizes,
    kind_of,
    read_manifests,
    read_record,
)
from jobrun.checkpoint.record import ID, MAX_ID, SUCCESS, Record, decode_listed, decode_record
from jobrun.core.gc_tuning import paused
from jobrun.errors import DamagedError, JobrunError, NotFoundError, SaveError
from jobrun.storage.fs import DEFAULT, Fs, FsError

__all__ = ["CHECKPOINT_NAME", "Catalog", "Ignored", "listed", "prove", "span"]

CHECKPOINT_NAME = re.compile(rf"checkpoint_({ID})")
_LOOKS_LIKE = "checkpoint_"
_NUMBER = re.compile(r"checkpoint_([0-9]{1,12})")
_FEW = 100
"""Checkpoints up to which reading their records makes too few objects for the garbage collector."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """An entry that is named like a checkpoint but not listed; ``id`` is None for other names."""

    name: str
    reason: str
    id: int | None = None


def listed(run_dir: str | os.PathLike[str], fs: Fs = DEFAULT) -> list[Record]:
    """Return the listed checkpoints of a run directory by rising id; empty without a directory."""
    return Catalog(run_dir, fs).listed()


class Catalog:
    """The checkpoints of one run, as they are on disk at each call.

    ``run_dir`` is a directory, or a URL if ``fs`` is that of a store.  ``is_left`` hides the ids
    that a rewind under way has left.  Every method raises NotFoundError where the machine does not
    let us look: that no checkpoint can be seen does not mean that there is none.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        fs: Fs = DEFAULT,
        is_left: Callable[[int], bool] | None = None,
    ) -> None:
        self.run_dir = Path(run_dir)
        self.where = os.fspath(run_dir).rstrip("/") if fs.far else str(self.run_dir)
        self._fs = fs
        self._is_left = is_left

    def path(self, id: int) -> Path:
        """Return the path of the checkpoint of an id in a directory."""
        return self.run_dir / f"checkpoint_{id}"

    def place(self, id: int) -> str:
        """Return the path or URL of the checkpoint of an id."""
        return f"{self.where}/checkpoint_{id}"

    def ids(self) -> list[int]:
        """Return the ids of everything named like a checkpoint, whole or not, rising."""
        return self._ids(self._names())

    def _ids(self, names: Iterable[str]) -> list[int]:
        found = [int(m[1]) for name in names if (m := CHECKPOINT_NAME.fullmatch(name))]
        return sorted(id for id in found if self._is_left is None or not self._is_left(id))

    def newest_first(self) -> Iterator[int]:
        """Yield all ids from the highest down, including ones that are added meanwhile.

        So a reader finds a checkpoint while a writer's retention removes those just seen.  Each id
        comes once, and the directory is read again only if it changed: there may be thousands of
        ids without a checkpoint.
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
        """Return when a name in the run directory was added or removed last; 0 at a URL."""
        try:
            return os.stat(self.run_dir).st_mtime_ns
        except OSError:
            return 0

    def record(self, id: int) -> Record:
        """Return the record of a listed checkpoint, without looking at anything but ``_SUCCESS``.

        It costs the same for thousands of blobs as for one.  Raises DamagedError with the reason if
        it is not listed.
        """
        return self._record(id, decode_record, self._is_directory(id))

    def _is_directory(self, id: int) -> bool:
        return self._fs.far or kind_of(self._fs, self.place(id)) == "directory"

    def _record(
        self, id: int, decode: Callable[[bytes, str], Record], is_directory: bool
    ) -> Record:
        place = self.place(id)
        if not is_directory:
            raise DamagedError("it is not a directory", where=place)
        record = read_record(self._fs, place, decode)
        if record.id != id:
            raise DamagedError(f"it is a copy of checkpoint {record.id}", where=place)
        return record

    def check(self, id: int) -> Record:
        """Return the record of a whole checkpoint.

        Raises DamagedError with the reason if it is not whole.
        """
        place = self.place(id)
        record = self.record(id)
        check_root(self._fs, place, record)
        sizes: dict[str, int] = {}
        for manifest in read_manifests(self._fs, place, record):
            sizes |= manifest.sizes(place)
        check_sizes(self._fs, sizes)
        return record

    def is_whole(self, id: int) -> bool:
        """Return whether a checkpoint is whole, and can be read."""
        try:
            self.check(id)
        except JobrunError:
            return False
        return True

    def whole(
        self, records: Iterable[Record], choose: Callable[[Sequence[Record]], Record | None]
    ) -> Record | None:
        """Return the record that ``choose`` returns of the whole ones among ``records``.

        Only what it chooses is checked: if that is damaged, it chooses again without it.
        """
        left = list(records)
        while (chosen := choose(left)) is not None and not self.is_whole(chosen.id):
            left = [record for record in left if record.id != chosen.id]
        return chosen

    def was_whole(self, id: int) -> bool:
        """Return whether a checkpoint of this run was saved under an id, even if damaged by now.

        False for a copy under another name, a link, or anything without ``_SUCCESS``.
        """
        place = self.place(id)
        try:
            if not self._is_directory(id) or not kind_of(self._fs, f"{place}/{SUCCESS}"):
                return False
            return read_record(self._fs, place).id == id
        except JobrunError:
            return True

    def is_ours(self, id: int) -> bool:
        """Return whether it is a checkpoint of this run, damaged by now or not.

        In a directory even without ``_SUCCESS``: a checkpoint gets its name only after that is
        written.  In a store without it an upload is under way.
        """
        if self._fs.far:
            return self.was_whole(id)
        names = self._below(self.path(id).name)
        with suppress(JobrunError):  # one that cannot be read may be ours
            if kind_of(self._fs, str(self.path(id))) == "link":
                return False
        return self.was_whole(id) or (SUCCESS not in names and any(map(_is_manifest, names)))

    def is_gone(self, id: int) -> bool:
        """Return whether there is no entry of this id any more."""
        return id not in self.ids()

    def listed(self) -> list[Record]:
        """Return the listed checkpoints, by rising id."""
        return self.survey()[0]

    def ignored(self) -> list[Ignored]:
        """Return what is named like a checkpoint but is not listed, with the reason."""
        return self.survey()[1]

    def survey(self) -> tuple[list[Record], list[Ignored]]:
        """Return what ``listed`` and ``ignored`` do, of one look at the directory."""
        records: list[Record] = []
        ignored: list[Ignored] = []
        names = [name for name in self._names() if name.startswith(_LOOKS_LIKE)]
        ignored += [Ignored(n, _odd(n)) for n in names if not CHECKPOINT_NAME.fullmatch(n)]
        real = self._directories() if names else set()
        with paused(len(names) > _FEW):
            for id in self._ids(names):
                try:
                    is_directory = f"checkpoint_{id}" in real or self._is_directory(id)
                    records.append(self._record(id, decode_listed, is_directory))
                except JobrunError as error:
                    ignored.append(Ignored(f"checkpoint_{id}", self.why_ignored(id, error), id))
        return records, ignored

    def damaged(self) -> list[Ignored]:
        """Return the checkpoints of this run that are not whole by now, with the reasons.

        Every one is checked.
        """
        found = []
        for id in self.ids():
            try:
                self.check(id)
            except JobrunError as error:
                if self.is_ours(id):
                    found.append(Ignored(self.path(id).name, self.why_ignored(id, error), id))
        return found

    def why_ignored(self, id: int, error: JobrunError) -> str:
        """Return the reason in an error about a checkpoint, with the place below it."""
        where = str(error.where or "").removeprefix(self.place(id)).lstrip("/")
        return f"{where}: {error.message}" if where else error.message

    def next_id(self, floor: int = 0) -> int:
        """Return an id that no checkpoint has or had here, at least ``floor``.

        It is above every ``checkpoint_<integer>``, whole or not, and those that a rewind moved to
        ``attempts/``.  Numbers of more than 12 digits do not count.  Raises SaveError if no id is
        left.
        """
        return self._next_id(self._names(), floor)

    def ids_and_next(self) -> tuple[list[int], int]:
        """Return what ``ids`` and ``next_id`` do, of one look at the directory."""
        names = self._names()
        return self._ids(names), self._next_id(names)

    def _next_id(self, names: list[str], floor: int = 0) -> int:
        for attempt in self._below("attempts"):
            names = names + self._below(f"attempts/{attempt}")
        ids = [int(m[1]) for name in names if (m := _NUMBER.fullmatch(name))]
        next_id = max([floor, *(id + 1 for id in ids)])
        if next_id > MAX_ID:
            raise SaveError(
                f"there is no id above checkpoint_{next_id - 1}: ids have at most 12 digits",
                where=str(self.run_dir),
                hint="remove or rename that directory",
            )
        return next_id

    def _names(self) -> list[str]:
        return self._below("")

    def _directories(self) -> set[str]:
        """Return the names that are known to be real directories, without a look at each."""
        with suppress(FsError):  # then each is looked at
            return set() if self._fs.far else self._fs.directories(self.where)
        return set()

    def _below(self, folder: str) -> list[str]:
        try:
            return self._fs.names(f"{self.where}/{folder}" if folder else self.where)
        except FsError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return []
            raise NotFoundError(f"it cannot be listed: {error}") from error


def prove(run_dir: str | os.PathLike[str], record: Record, fs: Fs = DEFAULT) -> None:
    """Read every byte of a listed checkpoint, compare the checksums, and check that it loads.

    Raises DamagedError, naming the first file that differs from what was written.
    """
    from jobrun.checkpoint.leaf_reading import prove_leaf  # needs numpy, which listing does not

    path = str(Catalog(run_dir, fs).path(record.id))
    check_root(fs, path, record)
    for node, manifest in zip(record.nodes, read_manifests(fs, path, record), strict=True):
        for name, file, _ in manifest.files():
            check_payload(fs, f"{path}/{name}", file)
        for entry in manifest.entries:
            prove_leaf(fs, f"{path}/{node}", entry)


def span(numbers: Iterable[int]) -> str:
    """Return numbers as people write them: ``0..4, 6, 8``; ``none`` if there are none."""
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
    """Return why a name is not that of a checkpoint."""
    if re.fullmatch(r"checkpoint_[1-9][0-9]*", name):
        return "the number has more than 12 digits"
    return "the name is not checkpoint_<number>"
