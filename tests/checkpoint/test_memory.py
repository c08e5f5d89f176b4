"""What a save holds in memory beside the values themselves.

numpy reports its arrays to tracemalloc, so that what is counted here is all that is allocated.
"""

from __future__ import annotations

import gc
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun import CheckpointManager, CheckpointPolicy, Compress, Job, JobRunner, LocalSession, Task
from jobrun.checkpoint.chunk_grid import CHUNK_BYTES
from jobrun.checkpoint.part import write_part
from jobrun.checkpoint.reading import read_part
from jobrun.checkpoint.slices import read_slice
from jobrun.storage.fs import Fs
from jobrun.storage.threads import THREADS
from jobrun.values.boxes import Box
from jobrun.values.buffers import BUFFERS

MIB = 1 << 20
LITTLE = MIB // 2
SIZE = 24 * MIB


@pytest.fixture
def traced() -> Iterator[Callable[[], int]]:
    """The most that has been allocated at once since the last call, beyond what was there then."""
    gc.collect()
    tracemalloc.start()
    before = [tracemalloc.get_traced_memory()[0]]

    def peak() -> int:
        now, most = tracemalloc.get_traced_memory()
        found = most - before[0]
        before[0] = now
        tracemalloc.reset_peak()
        return found

    yield peak
    tracemalloc.stop()


def array(dtype: str = "<f4") -> Box:
    values = np.arange(SIZE // np.dtype(dtype).itemsize).astype(dtype)
    values.setflags(write=False)
    return Box(values, "array")


def test_writing_copies_nothing(tmp_path: Path, traced: Callable[[], int]) -> None:
    blobs: dict[str, Any] = {"x": array(), "y": array("<i8")}
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    write_part(
        tmp_path / "first", "main", blobs, id=0
    )  # makes what a process keeps: 1 MiB of zeros
    traced()
    write_part(tmp_path / "second", "main", blobs, id=0)
    assert traced() < LITTLE


def test_reading_needs_the_values_and_little_more(
    tmp_path: Path, traced: Callable[[], int]
) -> None:
    with CheckpointManager(tmp_path) as manager:
        manager.save(0, {"main": {"x": array().value, "y": array().value}})
    traced()
    found = read_part(tmp_path / "checkpoint_0", "main")
    assert traced() < 2 * SIZE + THREADS * 2 * MIB
    assert len(found) == 2


def test_a_slice_needs_its_own_room_and_little_more(
    tmp_path: Path, traced: Callable[[], int]
) -> None:
    values = array().value.reshape(-1, 256)
    with CheckpointManager(tmp_path) as manager:
        manager.save(0, {"main": {"x": values}})
    traced()
    found = read_slice(tmp_path / "checkpoint_0", "main", "x", slice(1000, 12_000))
    assert traced() < found.nbytes + 2 * MIB
    assert np.array_equal(found, values[1000:12_000])


@pytest.mark.parametrize("dtype", [">f4", "<f4"])
def test_what_must_be_changed_is_copied_a_chunk_at_a_time(
    tmp_path: Path, traced: Callable[[], int], dtype: str
) -> None:
    """Swapping bytes and compressing need room for the chunks under way, not for all."""
    blobs: dict[str, Any] = {f"x{i}": array(dtype) for i in range(8)}
    traced()
    write_part(tmp_path, "main", blobs, id=0, compress=[Compress("lz4")])
    assert traced() < 2.5 * THREADS * CHUNK_BYTES < 8 * SIZE


# Jobs.


EPOCHS = 4


class Held(Fs):
    """The save of an epoch ends only once the next epoch has been computed."""

    def __init__(self) -> None:
        self.computed = 0
        self.changed = threading.Condition()

    def at(self, op: str, path: str) -> None:
        if op == "rename" and ".trash" not in path:
            needed = min(int(path.rpartition("_")[2]) + 1, EPOCHS)
            with self.changed:
                assert self.changed.wait_for(lambda: self.computed >= needed, 60)

    def done(self, epoch: int) -> None:
        with self.changed:
            self.computed = epoch
            self.changed.notify_all()


def zeros() -> np.ndarray:
    return np.zeros(SIZE // 8)


def replaced(x: np.ndarray) -> np.ndarray:
    return np.add(x, 1)


def added(x: np.ndarray) -> None:
    x += 1


def run(job: Job, tmp_path: Path, traced: Callable[[], int]) -> int:
    """Run it, each save in flight while the next epoch is computed; the most memory it held."""
    fs = Held()
    with job.epoch:
        Task(fs.done, ["epoch"], after=["step"], name="done")
    JobRunner(job, CheckpointManager(tmp_path / "run", fs=fs)).train(LocalSession(1))
    assert fs.computed == EPOCHS
    return traced()


def make_job(step: Callable[[], Task]) -> Job:
    with Job("memory", checkpoint=CheckpointPolicy()) as job:
        with job.init:
            Task(zeros, out="x")
            Task(zeros, out="still")
        step()
        job.stop(epochs=EPOCHS)
    return job


def test_a_job_that_replaces_holds_the_old_value_while_it_is_saved_and_no_copy(
    tmp_path: Path, traced: Callable[[], int]
) -> None:
    kept = BUFFERS.free
    job = make_job(lambda: Task(replaced, ["x"], out="x", name="step"))
    # Without any save there would be as much: the two values, and the new one beside the old.
    assert run(job, tmp_path, traced) < 3 * SIZE + 2 * MIB
    assert BUFFERS.free == kept


def test_a_job_that_updates_copies_what_it_updates_once(
    tmp_path: Path, traced: Callable[[], int]
) -> None:
    job = make_job(lambda: Task(added, update=["x"], name="step"))
    # The two values and one copy of what is updated, for all epochs.
    assert 3 * SIZE <= run(job, tmp_path, traced) < 3 * SIZE + 2 * MIB
    assert BUFFERS.free == 0  # the job is over


def test_memory_that_a_save_releases_serves_the_next_copy(tmp_path: Path) -> None:
    """Of each array there are two blocks: one is updated while a save holds the other."""
    fs = Held()
    # Not addresses: the system may give that of a block that was freed to a fresh one.
    blocks: dict[str, list[weakref.ref[Any]]] = {"x": [], "w": []}

    def step(x: np.ndarray, tree: dict[str, np.ndarray]) -> None:
        for name, array in (("x", x), ("w", tree["w"])):
            array += 1
            blocks[name].append(weakref.ref(array if array.base is None else array.base))

    with Job("memory", checkpoint=CheckpointPolicy()) as job:
        with job.init:
            Task(np.zeros, with_={"shape": MIB // 8}, out="x")
            Task(lambda: {"w": np.zeros(MIB // 4)}, out="tree", name="tree")
        Task(step, update=["x", "tree"], name="step")
        Task(fs.done, ["epoch"], after=["step"], name="done")
        job.stop(epochs=EPOCHS)
    JobRunner(job, CheckpointManager(tmp_path / "run", fs=fs)).train(LocalSession(1))
    for first, second, third, fourth in blocks.values():
        assert first is third
        assert second is fourth
        assert first is not second
