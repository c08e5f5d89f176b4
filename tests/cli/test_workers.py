"""Worker processes in whole runs: signals, deaths, what is printed, scripts in Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from process_ends import has_ended

from jobrun.checkpoint.read_blobs import load_blobs

Call = Callable[..., Any]

SPEC = """\
name: sum
seed: 3
vars: {by: 2}
setup:
  - {call: sum_job:rows, out: rows}
init:
  - {call: sum_job:zero, out: total}
epoch:
  - name: read
    pipe: {from: {x: rows}, batch: 4, batches_per_epoch: 5, shuffle: true, processes: 2}
    map:
      - {call: sum_job:scale, in: {x, by, rng}, with: {file: "${spec.dir}/pid"}, out: x}
    do:
      - {call: sum_job:add, in: x, update: total}
stop: {epochs: 4}
"""
CODE = """\
import os, pathlib, time
import numpy as np
def rows():
    return np.arange(40.0)
def zero():
    return np.zeros(1)
def scale(x, by, rng, file):
    print("scaling", len(x))
    if pathlib.Path(file + ".slow").exists():
        pathlib.Path(f"{file}.{os.getpid()}").touch()
        while True:
            sum(range(10000))
    return x * by * rng.random()
def add(x, total):
    total *= 0.5
    total += x.sum()
"""


@pytest.fixture(autouse=True)
def _spec(folder: Path) -> None:
    (folder / "sum.yaml").write_text(SPEC)
    (folder / "sum_job.py").write_text(CODE)


def busy(folder: Path, count: int = 2) -> list[int]:
    """The workers, once they are in the middle of a batch."""
    for _ in range(3000):
        found = [int(p.suffix[1:]) for p in folder.glob("pid.*") if p.suffix != ".slow"]
        if len(found) == count:
            return found
        time.sleep(0.01)
    raise AssertionError("the workers never came to it")


def test_a_run_gives_the_bits_of_threads_and_may_change_to_them(call: Call, folder: Path) -> None:
    assert call("train", "sum.yaml", "--epochs", "2").code == 0
    (folder / "sum.yaml").write_text(SPEC.replace("processes: 2", "threads: 3"))
    again = call("train", "sum.yaml")
    assert again.code == 0, again.err
    assert "epoch.read.pipe.processes: removed, was 2" in again.err
    (folder / "sum.yaml").write_text(SPEC.replace("processes: 2", "threads: 1"))
    assert call("train", "sum.yaml", "--fresh").code == 0
    one, other = (load_blobs(folder / f"runs/{name}")["total"] for name in ("sum", "sum-2"))
    assert one.tobytes() == other.tobytes()


def test_what_workers_print_is_in_the_log(jobrun: Call, folder: Path) -> None:
    result = jobrun("train", "sum.yaml")
    assert result.code == 0, result.err
    assert result.out.count("scaling 4\n") == 20
    assert (folder / "runs/sum/log.txt").read_text().count("scaling 4\n") == 20
    assert "Traceback" not in result.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_all_processes_ends_the_run_and_it_goes_on(
    number: signal.Signals, code: int, start: Call, call: Call, folder: Path
) -> None:
    assert call("train", "sum.yaml", "--epochs", "1").code == 0
    (folder / "pid.slow").touch()
    process = start("resume", "runs/sum", "--epochs", "4")
    workers = busy(folder)
    for pid in (*workers, process.pid):  # as a service manager does
        os.kill(pid, number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    assert "Traceback" not in err
    assert out.splitlines()[-1] == "jobrun resume runs/sum"
    assert all(map(has_ended, workers))
    (folder / "pid.slow").unlink()
    assert call("resume", "runs/sum").code == 0
    assert call("train", "sum.yaml", "--fresh").code == 0
    one, other = (load_blobs(folder / f"runs/{name}")["total"] for name in ("sum", "sum-2"))
    assert one.tobytes() == other.tobytes()


def test_two_interrupts_leave_nothing(start: Call, folder: Path) -> None:
    (folder / "pid.slow").touch()
    process = start("train", "sum.yaml")
    workers = busy(folder)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert all(map(has_ended, workers))


def test_workers_end_when_the_run_is_killed(start: Call, folder: Path) -> None:
    (folder / "pid.slow").touch()
    process = start("train", "sum.yaml")
    workers = busy(folder)
    process.kill()
    process.communicate(timeout=120)
    assert all(map(has_ended, workers))


def test_a_worker_that_is_killed_ends_the_run_with_an_error(start: Call, folder: Path) -> None:
    (folder / "pid.slow").touch()
    process = start("train", "sum.yaml")
    workers = busy(folder)
    os.kill(workers[0], signal.SIGKILL)
    os.kill(workers[1], signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "task 'read/scale' of group 'epoch' in batch 1 failed: its worker process" in err
    assert "was killed by SIGKILL" in err
    assert "the system kills processes with SIGKILL when memory runs out" in err


def test_code_that_does_not_load_there_is_an_error_of_the_code(call: Call, folder: Path) -> None:
    text = f"import os, multiprocessing\nif os.getpid() != {os.getpid()}: 1 / 0\n"
    (folder / "sum_job.py").write_text(text + CODE)
    result = call("train", "sum.yaml")
    assert result.code == 4
    assert "a worker process cannot run sum_job:scale: the module 'sum_job' fails on" in result.err
    assert "1 / 0" in result.err


# Jobs made in Python.

SCRIPT = """\
import sys
import numpy as np
from jobrun import CheckpointManager, Job, JobRunner, LocalSession, Pipe, Task

