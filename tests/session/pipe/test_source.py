"""Pipes over every kind of source: rows, resumes at any batch, and what is said when one fails."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from engine import Driver, cut_after
from hypothesis import given, settings
from hypothesis import strategies as st

import jobrun.data.call_source as call_source
from jobrun.analysis.checks import check
from jobrun.core.events import BatchesDone, Warned
from jobrun.core.position import Position
from jobrun.errors import DataError, SpecError, TaskError, Where
from jobrun.model.job import Job, Pipe, Task, data

ROWS = 23


def note(seen: list[Any], **columns: Any) -> Task:
    """A ``do`` step that notes the rows of each batch."""

    def rows(**given: Any) -> None:
        seen.append([tuple(row) for row in zip(*(a.tolist() for a in given.values()), strict=True)])

    return Task(rows, columns, name="note")


def reading(seen: list[Any], columns: tuple[str, ...] = ("x",), **pipe: Any) -> Job:
    """A job that reads columns and notes them."""
    job = Job("reading", seed=5, vars={"n": ROWS, "rank": 1, "world": 3})
    with job.setup:
        Task(lambda: np.arange(ROWS), out="rows", name="load")
    with job.epoch:
        Pipe(do=[note(seen, **dict.fromkeys(columns))], name="read", **pipe)
    return job


def flat(seen: list[Any]) -> list[Any]:
    return [row for batch in seen for row in batch]


# Functions that give sources.


def generate(n: int) -> Iterator[int]:
    return iter(range(n))


class Counter:
    """An iterator that can be restored."""

    def __init__(self, n: int) -> None:
        self.n, self.at = n, 0

    def __iter__(self) -> Counter:
        return self

    def __next__(self) -> int:
        if self.at >= self.n:
            raise StopIteration
        self.at += 1
        return self.at - 1

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Buffered:
    """As a shuffled stream of Hugging Face: its state leaves out the buffer that it gives from."""

    def __init__(self, n: int) -> None:
        self.n, self.at = n, 0

    def __iter__(self) -> Iterator[int]:
        buffer: list[int] = []
        while self.at < self.n:
            buffer.append(self.at)
            self.at += 1
            if len(buffer) == 10:
                yield buffer.pop(0)
        yield from buffer

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows 0, 1, … in files of every kind."""
    path = tmp_path_factory.mktemp("data")
    np.save(path / "d.npy", np.arange(ROWS))
    np.savez(path / "d.npz", x=np.arange(ROWS))
    zarr.create_array(str(path / "d.zarr"), data=np.arange(ROWS), chunks=(4,))
    (path / "d.csv").write_text("y,x\n" + "".join(f"q,{i}\n" for i in range(ROWS)))
    (path / "d.jsonl").write_text("".join(json.dumps({"x": i}) + "\n" for i in range(ROWS)))
    (path / "d.txt").write_text("".join(f"{i}\n" for i in range(ROWS)))
    for part, (low, high) in enumerate([(0, 9), (9, 10), (10, ROWS)]):
        lines = "".join(f"{i}\n" for i in range(low, high))
        (path / f"part-{part}.tsv").write_text("x\n" + lines)
        np.save(path / f"part-{part}.npy", np.arange(low, high))
        np.savez(path / f"part-{part}.npz", x=np.arange(low, high))
        zarr.create_array(str(path / f"part-{part}.zarr"), data=np.arange(low, high), chunks=(4,))
        (path / f"part-{part}.txt").write_text(lines)
        (path / f"part-{part}.jsonl").write_text(
            "".join(json.dumps({"x": i}) + "\n" for i in range(low, high))
        )
    for name in ("d.csv", "d.jsonl"):
        (path / f"{name}.gz").write_bytes(gzip.compress((path / name).read_bytes()))
    write_of_libraries(path)
    return path


