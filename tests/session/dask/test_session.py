"""What the session keeps of its nodes, and what nodes do that it has left."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from engine import Driver, within
from whole_runs import bytes_of_checkpoints

from jobrun import (
    Catalogue,
    CheckpointManager,
    CheckpointPolicy,
    Job,
    JobRunner,
    LocalSession,
    Node,
    Task,
)
from jobrun.core.events import JobrunWarning
from jobrun.errors import SaveError, WorkerLostError
from jobrun.model.policy import Upload

pytest.importorskip("distributed")

from fake_cluster import FakeCluster

from jobrun.session.dask.session import DaskSession
from jobrun.session.dask.worker_session import WorkerSession
from jobrun.storage.fs import FsError


@pytest.fixture
def client() -> Iterator[Any]:
    with FakeCluster(2) as made:
        yield made


def test_scalars_of_scratch_are_forgotten_with_it(client: Any) -> None:
    """Also those that the nodes told of at the end of the group."""
    with Job("j", nodes=["a", "b"]) as job, Node("*"):
        Task(lambda: 1.0, out="scratch", name="put")
    driver = Driver(job, session=DaskSession(client)).start()
    for _ in range(2):
        assert driver.epoch()
        assert driver.session.scalars(["a:scratch"]) == {"a:scratch": 1.0}
        driver.session.end_epoch()
        assert driver.session.scalars(["a:scratch"]) == {}


class Record(Catalogue):
    """A site's own record: a connection, which cannot be sent, stands for all that it may hold."""

    def __init__(self) -> None:
        self.connection = threading.Lock()
        self.told: list[tuple[str, Any]] = []

    def accessible(self, run: str, id: int) -> bool:
        with self.connection:
            self.told.append(("accessible", id))
        return id != 2

    def written(self, run: str, checkpoint: Mapping[str, Any]) -> None:
        self.told.append(("written", checkpoint["id"]))

    def report(self, run: str, event: Mapping[str, Any]) -> None:
        self.told.append((event["event"], event.get("id")))


def test_a_run_directory_that_workers_do_not_see(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine where the partial directory of the client is missing."""

    def missing(*_: Any) -> Any:
        error = FileNotFoundError(errno.ENOENT, "No such file or directory")
        raise FsError("open", "/shared/checkpoint_0/manifest.json", error)

    monkeypatch.setattr(WorkerSession, "save_snapshot", missing)
    with Job("j", nodes=["a"]) as job:
        with job.init, Node("a"):
            Task(lambda: 0, out="n", name="start")
        job.stop(epochs=1)
    runner = JobRunner(job, CheckpointManager(tmp_path / "run"))
    with pytest.raises(SaveError, match="wrote is not visible here") as caught:
        within(30, lambda: runner.train(DaskSession(client)))
    assert "must be on storage that all workers and this machine share" in str(caught.value)


def test_what_is_of_the_client_stays_there(client: Any, tmp_path: Path) -> None:
    """The catalogue and the function that uploads need not be such that they can be sent."""
    record, uploaded = Record(), []
    lock = threading.Lock()

    def upload(path: Path) -> None:
        with lock:
            uploaded.append(Path(path).name)

    policy = CheckpointPolicy(catalogue=record, background=False)
    with Job("j", nodes=["a", "b"], checkpoint=policy, upload=Upload(call=upload)) as job:
        with job.init, Node("*"):
            Task(lambda: 0, out="n", name="start")
        with Node("*"):
            Task(lambda n: n + 1, "n", out="n", name="count")
        job.stop(epochs=3)
    runner = JobRunner(job, CheckpointManager(tmp_path / "run"))
    with pytest.warns(JobrunWarning, match="checkpoint 2 was not saved: the catalogue"):
        assert within(60, lambda: runner.train(DaskSession(client))) == 3
    assert runner.blobs["b:n"] == 3
    assert record.told == [
        *[
            call
            for id in (0, 1)
            for call in (("accessible", id), ("written", id), ("CheckpointSaved", id))
        ],
        ("accessible", 2),
        ("CheckpointFailed", 2),
        *[("accessible", 3), ("written", 3), ("CheckpointSaved", 3)],
        ("RunEnded", None),
    ]
    assert uploaded == ["checkpoint_3"]


_begun, _killed = threading.Event(), threading.Event()


def until_killed() -> int:
    _begun.set()
    assert _killed.wait(30)
    return 1


def test_a_node_that_was_left_does_not_wait_for_messages_for_ever(client: Any) -> None:
    with Job("j", nodes=["a", "b"]) as job:
        with Node("a"):
            Task(until_killed, out="x", name="slow")
        with Node("b"):
            Task(lambda x: None, "a:x", name="take")
    session = DaskSession(client, max_restarts=0)
    driver = Driver(job, session=session).start()
    waits = session.where["b"]
    (actor,) = client.workers[waits].state.actors.values()

    def kill() -> None:
        _begun.wait(30)
        time.sleep(0.3)  # until the other one waits
        client.loop.asyncio_loop.call_soon_threadsafe(client.kill, waits)
        _killed.set()

    threading.Thread(target=kill, daemon=True).start()
    with pytest.raises(WorkerLostError):
        driver.epoch()
    actor._threads.shutdown(wait=False)
    for thread in actor._threads._threads:
        thread.join(10)
        assert not thread.is_alive()


def test_an_unchanged_value_keeps_its_version_however_late_messages_come(tmp_path: Path) -> None:
    """So that a checkpoint is the same bytes, and links what it can."""

    def job() -> Job:
        job = Job("versions", nodes=["a", "b"])
        with job.init, Node("*"):
            Task(lambda: (1.0, 2.0), out=["fixed", "w"], name="begin")
        with job.epoch, Node("*"):
            Task(lambda w: w + 1, "w", out="w", name="add")
        job.stop(epochs=6)
        return job

    JobRunner(job(), CheckpointManager(tmp_path / "alone")).train(LocalSession(1))
    with FakeCluster(2, delay=0.02, seed=1) as client:
        runner = JobRunner(job(), CheckpointManager(tmp_path / "dask"))
        within(60, lambda: runner.train(DaskSession(client)))
    expected = bytes_of_checkpoints(tmp_path / "alone")
    assert bytes_of_checkpoints(tmp_path / "dask") == expected
