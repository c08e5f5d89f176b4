"""A sweep whose session is a Dask cluster: each run in a process on one of the workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from whole_runs import bytes_of_checkpoints

from jobrun.checkpoint.read_blobs import load_blobs
from jobrun.cli import cluster_fleet
from jobrun.runs.rundir import RunDir

distributed = pytest.importorskip("distributed")

Call = Callable[..., Any]

SPEC = """\
name: sum
vars: {step: 2, first: 100}
matrix: {step: [1, 2], first: [90, 10]}
init:
  - {call: "steps:start", in: {first}, out: total}
epoch:
  - {call: "steps:add", in: {total, step}, out: total}
metrics: {total: max}
stop: {epochs: 3}
session: {kind: dask, address: ADDRESS}
"""
CODE = """\
import os, time

def start(first):
    return first

def add(total, step):
    while os.path.exists("wait") and total > 10:
        time.sleep(0.01)
    print("process", os.getppid(), flush=True)
    return total + step
"""
ALL = ["step=1,first=90", "step=1,first=10", "step=2,first=90", "step=2,first=10"]
TOTALS = dict(zip(ALL, (93, 13, 96, 16), strict=True))
"""After three epochs."""


class Cluster:
    """A scheduler and workers of one thread each, started as anyone does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.workers: list[subprocess.Popen[bytes]] = []
        file = folder / "scheduler.json"
        where = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", file]
        self._scheduler = self._start("dask_scheduler", *where)
        wait_until(lambda: file.exists() and file.stat().st_size > 0)
        self.address = str(json.loads(file.read_text())["address"])

    def start_worker(self, *options: str) -> None:
        where = ["--nthreads", "1", "--no-nanny", "--no-dashboard", *options]
        self.workers.append(self._start("dask_worker", self.address, *where))

    def _start(self, module: str, *args: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{module}", *args]
        return subprocess.Popen(command, cwd=self._folder, stderr=subprocess.DEVNULL)

    def close(self) -> None:
        for process in (*self.workers, self._scheduler):
            process.kill()
            process.wait()


def wait_until(true: Callable[[], Any], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A scheduler with two workers; a test that ends one starts another."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    made.start_worker()
    made.start_worker()
    with distributed.Client(made.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
    yield made
    made.close()


@pytest.fixture
def home(write: Call, folder: Path, cluster: Cluster) -> Path:
    """The directory of the sweep, whose spec and code are there."""
    write(("ADDRESS", cluster.address), spec=SPEC, code=CODE)
    return folder / "runs/sum"


@pytest.fixture
def waiting(folder: Path) -> Iterator[Path]:
    """A file: while it is there, no task ends after the first epoch of the smallest."""
    file = folder / "wait"
    file.touch()
    yield file
    file.unlink(missing_ok=True)


def totals(home: Path) -> dict[str, Any]:
    return {name: load_blobs(home / name)["total"] for name in ALL}


def begun(home: Path) -> list[str]:
    """The runs that are running, and have saved."""
    runs = [RunDir(home / name) for name in ALL if (home / name / "checkpoint_0").exists()]
    return [run.path.name for run in runs if run.held()]


def told(run: Path) -> bool:
    """Whether a run has received a signal."""
    return "SIGTERM: no new work" in (run / "log.txt").read_text()


def test_the_runs_are_those_of_this_machine_and_spread_over_the_workers(
    home: Path, folder: Path, call: Call, cluster: Cluster
) -> None:
    result = call("train", "sum.yaml", "--jobs", "4")
    assert result.code == 0, result.err
    assert result.out.startswith("sum: 4 runs: 4 finished\n")
    lines = [line for line in result.err.splitlines() if "runs on tcp" in line]
    assert len(lines) == 4
    assert lines[0].split()[-1] != lines[1].split()[-1]
    own = {str(worker.pid) for worker in cluster.workers}
    assert {line.split()[-1] for line in result.err.splitlines() if "| process" in line} == own
    assert all("process" in (home / name / "log.txt").read_text() for name in ALL)
    here = call(
        "train", "sum.yaml", "--fresh", "--set", "session.kind=local", "--unset", "session.address"
    )
    assert here.code == 0, here.err
    for name in ALL:
        there = bytes_of_checkpoints(home / name)
        assert there == bytes_of_checkpoints(folder / "runs/sum-2" / name)


def test_a_run_whose_worker_is_killed_resumes_on_another(
    home: Path, waiting: Path, start: Call, cluster: Cluster
) -> None:
    process = start("train", "sum.yaml", "--jobs", "2")
    wait_until(lambda: (home / ALL[1] / "checkpoint_1").exists())
    cluster.start_worker()
    cluster.workers.pop(0).kill()
    wait_until(lambda: any("is lost; it resumes" in line for line in process.stderr))
    waiting.unlink()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out.startswith("sum: 4 runs: 4 finished\n")
    assert totals(home) == TOTALS


def test_a_run_that_its_machine_interrupts_resumes(
    home: Path, waiting: Path, start: Call, cluster: Cluster
) -> None:
    """As a scheduler of batch jobs does when it wants the machine back."""
    process = start("train", "sum.yaml", "--jobs", "1")
    wait_until(lambda: RunDir(home / ALL[0]).held())
    wait_until(lambda: (home / ALL[0] / "checkpoint_0").exists())
    os.kill(json.loads((home / ALL[0] / "lock").read_text())["pid"], signal.SIGTERM)
    wait_until(lambda: told(home / ALL[0]))
    waiting.unlink()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert f"{ALL[0]} | interrupted on its worker: it resumes on any" in err
    assert out.startswith("sum: 4 runs: 4 finished\n")
    assert totals(home) == TOTALS


def test_a_signal_saves_what_runs_and_starts_nothing_more(
    home: Path, waiting: Path, start: Call, call: Call
) -> None:
    process = start("train", "sum.yaml", "--jobs", "4")  # two have a worker
    wait_until(lambda: len(begun(home)) == 2)
    names = begun(home)
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: all(told(home / name) for name in names))
    waiting.unlink()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 143, err
    assert not begun(home)
    assert "2 interrupted, 2 waiting" in out
    assert {RunDir(home / name).state().state for name in names} == {"interrupted"}  # type: ignore[union-attr]
    done = call("resume", "sum", "--jobs", "4")
    assert done.code == 0, done.err
    assert totals(home) == TOTALS


def test_the_runs_of_a_sweep_that_is_killed_save_and_end(
    home: Path, waiting: Path, start: Call
) -> None:
    process = start("train", "sum.yaml", "--jobs", "2")
    wait_until(lambda: len(begun(home)) == 2)
    process.kill()
    process.communicate()
    wait_until(lambda: all(told(home / name) for name in ALL[:2]))
    waiting.unlink()
    wait_until(lambda: not begun(home))
    for name in ALL[:2]:
        state = RunDir(home / name).state()
        assert state is not None
        assert state.state == "interrupted"


def test_a_worker_that_does_not_share_the_storage(
    home: Path, call: Call, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """``/proc/self/cwd`` is another folder in each process."""
    result = call("train", "sum.yaml", "--set", "first=90", "--runs-dir", "/proc/self/cwd/runs")
    assert result.code == 2
    assert "does not see the directory of the sweep: /proc/self/cwd/runs/sum" in result.err
    assert "need storage that all machines share" in result.err
    assert "sum: 2 runs: 2 error\n" in result.out


def test_no_worker_has_what_a_run_needs(
    home: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_fleet, "_SAY", 0.3)
    monkeypatch.setattr(cluster_fleet, "_LOOK", 0.1)
    more = ("--set", "session.resources.main.GPU=1", "--set", "session.wait=0.5")
    result = call("train", "sum.yaml", *more)
    assert result.code == 1
    assert "waiting for a worker with a free thread with GPU=1" in result.err
    assert "the cluster has no worker with GPU=1" in result.err