def write_of_libraries(path: Path) -> None:
    """Write the files of libraries that are there, in groups of four rows."""
    if "parquet" in SOURCES:
        pa = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        table = pa.table({"x": np.arange(ROWS)})
        parquet.write_table(table, path / "d.parquet", row_group_size=4)
        for part, (low, high) in enumerate([(0, 9), (9, ROWS)]):
            part_path = path / f"part-{part}.parquet"
            parquet.write_table(table[low:high], part_path, row_group_size=4)
        with pa.ipc.new_file(path / "d.feather", table.schema) as writer:
            writer.write_table(table, max_chunksize=4)
    if "hdf5" in SOURCES:
        with pytest.importorskip("h5py").File(path / "d.h5", "w") as file:
            file["x"] = np.arange(ROWS)
            file.create_dataset("packed", data=np.arange(ROWS), chunks=(4,), compression="gzip")


def frame_of(library: str, n: int) -> Any:
    """A table of pandas, polars or pyarrow."""
    found = pytest.importorskip(library)
    columns = {"x": np.arange(n), "other": np.arange(n)}
    return found.table(columns) if library == "pyarrow" else found.DataFrame(columns)


SOURCES: dict[str, dict[str, Any]] = {
    "blobs": {"from_": {"x": "rows"}},
    "npy": {"from_": ["x"], "file": "d.npy"},
    "npz": {"file": "d.npz"},
    "zarr": {"from_": ["x"], "file": "d.zarr"},
    "csv": {"from_": ["x"], "file": "d.csv"},
    "matrix": {"from_": {"x": "x*"}, "file": "d.csv"},
    "jsonl": {"file": "d.jsonl"},
    "csv.gz": {"from_": ["x"], "file": "d.csv.gz"},
    "jsonl.gz": {"file": "d.jsonl.gz"},
    "named": {"from_": {"x": ["x"]}, "file": "d.npz"},
    "named items": {
        "from_": {"x": ["a"]},
        "call": lambda n: [{"a": i} for i in range(n)],
        "in_": "n",
    },
    "named stream": {"from_": {"x": ["a"]}, "call": generate, "in_": ["n"]},
    "txt": {"from_": ["x"], "file": "d.txt"},
    "tsv files": {"file": "part-*.tsv"},
    "npy files": {"from_": ["x"], "file": "part-*.npy"},
    "npz files": {"file": "part-*.npz"},
    "zarr files": {"from_": ["x"], "file": "part-*.zarr"},
    "txt files": {"from_": ["x"], "file": "part-*.txt"},
    "jsonl files": {"file": "part-*.jsonl"},
    "iterator": {"from_": ["x"], "call": generate, "in_": ["n"]},
    "stateful": {"from_": ["x"], "call": Counter, "with_": {"n": ROWS}},
    "by state": {"from_": ["x"], "call": Counter, "with_": {"n": ROWS}, "resume": "state"},
    "buffered": {"from_": ["x"], "call": Buffered, "with_": {"n": ROWS}},
    "items": {"from_": ["x"], "call": lambda n: list(range(n)), "in_": "n"},
    "arrays": {"from_": ["x"], "call": lambda n: {"x": np.arange(n)}, "in_": "n"},
    "concat": {
        "concat": [data(["x"], file="d.csv"), data(["x"], call=generate, with_={"n": 4})],
    },
    "zip": {"zip": [data({"x": "rows"}), data(["x2"], call=Counter, in_="n")]},
    "zip by state": {
        "zip": [data({"x": "rows"}), data(["x2"], call=Counter, in_="n", resume="state")]
    },
    "zip of tables": {"zip": [data({"x": "rows"}), data({"x2": "x"}, file="d.zarr")]},
    "concat of tables": {"concat": [data(["x"], file="d.npy"), data(["x"], file="part-1.npz")]},
}
OF_LIBRARIES: dict[str, dict[str, dict[str, Any]]] = {
    "pyarrow": {
        "parquet": {"from_": ["x"], "file": "d.parquet"},
        "parquet files": {"file": "part-*.parquet"},
        "feather": {"file": "d.feather"},
        "arrow": {"from_": ["x"], "call": frame_of, "with_": {"library": "pyarrow", "n": ROWS}},
    },
    "h5py": {
        "hdf5": {"from_": ["x"], "file": "d.h5"},
        "hdf5 chunks": {"from_": {"x": "packed"}, "file": "d.h5"},
    },
    "pandas": {
        "pandas": {"from_": ["x"], "call": frame_of, "with_": {"library": "pandas", "n": ROWS}}
    },
    "polars": {
        "polars": {"from_": ["x"], "call": frame_of, "with_": {"library": "polars", "n": ROWS}}
    },
}
for library, sources in OF_LIBRARIES.items():
    if find_spec(library) is not None:
        SOURCES.update(sources)
