"""Processes that tasks start: they are theirs, whatever jobrun does with signals and locks."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun.checkpoint.read_blobs import load_blobs

Call = Callable[..., Any]
LONG = bool(os.environ.get("JOBRUN_LONG"))
EPOCHS, TIMES = (40, 20) if LONG else (3, 1)

CODE = """\
import multiprocessing as mp, subprocess, sys, time
from concurrent.futures import ProcessPoolExecutor
import numpy as np

def rows():
    return np.arange(3.0)

def zero():
    return 0.0

def one(x):
    return x + 1

def put(queue, x):
    queue.put(x + 1)

def sleep():
    time.sleep(30)

def pool(x, way):
    with mp.get_context(way).Pool(2) as pool:
        return sum(pool.map(one, [x, x])) - x - 1

def process(x, way):
    context = mp.get_context(way)
    queue = context.SimpleQueue()
    child, idle = context.Process(target=put, args=(queue, x)), context.Process(target=sleep)
    for each in (child, idle):
        each.start()
    found = queue.get()
    child.join()
    idle.terminate()
    idle.join()
    assert (child.exitcode, idle.exitcode) == (0, -15)
    return found

def daemon(x, way):
    mp.get_context(way).Process(target=sleep, daemon=True).start()  # ended with the interpreter
    return x + 1

def executor(x, way):
    with ProcessPoolExecutor(2, mp_context=mp.get_context(way)) as pool:
        return list(pool.map(one, [x, x]))[1]

def joblib(x, way):
    from joblib import Parallel, delayed
    backend = "multiprocessing" if way == "fork" else "loky"
    return Parallel(n_jobs=2, backend=backend)(delayed(one)(each) for each in (x, x))[1]

def program(x, way):
    code = f"print({x} + 1)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True).stdout)

def work(total, kind, way):
    return globals()[kind](float(total), way)

def column(x, kind, way):
    return np.array([work(each, kind, way) for each in x])

def add(total, x):
    return total + float(x.sum())
"""
TASK = """\
name: kids
vars: {{kind: {kind}, way: {way}}}
init:
  - {{call: "kids:zero", out: total}}
epoch:
  - {{call: "kids:work", in: {{total, kind, way}}, out: total}}
stop: {{epochs: {epochs}}}
"""
PIPE = """\
name: kids
vars: {{kind: {kind}, way: {way}}}
setup:
  - {{call: "kids:rows", out: rows}}
init:
  - {{call: "kids:zero", out: total}}
epoch:
  - name: read
    pipe: {{from: {{x: rows}}, batch: 1, batches_per_epoch: 1, {workers}: 2}}
    map:
      - {{call: "kids:column", in: {{x, kind, way}}, out: x}}
    do:
      - {{call: "kids:add", in: {{total, x}}, out: total}}
stop: {{epochs: {epochs}}}
"""
KINDS = ["pool", "process", "daemon", "executor", "joblib", "program"]


def write(folder: Path, spec: str, **texts: object) -> None:
    (folder / "kids.py").write_text(CODE)
    (folder / "kids.yaml").write_text(spec.format(epochs=EPOCHS, **texts))


@pytest.mark.parametrize("where", ["task", "threads", "processes"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["fork", "spawn"])
@pytest.mark.sampled(4)
def test_processes_of_tasks_start_and_end(
    where: str, kind: str, way: str, start: Call, folder: Path
) -> None:
    """Bounded by a time that is far above what is needed: a hang is what it is to find."""
    if kind == "joblib" and importlib.util.find_spec("joblib") is None:
        pytest.skip("joblib is not installed")
    if (kind, way, where) == ("daemon", "spawn", "processes"):
        pytest.skip("a worker is killed at its end, with what it has just spawned")
    write(folder, TASK if where == "task" else PIPE, kind=kind, way=way, workers=where)
    for _ in range(TIMES):
        process = start("train", "kids.yaml", "--fresh", "-q", apart=True)
        out, err = process.communicate(timeout=20 * EPOCHS)
        assert process.returncode == 0, out + err
        assert "Traceback" not in err
    total = sum(range(1, 4)) * (EPOCHS // 3) + sum(range(1, 1 + EPOCHS % 3))
    assert load_blobs(folder / "runs/kids")["total"] == (EPOCHS if where == "task" else total)


WAITING = """\
import multiprocessing as mp, os, pathlib, signal, time

def zero():
    return 0

def slow(x):
    pathlib.Path(f"child-{os.getpid()}").touch()
    time.sleep(max(x, 1.5))
    return x

def work(total):
    with mp.get_context("fork").Pool(2) as pool:
        return total + sum(pool.map(slow, [1, 2], chunksize=1))
"""
SPEC = """\
name: kids
init:
  - {call: "kids:zero", out: total}
epoch:
  - {call: "kids:work", in: {total}, out: total}
stop: {epochs: 2}
"""


@pytest.fixture
def waiting(folder: Path) -> Path:
    """A job with a pool whose workers say who they are."""
    (folder / "kids.py").write_text(WAITING)
    (folder / "kids.yaml").write_text(SPEC)
    return folder


def children_in(folder: Path) -> list[int]:
    while len(found := list(folder.glob("child-*"))) < 2:
        time.sleep(0.01)
    return [int(path.name.partition("-")[2]) for path in found]


def test_ctrl_c_is_for_the_run_alone(start: Call, waiting: Path) -> None:
    """On a terminal it comes to the children too: the task ends as usual, and is in the save."""
    process = start("train", "kids.yaml", apart=True)
    children_in(waiting)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, out + err
    assert err.count("SIGINT: no new work starts") == 1
    assert out.count("resume runs/kids") == 1
    events = (waiting / "runs/kids/events.jsonl").read_text()
    assert events.count('"Stopping"') == 1
    assert "Traceback" not in err
    assert load_blobs(waiting / "runs/kids")["total"] == 3


def test_a_signal_to_a_child_is_the_childs(start: Call, waiting: Path) -> None:
    code = WAITING.replace(
        """    with mp.get_context("fork").Pool(2) as pool:
        return total + sum(pool.map(slow, [1, 2], chunksize=1))
""",
        """    ends = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        child = mp.get_context("fork").Process(target=slow, args=(30,))
        child.start()
        while number == signal.SIGINT and not pathlib.Path(f"child-{child.pid}").exists():
            time.sleep(0.01)  # Python drops a KeyboardInterrupt that comes in the fork itself
        os.kill(child.pid, number)  # at once: it may have come no further than that
        child.join(2)
        # One that comes in a destructor is dropped, and Python begins to sleep with one just noted.
        while child.is_alive() and number == signal.SIGINT:
            os.kill(child.pid, number)
            child.join(2)
        child.join()
        ends.append(child.exitcode)
    assert ends in ([1, -15, -10], [-2, -15, -10]), ends  # 1: of KeyboardInterrupt
    return total + 1
""",
    )
    (waiting / "kids.py").write_text(code)
    process = start("train", "kids.yaml", "-q", apart=True)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert "SIG" not in out + err.replace("KeyboardInterrupt", "")


def test_a_worker_that_is_killed_beside_its_children(start: Call, folder: Path) -> None:
    """They hold its end of the connection: its end is seen all the same."""
    write(folder, PIPE, kind="killed", way="fork", workers="processes")
    killed = """
def killed(x, way):
    import os, signal
    mp.get_context("fork").Process(target=sleep).start()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    (folder / "kids.py").write_text(CODE + killed)
    process = start("train", "kids.yaml", apart=True)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "its worker process was killed by SIGKILL" in err
