"""A job on a dask cluster by the command: start, kill, resume, and what can be wrong with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobrun import load_blobs
from jobrun.errors import UsageError
from jobrun.model.policy import SessionSpec
from jobrun.session import factory

pytest.importorskip("distributed")

SPEC = """\
name: count
nodes: [a, b]
init: [{call: "steps:zero", node: "*", out: n}]
epoch:
  - {call: "steps:one_more", node: "*", in: n, out: n}
  - {call: "steps:larger", node: "*", in: "*:n", out: n}
stop: {epochs: 30}
session: {kind: dask, workers: 2}
"""
CODE = """\
import os, time

def zero():
    return 0

def one_more(n):
    print("worker", os.getpid(), flush=True)
    time.sleep(float(os.environ.get("STEP", "0.1")))
    return n + 1

def larger(values):
    return max(values)
"""


@pytest.fixture
def job(folder: Path) -> Path:
    (folder / "count.yaml").write_text(SPEC)
    (folder / "steps.py").write_text(CODE)
    return folder


def processes_of(folder: Path) -> list[int]:
    """The processes whose current directory is a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(entry / "cwd") == str(folder) and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def eventually(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_killed_client_leaves_no_process_and_is_resumed(
    job: Path, start: Callable[..., Any], jobrun: Callable[..., Any]
) -> None:
    process = start("train", "count.yaml")
    eventually(lambda: (job / "runs/count/checkpoint_4").exists())
    process.send_signal(signal.SIGKILL)
    process.communicate()
    eventually(lambda: not processes_of(job))
    done = jobrun("resume", STEP="0")
    assert done.code == 0, done.err
    assert "count: finished after 30 epochs" in done.out
    assert len({line for line in done.out.splitlines() if line.startswith("worker")}) == 2
    assert load_blobs(job / "runs/count", ["b:n"])["b:n"] == 30
    assert not processes_of(job)


def test_ctrl_c_is_for_the_run_alone(job: Path, folder: Path) -> None:
    command = [str(Path(sys.executable).with_name("jobrun")), "train", "count.yaml"]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    eventually(lambda: (job / "runs/count/checkpoint_3").exists())
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does it, to all processes
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert b"count: interrupted after" in out
    assert b"is lost" not in err
    assert not processes_of(job)


@pytest.fixture
def cluster(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A scheduler and a worker, each a process of its own."""
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    quiet: dict[str, Any] = {"cwd": elsewhere, "stderr": subprocess.DEVNULL}
    python = [sys.executable, "-m"]
    where = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", "s.json"]
    scheduler = subprocess.Popen([*python, "distributed.cli.dask_scheduler", *where], **quiet)
    started = [scheduler]
    file = elsewhere / "s.json"
    eventually(lambda: file.exists() and file.stat().st_size > 0)
    import json

    address = json.loads(file.read_text())["address"]
    worker = ["distributed.cli.dask_worker", address, "--no-nanny", "--no-dashboard"]
    started.append(subprocess.Popen([*python, *worker], **quiet))
    yield address, scheduler
    for process in started:
        process.kill()
        process.wait()


def test_a_lost_scheduler_ends_the_run_which_can_be_resumed(
    job: Path,
    start: Callable[..., Any],
    jobrun: Callable[..., Any],
    cluster: tuple[str, subprocess.Popen[bytes]],
) -> None:
    address, scheduler = cluster
    process = start("train", "count.yaml", "--scheduler", address)
    eventually(lambda: (job / "runs/count/checkpoint_3").exists())
    scheduler.kill()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert f"the scheduler {address} cannot be reached any more" in err
    assert "jobrun resume runs/count" in out
    done = jobrun("resume", "--set", "session.kind=local", STEP="0")
    assert done.code == 0, done.err
    assert load_blobs(job / "runs/count", ["b:n"])["b:n"] == 30


def test_a_scheduler_that_is_not_there(job: Path, jobrun: Callable[..., Any]) -> None:
    done = jobrun(
        "train", "count.yaml", "--scheduler", "tcp://127.0.0.1:9", "--set", "session.wait=0.5"
    )
    assert done.code == 1
    assert done.err.startswith("error: there is no scheduler at tcp://127.0.0.1:9")
    assert not (job / "runs").exists()


def test_the_extra_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="dask") as caught:
        factory.make_session(SessionSpec("dask"))
    assert caught.value.hint == "pip install 'jobrun[dask]'"