STREAMS = {
    *("csv", "csv.gz", "matrix", "jsonl", "jsonl.gz", "txt", "tsv files", "txt files"),
    *("jsonl files", "iterator", "named stream", "stateful", "by state", "buffered", "concat"),
    *("zip", "zip by state"),
}
MORE: dict[str, list[int]] = {"concat": [0, 1, 2, 3], "concat of tables": [9]}
"""What comes after the rows of every source."""


def options_for(name: str, how: dict[str, Any]) -> dict[str, Any]:
    if name in STREAMS and how.get("shuffle") is True:
        return {**how, "shuffle": {"buffer": 6}}
    return how


@pytest.mark.parametrize("name", list(SOURCES))
def test_every_source_gives_its_rows(folder: Path, name: str) -> None:
    seen: list[Any] = []
    Driver(reading(seen, batch=4, **SOURCES[name]), 1, spec_dir=folder).start().epochs(2)
    kinds: dict[str, Any] = {"txt": str, "txt files": str, "matrix": lambda i: [i]}
    kinds |= dict.fromkeys(["named", "named items", "named stream"], lambda i: [i])
    wanted = [kinds.get(name, int)(i) for i in range(ROWS)]
    wanted += MORE.get(name, [])
    assert [row for (row,) in flat(seen)] == wanted * 2
    assert [len(b) for b in seen[:6]] == [4] * 5 + [min(4, len(wanted) - 20)]


@settings(deadline=None, max_examples=500 if os.environ.get("JOBRUN_LONG") else 50)
@given(
    name=st.sampled_from(list(SOURCES)),
    batch=st.integers(1, 6),
    shuffle=st.sampled_from([False, True, {"buffer": 1}, {"buffer": 7}]),
    drop_last=st.booleans(),
    batches_per_epoch=st.none() | st.integers(1, 9),
    passes=st.none() | st.integers(1, 2),
    shard=st.sampled_from([None, "0/2", "rank/world"]),
    threads=st.integers(1, 8),
    ahead=st.none() | st.integers(1, 9),
    cuts=st.lists(st.integers(0, 7), max_size=4),
)
def test_a_run_that_is_cut_anywhere_reads_what_the_undisturbed_one_reads(
    folder: Path, name: str, cuts: list[int], threads: int, ahead: int | None, **how: Any
) -> None:
    """Also on threads, which make no difference: what they read ahead does not count as read."""
    how = {**options_for(name, how), **SOURCES[name]}
    alone: list[Any] = []
    driver = Driver(reading(alone, **how), 1, spec_dir=folder).start().epochs(3)
    seen: list[Any] = []
    position = Position()
    for cut in [*cuts, 10_000]:
        job = reading(seen, threads=threads, ahead=ahead, **how)
        resumed = Driver(job, 1, spec_dir=folder).start()
        resumed.position = Position.from_json(json.loads(json.dumps(position.to_json())))
        stop = cut_after(cut)
        while resumed.position.epochs < 3:
            if not resumed.epoch(stop):
                break
            resumed.session.end_epoch()
        position = resumed.position
    assert seen == alone
    assert position.to_json() == driver.position.to_json()


