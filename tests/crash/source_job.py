"""A job that reads rows from sources of every kind and notes each row it has consumed.

What was consumed is state: ``log`` grows by the numbers of the rows, ``chain`` is a hash over
them and over what random numbers made of them.  So a row that a resumed run reads twice, not at
all or in another place shows in the blobs at the end.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from crash_job import Bomb, bits

from jobrun import load_blobs
from jobrun.checkpoint.catalog import listed
from jobrun.cli import main
from jobrun.storage.fs import DEFAULT

ROWS = 23
SHORT = 19
"""The rows of the shorter source of a ``zip``."""
PARTS = ((0, 9), (9, 10), (10, ROWS))
"""Which rows are in each of the files of a pattern."""

Form = dict[str, Any]


# The sources: what a spec says of them.


def _call(function: str, *columns: str, **arguments: Any) -> Form:
    return {"call": f"source_job:{function}", "from": list(columns or ["x"]), "with": arguments}


ENDINGS = ("npy", "npz", "zarr", "csv", "tsv", "jsonl", "txt")
SOURCES: dict[str, Form] = {
    **{e: {"file": f"d.{e}", "from": ["x"]} for e in ENDINGS},
    **{f"{e} files": {"file": f"part-*.{e}", "from": ["x"]} for e in ENDINGS},
    "iterator": _call("generated", n=ROWS),
    "iterable": _call("Restarting", n=ROWS),
    "stateful iterator": {**_call("Stateful", n=ROWS), "resume": "state"},
    "items": _call("Items", n=ROWS),
    "items at once": _call("ItemsAtOnce", n=ROWS),
    "arrays": _call("arrays", n=ROWS),
    "zip of tables": {
        "zip": [
            {"file": "d.npy", "from": ["x"]},
            {**_call("Items", n=SHORT), "from": ["z"]},
        ]
    },
    "zip of streams": {
        "zip": [
            {"file": "d.csv", "from": ["x"]},
            {"file": "d.npz", "from": {"z": "x"}},
            {**_call("Stateful", n=SHORT), "from": ["v"]},
        ]
    },
    "concat of tables": {
        "concat": [{"file": "part-0.npy", "from": ["x"]}, {"file": "d.npz", "from": ["x"]}]
    },
    "concat of streams": {
        "concat": [
            {"file": "part-*.csv", "from": ["x"]},
            _call("generated", n=5),
            {"file": "part-1.npy", "from": ["x"]},
            _call("Stateful", n=7),
        ]
    },
}
TABLES = {"npy", "npz", "zarr", "npy files", "npz files", "zarr files", "items", "items at once",
          "arrays", "zip of tables", "concat of tables"}  # fmt: skip
"""Those of which any row can be had, so that a pass can be shuffled as a whole."""


def rows_of(source: str) -> list[int]:
    """The rows of a pass, in the order of the source."""
    every = list(range(ROWS))
    return {
        "zip of tables": every[:SHORT],
        "zip of streams": every[:SHORT],
        "concat of tables": every[:9] + every,
        "concat of streams": [*every, *range(5), 9, *range(7)],
    }.get(source, every)


def write_files(folder: Path) -> None:
    """The files that the sources read."""
    _write(folder / "d", range(ROWS))
    for number, (low, high) in enumerate(PARTS):
        _write(folder / f"part-{number}", range(low, high))


def _write(path: Path, rows: range) -> None:
    import zarr

    array = np.asarray(rows)
    np.save(path.with_suffix(".npy"), array)
    np.savez(path.with_suffix(".npz"), x=array, y=array * 2)
    group = zarr.create_group(str(path.with_suffix(".zarr")))
    group.create_array("x", data=array, chunks=(4,))
    path.with_suffix(".csv").write_text(
        't,x\r\n"é\n",' + '\r\n"a,b",'.join(map(str, rows)) + "\r\n"
    )
    path.with_suffix(".tsv").write_text("x\ty\n" + "".join(f"{i}\t{i / 7}\n" for i in rows))
    path.with_suffix(".jsonl").write_text(
        "".join(json.dumps({"x": i, "t": "é"}) + "\n" for i in rows)
    )
    path.with_suffix(".txt").write_text("".join(f"{i}\n" for i in rows))


@dataclass(frozen=True)
class Reading:
    """What is read and how; ``threads`` and ``ahead`` are not part of it, they change nothing."""

    source: str
    batch: int = 2
    shuffle: bool = False
    buffer: int = 5
    drop_last: bool = False
    batches_per_epoch: int | None = None
    passes: int | None = None
    shard: tuple[int, int] = (0, 1)

    def pipe(self, threads: int, ahead: int | None) -> Form:
        """``pipe`` of the spec."""
        in_blocks = {"buffer": self.buffer}
        index, count = self.shard
        options: Form = {
            "batch": self.batch,
            "shuffle": self.shuffle and (self.source in TABLES or in_blocks),
            "drop_last": self.drop_last,
            "batches_per_epoch": self.batches_per_epoch,
            "passes": self.passes,
            "shard": f"{index}/{count}" if count > 1 else None,
            "threads": threads,
            "ahead": ahead,
        }
        return {**SOURCES[self.source], **{k: v for k, v in options.items() if v is not None}}

    def task(self, number: int, threads: int, ahead: int | None) -> Form:
        """The pipe of the spec; its blobs have its number."""
        noted = [f"log_{number}", f"chain_{number}"]
        prepare = {"call": "source_job:mapped", "in": ["x", "rng"], "out": ["y", "noise"]}
        apply = {
            "call": "source_job:note",
            "in": [*noted, "y", "noise"],
            "out": [*noted, f"loss_{number}"],
        }
        pipe = self.pipe(threads, ahead)
        return {"name": f"read_{number}", "pipe": pipe, "map": [prepare], "do": [apply]}

    @property
    def taken(self) -> int:
        """How many rows this shard takes of a pass."""
        index, count = self.shard
        share = max(0, -(-(len(rows_of(self.source)) - index) // count))
        return share // self.batch * self.batch if self.drop_last else share

    def check(self, log: list[int]) -> None:
        """Every row once in each pass, and in the order of the source if nothing is shuffled."""
        every = rows_of(self.source)
        index, count = self.shard
        for start in range(0, len(log), self.taken):
            rows = log[start : start + self.taken]
            if not self.shuffle:
                assert rows == every[index::count][: len(rows)]
            assert not Counter(rows) - Counter(every)
            if len(rows) == len(every):
                assert Counter(rows) == Counter(every)


def spec_of(readings: Sequence[Reading], threads: int = 1, ahead: int | None = None) -> str:
    """A spec that reads them all, and saves within epochs; JSON is YAML."""
    numbers = range(len(readings))
    spec: Form = {
        "name": "reading",
        "seed": 3,
        "init": [
            {"name": f"begin_{i}", "call": "source_job:begin", "out": [f"log_{i}", f"chain_{i}"]}
            for i in numbers
        ],
        "epoch": [reading.task(i, threads, ahead) for i, reading in enumerate(readings)],
        "metrics": {f"loss_{i}": "min" for i in numbers},
        "stop": {"epochs": 3},
        "checkpoint": {"every": {"epochs": 1, "batches": 3 * len(readings)}, "keep": {"last": 2}},
    }
    if any(reading.passes for reading in readings):
        spec["stop"]["data_finished"] = "read_0"
    return json.dumps(spec, indent=1)


# The functions of the spec.

_VISITS: Counter[str] = Counter()
_LOCK = threading.Lock()


def visit(place: str) -> None:
    """A place is reached where this process may have been told to do something.

    ``STRIKE`` and ``HOLD`` are a place and a number, ``do 4``: at that visit it kills itself, or
    waits until the file ``go`` is there.
    """
    if not any(os.environ.get(told, "").startswith(f"{place} ") for told in ("STRIKE", "HOLD")):
        return
    with _LOCK:
        _VISITS[place] += 1
        here = f"{place} {_VISITS[place]}"
        if os.environ.get("STRIKE") == here:
            os.kill(os.getpid(), signal.SIGKILL)
    if os.environ.get("HOLD") == here:
        Path("at").touch()
        give_up = time.monotonic() + 120
        while not Path("go").exists():
            time.sleep(0.002)
            assert time.monotonic() < give_up, "nobody says go"


def begin() -> tuple[np.ndarray, str]:
    return np.empty(0, np.int64), ""


def mapped(x: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    visit("map")
    numbers = x.astype(np.int64)
    return numbers, numbers * rng.random(len(x))


def note(
    log: np.ndarray, chain: str, y: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, str, float]:
    visit("do")
    chain = hashlib.sha256(chain.encode() + y.tobytes() + noise.tobytes()).hexdigest()
    return np.concatenate([log, y]), chain, float(noise.mean())


def generated(n: int) -> Iterator[int]:
    for number in range(n):
        visit("next")
        yield number


def arrays(n: int) -> dict[str, np.ndarray]:
    visit("open")
    return {"x": np.arange(n), "y": np.zeros(n)}


class Restarting:
    """What can be iterated again and again."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[int]:
        return generated(self.n)