def rows():
    return np.arange(12.0)

def scale(x, rng):
    return x * rng.random()

def add(x, total):
    return total + float(x.sum())

def main():
    with Job("script", seed=1) as job:
        with job.setup:
            Task(rows, out="rows")
        with job.init:
            Task(float, out="total")
        step = lambda x, rng: x
        Pipe(
            {"x": "rows"},
            batch=3,
            map=[Task(scale if "lambda" not in sys.argv else step, ["x", "rng"], out="x")],
            do=[Task(add, ["x", "total"], out="total")],
            processes=None if "threads" in sys.argv else 2,
        )
        job.stop(epochs=2)
    runner = JobRunner(job)
    runner.train(LocalSession())
    print("total", runner.blobs["total"].hex())

"""
GUARDED = SCRIPT + 'if __name__ == "__main__":\n    main()\n'


def python(folder: Path, *args: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args], cwd=folder, capture_output=True, text=True, timeout=60, **more
    )


@pytest.mark.parametrize("how", [("script.py",), ("-m", "script"), ("deep/script.py",)], ids=str)
def test_functions_of_a_script_are_found(folder: Path, how: tuple[str, ...]) -> None:
    (folder / "deep").mkdir()
    for path in ("script.py", "deep/script.py"):
        (folder / path).write_text(GUARDED)
    two, one = python(folder, *how), python(folder, *how, "threads")
    assert two.returncode == 0, two.stderr
    assert two.stderr == ""
    assert two.stdout == one.stdout
    assert two.stdout.startswith("total 0x")


def test_a_script_without_a_guard_is_told_to_have_one(folder: Path) -> None:
    (folder / "script.py").write_text(SCRIPT + "main()\n")
    done = python(folder, "script.py")
    assert done.returncode == 1
    last = done.stderr.rpartition("BindError: ")[2]
    assert "script.py runs a job when it is imported, which worker processes do" in last
    assert 'hint: put what it runs under: if __name__ == "__main__":' in last


def test_a_lambda_is_refused(folder: Path) -> None:
    (folder / "script.py").write_text(GUARDED)
    done = python(folder, "script.py", "lambda")
    assert "it is defined inside a function" in done.stderr


def test_a_function_from_a_prompt_is_refused(folder: Path) -> None:
    done = python(folder, "-", input=GUARDED)
    assert "a worker process cannot find __main__:scale: it is defined at a prompt" in done.stderr