@pytest.mark.parametrize("shuffle", [False, True, {"buffer": 7}])
@pytest.mark.parametrize("name", list(SOURCES))
def test_batch_and_shards_may_change_within_a_pass(folder: Path, name: str, shuffle: Any) -> None:
    """All of a pass is read once, also where the shards begin within it."""
    how = {**options_for(name, {"shuffle": shuffle}), **SOURCES[name]}
    once: list[Any] = []
    Driver(reading(once, **how), 1, spec_dir=folder).start().epoch()
    seen: list[Any] = []
    driver = Driver(reading(seen, batch=3, **how), 1, spec_dir=folder).start()
    assert not driver.epoch(cut_after(3))
    position = json.dumps(driver.position.to_json())
    for shard in ("0/2", "1/2"):
        rest = Driver(reading(seen, batch=2, shard=shard, **how), 1, spec_dir=folder).start()
        rest.position = Position.from_json(json.loads(position))
        assert rest.epoch()
    assert sorted(flat(seen)) == sorted(flat(once))


# Numbers.


def test_a_zip_ends_with_the_shortest_and_is_then_finished() -> None:
    for first, second in ((5, 3), (3, 5)):
        seen: list[Any] = []
        pipe = {
            "zip": [
                data(["x"], call=generate, with_={"n": first}),
                data(["y"], call=generate, with_={"n": second}),
            ]
        }
        job = reading(seen, ("x", "y"), passes=1, batches_per_epoch=2, **pipe)
        driver = Driver(job, 1).start().epochs(2)
        assert flat(seen) == [(0, 0), (1, 1), (2, 2)]
        (state,) = driver.position.readers.values()
        assert (state.passes, state.row) == (1, 0)


def test_joining_30_and_100_rows_gives_130() -> None:
    for kind in (generate, lambda n: np.arange(n)):
        seen: list[Any] = []
        parts = [data(["x"], call=kind, with_={"n": n}) for n in (30, 100)]
        Driver(reading(seen, concat=parts, batch=7), 1).start().epoch()
        assert [x for (x,) in flat(seen)] == [*range(30), *range(100)]


