"""Durable saves of one large array that grows, or of which a part changed, and of one all new.

Those that can append do; the others write everything again.  Each contestant continues with what it
saved in the round before, after the disk has nothing left to write.  A last case counts the bytes
on disk of those that keep every state of an array that grows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from jobrun.checkpoint.manager import CheckpointManager
from jobrun.model.policy import Compress
from tests.bench.durable import (
    Array,
    Store,
    fsync_directory,
    fsync_tree,
    sync_file_system,
    write_file,
)
from tests.bench.harness import Case, Contestant, Measured, Scale, Wanted, faster, timed
from tests.bench.peers import PEERS
from tests.bench.stores import OURS, ready

RAW, PARENT, NEVER = "raw, what is new", "jobrun, link: parent", "jobrun, link: never"
ZSTD, ZSTD_NEVER = "jobrun, zstd, link: parent", "jobrun, zstd, link: never"
ICECHUNK, EVER_NEW = "icechunk, append", "what was ever new"
PASS = 4e9
"""Bytes per second of a pass over what has not changed, to prove that."""

CHUNK = 2 << 20
"""Bytes of a chunk of the peers that can append."""

ROW = 4096
SETTLED = 2
"""Saves after the first one until jobrun knows how the array changes."""


Step = Callable[[Path], float]
Save = Callable[[Array], Any]


@dataclass(frozen=True)
class _Subject:
    """An array of ``size`` bytes in rows of ROW bytes, of which ``part`` rows change or are added.

    ``how`` is ``grow``, ``change`` (in one place) or ``replace`` (all rows); it grows at most
    ``appends`` times.
    """

    size: int
    part: int
    how: str
    appends: int = 40

    @cached_property
    def rows(self) -> Array:
        """All rows there will ever be."""
        spare = self.appends * self.part if self.how == "grow" else 0
        rng = np.random.default_rng(0)
        return rng.random((self.size // ROW + spare, ROW // 4), np.float32)

    def at(self, number: int) -> Array:
        """The array of a save."""
        count = self.size // ROW
        if self.how == "grow":
            return self.rows[: count + number * self.part]
        if self.how == "change":
            self.rows[count // 3 : count // 3 + self.part] += np.float32(1)
        else:
            self.rows[:] += np.float32(1)
        return self.rows

    @property
    def new(self) -> Array:
        """Rows like those that are new in each save."""
        return self.rows[: self.part]


def cases(scale: Scale) -> Iterator[Case]:
    """1 % appended to 1 GiB, 5 % of 300 MB changed in one place, all of it; bytes on disk."""
    large, medium = scale.of(1 << 30, 4 << 20), scale.of(300_000_000, 4_000_000)
    yield _grown(_Subject(large, large // ROW // 100, "grow"), scale)
    yield _changed(_Subject(medium, medium // ROW // 20, "change"), scale)
    yield _replaced(_Subject(medium, medium // ROW, "replace"), scale)
    yield _on_disk(_Subject(large, large // ROW // 100, "grow", scale.of(100, 5)))


def _grown(subject: _Subject, scale: Scale) -> Case:
    name = f"durable save, 1 % appended to {subject.size >> 20} MiB"
    peers = [p for p in PEERS if p.name in ("DCP", "Orbax")]
    contestants = [
        Contestant(OURS, _jobrun(subject, "alternate")),
        Contestant(PARENT, _jobrun(subject, "parent")),
        Contestant("h5py, append", _h5py(subject), ("h5py",)),
        Contestant("zarr, append", _zarr(subject), ("zarr",)),
        Contestant(ICECHUNK, _in_turn(subject, _icechunk(subject), 1), ("icechunk",)),
        *(Contestant(p.name, _peer(p, subject), p.needs, at_most=1) for p in peers),
    ]
    wanted = [*_passes(name, subject), *(faster(name, OURS, p.name) for p in peers)]
    return _case(name, "append", subject, contestants, wanted, scale)


def _changed(subject: _Subject, scale: Scale) -> Case:
    name = f"durable save, 5 % of one blob of {subject.size / 1e6:g} MB changed"
    contestants = [
        Contestant(OURS, _jobrun(subject, "alternate")),
        Contestant(PARENT, _jobrun(subject, "parent")),
        Contestant(NEVER, _jobrun(subject, "never"), at_most=2),
        Contestant(ZSTD, _jobrun(subject, "parent", "zstd"), ("numcodecs",)),
        Contestant(ZSTD_NEVER, _jobrun(subject, "never", "zstd"), ("numcodecs",), at_most=2),
    ]
    wanted = [*_passes(name, subject), faster(name, ZSTD, ZSTD_NEVER)]
    return _case(name, "save", subject, contestants, wanted, scale)


def _replaced(subject: _Subject, scale: Scale) -> Case:
    name = f"durable save, all of one blob of {subject.size / 1e6:g} MB changed"
    contestants = [
        Contestant(NEVER, _jobrun(subject, "never")),
        Contestant(PARENT, _jobrun(subject, "parent")),
    ]
    most = Wanted(f"{name}: {PARENT} over {NEVER}", lambda m: m.ratio(PARENT, NEVER), 1.03)
    return _case(name, "save", subject, contestants, [most], scale)


def _on_disk(subject: _Subject) -> Case:
    """All states kept: with ``alternate`` every value has two inodes."""
    name = f"on disk, 1 % appended {subject.appends} times to {subject.size >> 20} MiB"
    begin = {
        OURS: _manager("alternate"),
        PARENT: _manager("parent"),
        ICECHUNK: _icechunk(subject),
    }
    limits = {OURS: 2.8, PARENT: 1.5}
    return Case(
        name=name,
        contestants=[
            Contestant(EVER_NEW, lambda directory: subject.rows.nbytes / 1e6),
            *(
                Contestant(who, _kept(subject, of), ("icechunk",) if who == ICECHUNK else ())
                for who, of in begin.items()
            ),
        ],
        reference=EVER_NEW,
        floor=EVER_NEW,
        items=subject.appends,
        item="append",
        rounds=1,
        warm=False,
        unit="MB",
        wanted=[
            Wanted(f"{name}: {who} over {EVER_NEW}", _over_new(who), limit)
            for who, limit in limits.items()
        ],
    )


def _over_new(who: str) -> Callable[[Measured], float]:
    return lambda measured: measured.ratio(who, EVER_NEW)


def _kept(subject: _Subject, begin: Callable[[Path], Save]) -> Step:
    """The megabytes on disk after all appends; they are removed then."""

    def run(directory: Path) -> float:
        directory.mkdir(parents=True)
        save = begin(directory)
        for number in range(subject.appends + 1):
            save(subject.at(number))
        used = {s.st_ino: 512 * s.st_blocks for s in map(Path.stat, directory.rglob("*"))}
        shutil.rmtree(directory)
        return sum(used.values()) / 1e6

    return run


def _case(
    name: str,
    item: str,
    subject: _Subject,
    contestants: Sequence[Contestant],
    wanted: Sequence[Wanted],
    scale: Scale,
) -> Case:
    """A save in each round, beside the new rows alone, written and synced."""
    return Case(
        name=name,
        contestants=[Contestant(RAW, _raw(subject)), *contestants],
        reference=RAW,
        floor=RAW,
        items=1,
        item=item,
        rounds=scale.of(7, 2),
        bytes=subject.new.nbytes,
        warm=False,
        wanted=wanted,
    )


def _passes(name: str, subject: _Subject) -> list[Wanted]:
    """A save takes no more than its new bytes and one pass over the others."""
    return [
        Wanted(f"{name}: {who} over 1.5 x {RAW} and a pass", _above_pass(who, subject), 1.0)
        for who in (OURS, PARENT)
    ]


def _above_pass(who: str, subject: _Subject) -> Callable[[Measured], float]:
    """The seconds of a contestant over what it may take."""

    def value(measured: Measured) -> float:
        return measured.median(who) / (1.5 * measured.median(RAW) + subject.size / PASS)

    return value


def _in_turn(subject: _Subject, begin: Callable[[Path], Save], saves: int) -> Step:
    """A save in each round, by what ``begin(directory)`` gives; ``saves`` come before the first."""
    begun: list[tuple[Path, Save]] = []
    done = 0

    def run(directory: Path) -> float:
        nonlocal done
        directory.mkdir(parents=True, exist_ok=True)
        if not begun:
            begun.append((directory, begin(directory)))
            for number in range(saves):
                begun[0][1](subject.at(number))
            done = saves
        place, save = begun[0]
        array = subject.at(done)
        sync_file_system(place)
        done += 1
        return timed(lambda: save(array))

    return run


def _jobrun(subject: _Subject, link: str, codec: str = "none") -> Step:
    return _in_turn(subject, _manager(link, codec), 1 + SETTLED)


def _manager(link: str, codec: str = "none") -> Callable[[Path], Save]:
    def begin(directory: Path) -> Save:
        manager = CheckpointManager(directory, link=link, compress=[Compress(codec)])
        return lambda array: manager.save(manager.catalog.next_id(), {"main": {"x": array}})

    return begin


def _raw(subject: _Subject) -> Step:
    def begin(directory: Path) -> Save:
        def save(array: Array) -> None:
            write_file(directory / str(len(list(directory.iterdir()))), [array[-subject.part :]])
            fsync_directory(directory)

        return save

    return _in_turn(subject, begin, 0)


def _h5py(subject: _Subject) -> Step:
    def begin(directory: Path) -> Save:
        import h5py

        with h5py.File(directory / "all.h5", "w") as file:
            shape, chunks = (None, ROW // 4), (CHUNK // ROW, ROW // 4)
            file.create_dataset("x", data=subject.at(0), maxshape=shape, chunks=chunks)

        def save(array: Array) -> None:
            with h5py.File(directory / "all.h5", "a") as file:
                old = len(file["x"])
                file["x"].resize(len(array), axis=0)
                file["x"][old:] = array[old:]
            fsync_tree(directory)

        return save

    return _in_turn(subject, begin, 1)


def _zarr(subject: _Subject) -> Step:
    def begin(directory: Path) -> Save:
        import zarr

        place = str(directory / "all.zarr")
        chunks = (CHUNK // ROW, ROW // 4)
        zarr.create_array(place, data=subject.at(0), chunks=chunks, compressors=None)

        def save(array: Array) -> None:
            stored = zarr.open_array(place)
            stored.append(array[stored.shape[0] :])
            sync_file_system(directory)

        return save

    return _in_turn(subject, begin, 1)


def _icechunk(subject: _Subject) -> Callable[[Path], Save]:
    def begin(directory: Path) -> Save:
        import icechunk
        import zarr

        place = icechunk.local_filesystem_storage(str(directory / "all"))
        repository = icechunk.Repository.create(place)
        chunks = (CHUNK // ROW, ROW // 4)

        def save(array: Array) -> None:
            session = repository.writable_session("main")
            if len(array) == len(subject.at(0)):
                zarr.create_array(
                    session.store, name="x", data=array, chunks=chunks, compressors=None
                )
            else:
                stored = zarr.open_array(session.store, path="x")
                stored.append(array[stored.shape[0] :])
            session.commit(str(len(array)))
            sync_file_system(directory)

        return save

    return begin


def _peer(peer: Store, subject: _Subject) -> Step:
    blobs_for = ready(peer, lambda: {"x": subject.at(0)})

    def run(directory: Path) -> float:
        blobs = blobs_for(directory)
        return timed(lambda: peer.save(directory, blobs))

    return run
