"""Real worker processes: the same bits, prints, code that travels, and workers that are killed."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from averaging import averaging, bits, returns
from engine import within

from jobrun import CheckpointManager, Every, Job, JobRunner, LocalSession, Node, Task, load_blobs
from jobrun.core.events import (
    CheckpointSaved,
    EpochFinished,
    Event,
    GroupStarted,
    RunWentBack,
    TaskFinished,
)
from jobrun.errors import TaskError
from jobrun.jobspec.validate import validate_spec

pytest.importorskip("distributed")

import distributed

from jobrun.engine.resume_policy import Request
from jobrun.session.dask import actor_calls
from jobrun.session.dask.cluster import connect, start_cluster
from jobrun.session.dask.session import DaskSession
from jobrun.session.dask.workers import DaskWorkers

MANY = 100 if os.environ.get("JOBRUN_LONG") else 2
ROOT = Path(__file__).parents[3]


def two_workers() -> Iterator[Any]:
    """A client of two worker processes; none of its processes is left behind."""
    before = set(multiprocessing.active_children())
    made = start_cluster(2, 1)
    yield made
    made.close()
    made.cluster.close()
    own = set(multiprocessing.active_children()) - before
    for process in own:
        process.join(30)
        assert not process.is_alive()


client = pytest.fixture(two_workers, scope="module")
mortal = pytest.fixture(two_workers)
"""For one test, which kills workers: not each of them is replaced."""


def train(session: Any, job: Job, folder: Path | None = None, **how: Any) -> JobRunner:
    manager = CheckpointManager(folder) if folder is not None else None
    runner = JobRunner(job, manager, **how)
    within(120, lambda: runner.train(session))
    return runner


# The same bits.


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_the_bits_are_those_of_one_process(client: Any, tmp_path: Path, nodes: int) -> None:
    job = averaging(nodes, every=Every(batches=5))
    alone = train(LocalSession(2), job, tmp_path / "local")
    there = train(DaskSession(client), job, tmp_path / "dask")
    assert bits(there.blobs) == bits(alone.blobs)
    last = [load_blobs(tmp_path / name) for name in ("local", "dask")]
    assert bits(last[0]) == bits(last[1])


@pytest.mark.parametrize("spec", ["parallel_digits", "parameter_server"])
def test_the_specs_of_several_nodes(client: Any, tmp_path: Path, spec: str) -> None:
    epochs = 3 if spec == "parallel_digits" else 30
    path = ROOT / "specs" / f"{spec}.yaml"
    job = validate_spec(path, epochs=epochs)
    request = Request(folder=path.parent)
    runs = [
        train(session, job, tmp_path / session.description, request=request)
        for session in (LocalSession(2), DaskSession(client))
    ]
    assert bits(runs[0].blobs) == bits(runs[1].blobs)


def test_blobs_do_not_pass_through_the_client(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what nodes exchange, nor what is saved and loaded."""
    sizes: list[int] = []
    call = actor_calls.call_actor

    async def counting(rpc: Any, key: str, method: str, args: Any) -> Any:
        answer = await call(rpc, key, method, args)
        sent = sum(map(len, map(distributed.protocol.serialize_bytes, args)))
        sizes.append(sent + len(distributed.protocol.serialize_bytes(answer)))
        return answer

    monkeypatch.setattr("jobrun.session.dask.workers.call_actor", counting)
    size = 4 * 2**20

    def job(epochs: int) -> Job:
        with Job("large", nodes=["a", "b"]) as made:
            with made.init, Node("*"):
                Task(np.ones, with_={"shape": size // 8}, out="w")
            with Node("*"):
                Task(lambda ws: np.mean(ws, axis=0) * 2, "*:w", out="w", name="mean")
            made.stop(epochs=epochs)
        return made

    train(DaskSession(client), job(2), tmp_path / "run")
    train(DaskSession(client), job(3), tmp_path / "run")
    assert len(sizes) > 20
    assert max(sizes) < 50_000
    assert load_blobs(tmp_path / "run", ["a:w"])["a:w"][0] == 8.0


# What tasks say.


def test_prints_and_events_reach_the_client(client: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with Job("talk", nodes=["a", "b"]) as job:
        with Node("*"):
            Task(lambda node: print("I am", node), "node", name="talk")
        job.stop(epochs=2)
    events: list[Event] = []
    train(DaskSession(client), job, report=events.append, every_task=True)
    lines = capfd.readouterr().out.splitlines()
    assert sorted(lines) == ["I am a"] * 2 + ["I am b"] * 2
    said = [(e.epoch, e.task, e.node) for e in events if isinstance(e, TaskFinished)]
    assert sorted(said) == [(e, "talk", n) for e in (1, 2) for n in "ab"]


def test_a_failing_task_shows_the_users_lines(client: Any) -> None:
    def fail(node: str) -> None:
        if node == "b":
            raise ValueError("not here")
        time.sleep(0.1)

    with Job("fails", nodes=["a", "b"]) as job:
        with Node("*"):
            Task(fail, "node")
        job.stop(epochs=1)
    with pytest.raises(TaskError) as caught:
        train(DaskSession(client), job)
    assert caught.value.message == (
        "task 'fail' of group 'epoch' on node 'b' failed: ValueError: not here"
    )
    assert "test_cluster.py" in caught.value.trace
    assert 'raise ValueError("not here")' in caught.value.trace


def test_what_cannot_travel_is_an_error_that_says_so(client: Any) -> None:
    with Job("lock", nodes=["a", "b"]) as job:
        with Node("a"):
            Task(threading.Lock, out="lock", name="make")
        with Node("b"):
            Task(lambda lock: None, "a:lock", name="take")
        job.stop(epochs=1)
    with pytest.raises(TaskError, match="'lock' of node 'a' cannot be sent to another node"):
        train(DaskSession(client), job)


def test_the_time_of_each_node_is_said(client: Any, tmp_path: Path) -> None:
    events: list[Event] = []
    train(DaskSession(client), averaging(3, 1), tmp_path / "run", report=events.append)
    saves = [e for e in events if isinstance(e, CheckpointSaved)]
    assert saves
    assert all({"write t_0", "write t_1", "write t_2"} <= set(e.phases) for e in saves)


# Workers that are killed.


@pytest.mark.parametrize("seed", range(MANY))
def test_a_worker_is_killed(mortal: Any, tmp_path: Path, seed: int) -> None:
    """At any time from the first group on; the last epoch begins without it."""
    rng = random.Random(seed)
    job = averaging(3, 6, seconds=0.01, every=Every(epochs=1, batches=7))
    alone = train(LocalSession(2), job)
    events: list[Event] = []
    pid = rng.choice(sorted(mortal.run(os.getpid).values()))
    timer = threading.Timer(rng.uniform(0, 0.7), os.kill, (pid, signal.SIGKILL))

    def watch(event: Event) -> None:
        events.append(event)
        if isinstance(event, GroupStarted) and timer.ident is None:
            timer.start()
        elif isinstance(event, EpochFinished) and event.epoch == 5:
            timer.join()

    there = train(DaskSession(mortal), job, tmp_path / "run", report=watch)
    assert bits(there.blobs) == bits(alone.blobs)
    assert len(returns(events)) == 1
    assert not list((tmp_path / "run").glob(".checkpoint*"))


@pytest.mark.parametrize("seed", range(MANY // 10 or 1))
@pytest.mark.parametrize("method", ["save_snapshot", "load_parts"])
def test_a_worker_is_killed_while_it_saves_or_loads(
    mortal: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, seed: int
) -> None:
    rng = random.Random(seed)
    alone = train(LocalSession(2), averaging(3, 5, 0.01))
    train(LocalSession(2), averaging(3, 2, 0.01), tmp_path / "run")
    pid = rng.choice(sorted(mortal.run(os.getpid).values()))
    timer = threading.Timer(rng.uniform(0, 0.03), os.kill, (pid, signal.SIGKILL))
    reach, first = DaskWorkers._reach, rng.randint(1, 4) if method == "save_snapshot" else 1
    calls = []

    async def reached(self: DaskWorkers, worker: str, name: str, args: Any) -> Any:
        if name == "do" and args[0] == method:
            calls.append(worker)
            if len(calls) == first:
                timer.start()
        return await reach(self, worker, name, args)

    monkeypatch.setattr(DaskWorkers, "_reach", reached)
    events: list[Event] = []
    job = averaging(3, 5, 0.01, every=Every(epochs=1, batches=7))
    there = train(DaskSession(mortal), job, tmp_path / "run", report=events.append)
    assert bits(there.blobs) == bits(alone.blobs)
    assert sum(isinstance(e, RunWentBack) for e in events) == 1
    assert not list((tmp_path / "run").glob(".checkpoint*"))


def test_a_worker_that_hangs_is_left_behind(mortal: Any, tmp_path: Path) -> None:
    job = averaging(2, 6, seconds=0.02)
    alone = train(LocalSession(2), job)
    events: list[Event] = []
    pid = next(iter(mortal.run(os.getpid).values()))

    def watch(event: Event) -> None:
        events.append(event)
        if isinstance(event, EpochFinished) and event.epoch == 2:
            os.kill(pid, signal.SIGSTOP)

    try:
        session = DaskSession(mortal, timeout=1.5)
        there = train(session, job, tmp_path / "run", report=watch)
        assert bits(there.blobs) == bits(alone.blobs)
    finally:
        os.kill(pid, signal.SIGKILL)
    (back,) = returns(events)
    assert "has not responded for 1.5 s" in back.message


# Workers that were started by themselves, in folders of their own.


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[str]:
    """The address of a scheduler with two workers, each with a directory of its own."""
    cluster = distributed.LocalCluster(
        n_workers=0,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=50,
    )
    address = cluster.scheduler_address
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny"]
    started = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        where = ["--local-directory", str(folder), "--name", name, "--no-dashboard"]
        started.append(subprocess.Popen([*command, *where], cwd=folder, stderr=subprocess.DEVNULL))
    yield address
    for process in started:
        process.kill()
        process.wait()
    cluster.close()


CODE = """
    import numpy as np
    from helper import two

    def load(file): return np.load(file)
    def start(): return np.zeros(3)
    def step(x, w): w += x * two()
    def mean(ws): return np.mean(ws, axis=0)
"""

SPEC = """
    nodes: [a, b]
    setup: [{call: "own_code:load", node: "*", with: {file: "${spec.dir}/data.npy"}, out: x}]
    init: [{call: "own_code:start", node: "*", out: w}]
    epoch:
      - {call: "own_code:step", node: "*", in: x, update: w}
      - {call: "own_code:mean", node: "*", in: "*:w", out: w}
    stop: {epochs: 3}
"""


def test_nothing_but_the_run_directory_is_needed(
    workers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``/proc/self/cwd`` is another folder in each process: the spec's code is sent to it."""
    specs = tmp_path / "specs"
    specs.mkdir()
    (specs / "own_code.py").write_text(textwrap.dedent(CODE))
    (specs / "helper.py").write_text("def two(): return 2\n")
    (specs / "job.yaml").write_text(textwrap.dedent(SPEC))
    np.save(specs / "data.npy", np.arange(3.0))
    monkeypatch.chdir(specs)
    folder = Path("/proc/self/cwd")
    job = validate_spec("job.yaml")
    made = connect(workers, 10)
    made.wait_for_workers(2, timeout=120)
    session = DaskSession(made)
    runner = train(session, job, tmp_path / "runs/job", request=Request(folder=folder))
    assert set(session.where) == {"a", "b"}
    assert len(set(session.where.values())) == 2
    assert runner.blobs["b:w"].tolist() == [0.0, 6.0, 12.0]
    sent = [list((tmp_path / n).rglob("own_code.py")) for n in ("first", "second")]
    assert all(len(found) == 1 for found in sent)
    made.close()
    assert load_blobs(tmp_path / "runs/job", ["a:w"])["a:w"].tolist() == [0.0, 6.0, 12.0]