def test_the_nodes_of_a_pipe_share_its_rows() -> None:
    seen: dict[str, list[Any]] = {}

    def rows(x: Any, node: str) -> None:
        seen.setdefault(node, []).append(x.tolist())

    job = Job("j", seed=1, nodes=["a", "b", "c"])
    with job.epoch:
        Pipe(
            ["x"],
            2,
            call=lambda: np.arange(11),
            shuffle=True,
            shard="node",
            do=[Task(rows, ["x", "node"])],
            node="*",
        )
    Driver(job, 2).start().epochs(2)
    for number in range(2):
        shares = {
            n: flat(b[number * len(b) // 2 : (number + 1) * len(b) // 2]) for n, b in seen.items()
        }
        assert {n: len(s) for n, s in shares.items()} == {"a": 4, "b": 4, "c": 3}
        assert sorted(flat(list(shares.values()))) == list(range(11))


# Streams with a state of their own.


def rows_of_a_cut_run(resume: str | None) -> list[int]:
    """What is read of 800 rows by a run that is ended after 20 batches of 8, and goes on."""
    seen: list[Any] = []
    job = reading(seen, from_=["x"], call=Buffered, with_={"n": 800}, batch=8, resume=resume)
    driver = Driver(job, 1).start()
    assert not driver.epoch(cut_after(20))
    again = Driver(job, 1).start()
    again.position = Position.from_json(json.loads(json.dumps(driver.position.to_json())))
    assert again.epoch()
    return [x for (x,) in flat(seen)]


def test_a_stream_whose_state_is_not_exact_loses_no_row() -> None:
    assert rows_of_a_cut_run(None) == list(range(800))
    assert rows_of_a_cut_run("replay") == list(range(800))
    assert len(rows_of_a_cut_run("state")) < 800  # who asks for it says that it is exact


def test_a_pass_of_another_length_is_a_warning() -> None:
    seen: list[Any] = []
    job = reading(seen, from_=["x"], call=Buffered, with_={"n": 800}, batch=8, resume="state")
    driver = Driver(job, 1).start()
    assert not driver.epoch(cut_after(20))
    again = Driver(job, 1).start()
    again.position = Position.from_json(json.loads(json.dumps(driver.position.to_json())))
    assert again.epoch()
    again.session.end_epoch()
    lost = 800 - len(flat(seen))
    assert lost
    assert not [e for e in again.events if isinstance(e, Warned)]
    third = Driver(job, 1).start()  # what was read of the pass before is in the position
    third.position = Position.from_json(json.loads(json.dumps(again.position.to_json())))
    assert third.epoch()
    third.session.end_epoch()
    assert third.epoch()
    (warning,) = [e.message for e in third.events if isinstance(e, Warned)]
    assert f"pass 2 of {Buffered.__name__}" in warning.replace(f"{__name__}:", "")
    assert f"had 800 rows, and the pass before had {800 - lost}" in warning


def test_passes_of_one_length_are_no_warning() -> None:
    job = reading([], from_=["x"], call=generate, in_="n", batch=4, drop_last=True)
    driver = Driver(job, 1).start().epochs(3)
    assert not [e for e in driver.events if isinstance(e, Warned)]
    (state,) = driver.position.readers.values()
    assert state.rows == ROWS


def test_a_run_may_go_on_the_other_way() -> None:
    for ways in (("state", "replay"), ("replay", "state")):
        seen: list[Any] = []
        first, second = (
            reading(seen, from_=["x"], call=Counter, with_={"n": 9}, resume=way) for way in ways
        )
        driver = Driver(first, 1).start()
        assert not driver.epoch(cut_after(4))
        again = Driver(second, 1).start()
        again.position = driver.position
        assert again.epoch()
        assert flat(seen) == [(i,) for i in range(9)]


def test_resume_is_for_a_call_and_of_few_ways() -> None:
    with pytest.raises(SpecError, match="'resume' is for a 'call'"):
        data({"x": "rows"}, resume="state")
    with pytest.raises(SpecError, match=r"by 'stat'; did you mean 'state'"):
        data(["x"], call=Counter, resume="stat")


# What is said.


def test_batches_are_counted_though_their_total_is_not_known() -> None:
    job = reading([], from_=["x"], call=generate, in_="n")
    driver = Driver(job, 1).start()
    assert driver.epoch()
    assert all(e.total is None for e in driver.events if isinstance(e, BatchesDone))


def test_skipping_that_takes_a_while_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_source, "_SLOW_SECONDS", 0.0)
    job = reading([], from_=["x"], call=generate, in_="n")
    driver = Driver(job, 1).start()
    assert not driver.epoch(cut_after(9))
    assert not [e for e in driver.events if isinstance(e, Warned)]
    again = Driver(job, 1).start()
    again.position = driver.position
    assert again.epoch()
    (warning,) = [e for e in again.events if isinstance(e, Warned)]
    assert warning.message.startswith("pipe 'read': ")
    (state,) = driver.position.readers.values()
    assert f"read again up to row {state.row}, where" in warning.message


def test_nothing_is_skipped_from_one_epoch_to_the_next() -> None:
    counts = []

    def rows() -> Iterator[int]:
        counts.append(1)
        yield from range(12)

    job = reading([], from_=["x"], call=rows, batches_per_epoch=3)
    Driver(job, 1).start().epochs(4)
    assert len(counts) == 1


def test_an_error_in_a_file_names_the_pipe(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("x\n" + "1\n" * 1000 + "a\n")
    where = Where("job.yaml", 4, 5)
    seen: list[Any] = []
    job = reading(seen, file="d.csv", where=where)
    with pytest.raises(DataError, match=r"d\.csv: row 1001, column 'x': 'a'") as caught:
        Driver(job, 1, spec_dir=tmp_path).start().epoch()
    assert caught.value.where == where
    assert len(seen) == 1000


def test_an_error_in_a_function_shows_the_users_lines() -> None:
    def rows() -> Iterator[int]:
        yield 1
        raise ValueError("no more rows")

    def nothing() -> Any:
        raise ValueError("no rows at all")

    for function, text in ((rows, "no more rows"), (nothing, "no rows at all")):
        with pytest.raises(TaskError, match=f"ValueError: {text}") as caught:
            Driver(reading([], from_=["x"], call=function), 1).start().epoch()
        assert "raise ValueError" in caught.value.trace
        assert "jobrun/data" not in caught.value.trace


def test_a_source_must_be_the_same_when_it_is_made_again() -> None:
    job = Job("j")
    with job.init:
        Task(lambda: 3, out="n", name="begin")
        Task(lambda: 4, out="m", name="other")
    with job.epoch:
        Pipe(["x"], call=generate, in_="n", do=[Task(lambda x: int(x[0]), "x", out="n")])
        Pipe(["x"], call=generate, in_="m", do=[Task(lambda x: None, "x")], name="fine")
    text = "\n".join(map(str, check(job)))
    assert "'n', which changes from epoch to epoch" in text
    assert "'m'" not in text


def test_columns_of_a_file_may_be_named_as_tasks_use_them(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a b,c\n1,2\n")
    seen: list[Any] = []
    job = reading(seen, ("x", "y"), from_={"x": "a b", "y": "c"}, file="d.csv")
    Driver(job, 1, spec_dir=tmp_path).start().epoch()
    assert seen == [[(1, 2)]]


# Matrices of named columns.


@pytest.mark.parametrize(
    "source",
    [
        {"file": "m.csv"},
        {"file": "m.npz"},
        {"call": lambda: [{"a": i, "b": i / 2, "c": i} for i in range(5)]},
        {"call": lambda: ({"a": i, "b": i / 2, "c": i} for i in range(5))},
        {"call": lambda: ((i, i / 2, i) for i in range(5))},
        {"call": lambda: {"a": np.arange(5), "b": np.arange(5) / 2, "c": np.arange(5)}},
    ],
)
def test_a_list_of_columns_is_a_matrix(tmp_path: Path, source: dict[str, Any]) -> None:
    lines = "".join(f"{i},{i / 2},{i}\n" for i in range(5))
    (tmp_path / "m.csv").write_text("a,b,c\n" + lines)
    np.savez(tmp_path / "m.npz", a=np.arange(5), b=np.arange(5) / 2, c=np.arange(5))
    seen: list[Any] = []
    job = reading(seen, ("x", "y"), from_={"x": ["a", "b"], "y": "c"}, batch=2, **source)
    Driver(job, 1, spec_dir=tmp_path).start().epochs(1)
    assert flat(seen) == [([i, i / 2], i) for i in range(5)]


def test_a_matrix_of_columns_that_are_not_numbers_or_not_there(tmp_path: Path) -> None:
    def items() -> Iterator[dict[str, Any]]:
        return iter([{"a": 1, "b": "text"}])

    for source in ({"call": items}, {"call": lambda: [*items()]}):
        job = reading([], from_={"x": ["a", "b"]}, **source)
        with pytest.raises(DataError, match="a matrix is of numbers, which column 'b' is not"):
            Driver(job, 1).start().epochs(1)
        job = reading([], from_={"x": ["a", "z"]}, **source)
        with pytest.raises(DataError, match="there is no 'z'"):
            Driver(job, 1).start().epochs(1)
    (tmp_path / "m.csv").write_text("a,b\n1,2\n")
    job = reading([], from_={"x": ["a", "z"]}, file="m.csv")
    with pytest.raises(DataError, match="has no column 'z'"):
        Driver(job, 1, spec_dir=tmp_path).start().epochs(1)


def test_a_matrix_is_not_made_of_blobs() -> None:
    with pytest.raises(SpecError, match="column 'x' is one blob"):
        data({"x": ["a", "b"]})