class Stateful:
    """An iterator that keeps its place."""

    def __init__(self, n: int) -> None:
        visit("open")
        self.n, self.at = n, 0

    def __iter__(self) -> Stateful:
        return self

    def __next__(self) -> int:
        visit("next")
        if self.at >= self.n:
            raise StopIteration
        self.at += 1
        return self.at - 1

    def state_dict(self) -> dict[str, int]:
        visit("state")
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        visit("load")
        self.at = state["at"]


class Items:
    """A dataset of which any item can be had."""

    def __init__(self, n: int) -> None:
        visit("open")
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, number: int) -> int:
        visit("item")
        return range(self.n)[number]


class ItemsAtOnce(Items):
    """One that gives many at once."""

    def __getitems__(self, numbers: list[int]) -> list[int]:
        visit("item")
        return [range(self.n)[number] for number in numbers]


# What children do, and what is on disk afterwards.


def held(place: str, *words: str) -> int:
    """``jobrun``, which waits at a visit of a place."""
    os.environ["HOLD"] = place
    return command("", None, *words)


def command(place: str, kill_at: list[int] | None, *words: str) -> int:
    """``jobrun``, which does not survive a visit of a place, or a file operation."""
    os.environ["STRIKE"] = place
    if kill_at is not None:
        DEFAULT.at = Bomb(*kill_at)  # type: ignore[method-assign]
    try:
        main(words)
    except SystemExit as leave:
        return int(leave.code or 0)
    return 0


def result_of(run: Path) -> dict[str, Any]:
    """The end of a run: its blobs, its epoch and position, and its metrics without the times."""
    with (run / "metrics.csv").open(newline="") as file:
        timed = ("seconds", "elapsed")
        rows = [{k: v for k, v in r.items() if k not in timed} for r in csv.DictReader(file)]
    head = listed(run)[-1]
    position = {k: v for k, v in head.position.to_json().items() if k != "tasks"}
    return {"blobs": bits(load_blobs(run)), "position": position, "metrics": rows}
