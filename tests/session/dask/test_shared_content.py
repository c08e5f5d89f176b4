"""Contents of messages that pass through memory of the sender."""

from __future__ import annotations

import gc
import os
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun import Job, JobRunner, LocalSession, Node, Pipe, Task

pytest.importorskip("distributed")

from averaging import bits
from engine import within
from fake_cluster import FakeCluster

from jobrun.session.dask.session import DaskSession
from jobrun.session.dask.shared_content import ContentReader, SharedContent, SharedMemory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs memfd and /proc")


def test_large_arrays_are_read_where_they_lie() -> None:
    memory, reader = SharedMemory(), ContentReader()
    large, small = np.arange(10_000.0), np.arange(3)
    large.setflags(write=False)
    held = memory.hold({"a": [large, small, "x"], "b": large})
    assert held is not None
    assert sum(type(frame) is tuple for frame in held.frames) == 1
    found = reader.read(held)
    assert found["a"][0].tobytes() == large.tobytes()
    assert found["a"][1].tolist() == [0, 1, 2]
    assert not found["a"][0].flags.writeable
    assert found["a"][0].flags.aligned
    other = large + 1.0
    other.setflags(write=False)
    memory.hold([other])
    assert found["a"][0][0] == 1.0  # the memory is used again
    memory.close()
    assert found["a"][0][0] == 1.0  # what is mapped stays


@pytest.mark.parametrize("shape", [(0,), (0, 2), (3, 0)])
def test_arrays_without_elements_are_beside_large_ones(shape: tuple[int, ...]) -> None:
    held = SharedMemory().hold([np.zeros(shape), np.arange(10_000.0)])
    assert held is not None
    empty, large = ContentReader().read(held)
    assert empty.shape == shape
    assert large[-1] == 9_999.0
    assert SharedMemory().hold([np.zeros(shape)]) is None


def test_the_memory_grows() -> None:
    memory, reader = SharedMemory(), ContentReader()
    for size in (5_000, 500_000, 7_000):
        held = memory.hold(np.full(size, float(size)))
        assert held is not None
        assert set(reader.read(held)) == {float(size)}


def test_small_contents_stay_in_the_message() -> None:
    assert SharedMemory().hold({"a": np.arange(100), "b": 1}) is None


def test_memory_of_another_machine_is_not_seen(tmp_path: Path) -> None:
    memory = SharedMemory()
    file = memory.open()
    assert file is not None
    assert ContentReader().sees(file)
    other = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    wrong = [
        replace(file, pid=2**22),
        replace(file, descriptor=other),
        replace(file, token=b"0" * len(file.token)),
        replace(file, size=2**30),
    ]
    assert not any(ContentReader().sees(each) for each in wrong)
    os.close(other)
    memory.close()
    with pytest.raises(OSError, match="fd"):
        ContentReader().read(SharedContent(file, {}, ()))


# In pipes.


def first_of(first: Any, mean: Any) -> Any:
    """Return the mean of the first batch in all others too."""
    return mean if first is None else first


def large_gradients(of: str, how: str) -> Job:
    """Three nodes, each of which reduces large arrays in each batch."""
    with Job("sgd", nodes={"t": 3}) as job:
        with job.setup, Node("*"):
            Task(lambda: np.arange(12.0), out="rows", name="load")
        with job.init, Node("*"):
            Task(np.zeros, with_={"shape": 20_000}, out="w", name="start")
            Task(lambda: None, out="first", name="none")
        with Node("*"):
            Pipe(
                from_={"x": "rows"},
                batch=2,
                shuffle=True,
                do=[
                    Task(lambda x, w: np.cos(w + x.sum()), ["x", "w"], out="g", name="gradient"),
                    Task(lambda g: g, [{"reduce": how, "of": of}], out="mean", name="keep"),
                    Task(first_of, ["first", "mean"], out="first"),
                    Task(lambda w, m: w + m, ["w", "mean"], out="w", name="step"),
                ],
                name="train",
            )
        job.stop(epochs=2)
    return job


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize(("of", "how"), [("*:g", "mean"), ("t_2:g", "sum"), ("t_[01]:g", "max")])
def test_pipes_get_the_bits_of_one_process(
    monkeypatch: pytest.MonkeyPatch, seen: bool, of: str, how: str
) -> None:
    """Also where all that is reduced comes from one other worker, and over the network."""
    held: list[Any] = []
    hold = SharedMemory.hold

    def noted(self: SharedMemory, content: Any) -> SharedContent | None:
        held.append(hold(self, content))
        return held[-1]

    monkeypatch.setattr(SharedMemory, "hold", noted)
    if not seen:
        monkeypatch.setattr(ContentReader, "sees", lambda self, file: False)
    local = JobRunner(large_gradients(of, how))
    local.train(LocalSession(2))
    runner = JobRunner(large_gradients(of, how))
    with FakeCluster(2) as client:
        within(60, lambda: runner.train(DaskSession(client)))
        assert bits(runner.blobs) == bits(local.blobs)
    assert any(isinstance(each, SharedContent) for each in held) == seen


def memories() -> set[int]:
    """The files of memory that are open in this process, by their inodes."""
    files = Path("/proc/self/fd")
    found = set()
    for name in os.listdir(files):
        with suppress(OSError):  # closed meanwhile
            if os.readlink(files / name).startswith("/memfd:jobrun"):
                found.add(os.stat(files / name).st_ino)
    return found


def test_a_client_that_is_gone_leaves_nothing_on_its_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scheduler drops the actors of a killed client, which has closed none of them."""
    monkeypatch.setattr("jobrun.session.dask.actor._LOOK", 0.05)
    before = memories()
    with FakeCluster(2) as client:
        runner = JobRunner(large_gradients("*:g", "mean"))
        within(60, lambda: runner.train(DaskSession(client)))
        assert memories() - before
        for worker in client.workers.values():
            worker.take_actors()
        end = time.monotonic() + 120
        while memories() - before:
            assert time.monotonic() < end
            time.sleep(0.02)
            gc.collect()
