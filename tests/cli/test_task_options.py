"""Timeouts, retries and loads in whole runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun.checkpoint.read_blobs import load_blobs

Call = Callable[..., Any]

SPEC = """\
name: slow
init:
  - {call: slow_job:start, out: u}
epoch:
  - {call: slow_job:step, update: u, timeout: 0.5, retries: 2}
stop: {epochs: 3}
"""
CODE = """\
import pathlib, time
import numpy as np
here = pathlib.Path(__file__).parent
def start():
    return np.zeros(1)
def step(u):
    u += 1
    if u[0] == 3 and not (here / "go").exists():
        time.sleep(1000)
    if u[0] == 2 and not (here / "tried").exists():
        (here / "tried").touch()
        raise ConnectionError("no answer")
"""


@pytest.fixture(autouse=True)
def _spec(folder: Path) -> None:
    (folder / "slow.yaml").write_text(SPEC)
    (folder / "slow_job.py").write_text(CODE)


def test_a_function_that_is_stuck_does_not_hold_the_run(call: Call, folder: Path) -> None:
    result = call("train", "slow.yaml")
    assert result.code == 1
    warning = "warning: task 'step' of group 'epoch' failed: ConnectionError: no answer; try 2 of 3"
    assert warning in result.err
    assert "task 'step' of group 'epoch' failed: it exceeded its timeout" in result.err
    assert "a thread cannot be killed: it runs on until this process ends" in result.err
    assert load_blobs(folder / "runs/slow")["u"].tolist() == [2]
    (folder / "go").touch()
    (folder / "slow.yaml").write_text(SPEC.replace("timeout: 0.5", "timeout: 30"))
    again = call("train", "slow.yaml")
    assert again.code == 0, again.err
    assert "epoch.step.timeout: 0.5 -> 30.0" in again.err
    assert load_blobs(folder / "runs/slow")["u"].tolist() == [3]


def test_a_run_starts_from_blobs_of_another(call: Call, folder: Path) -> None:
    (folder / "go").touch()
    assert call("train", "slow.yaml").code == 0
    spec = SPEC.replace("name: slow", "name: warm").replace(
        "{call: slow_job:start, out: u}", "{load: {run: runs/slow, epoch: 1, blobs: u}}"
    )
    (folder / "warm.yaml").write_text(spec)
    result = call("train", "warm.yaml")
    assert result.code == 0, result.err
    assert load_blobs(folder / "runs/warm", epoch=0)["u"].tolist() == [1]
    assert load_blobs(folder / "runs/warm")["u"].tolist() == [4]


ARANGE = """\
name: counts
epoch:
  - {call: numpy:arange, with: {start: 0, stop: 10}, out: counts}
  - {call: numpy:sum, in: counts, out: total}
metrics: {total: null}
checkpoint: {include: [counts]}
stop: {epochs: 1}
"""


def test_a_function_in_c_decides_itself_what_it_accepts(call: Call, folder: Path) -> None:
    (folder / "counts.yaml").write_text(ARANGE)
    assert call("validate", "--import", "counts.yaml").code == 0
    result = call("train", "counts.yaml")
    assert result.code == 0, result.err
    assert load_blobs(folder / "runs/counts")["counts"].tolist() == list(range(10))


def test_a_call_that_a_function_in_c_refuses_has_its_place(call: Call, folder: Path) -> None:
    (folder / "counts.yaml").write_text(ARANGE.replace("start: 0", "begin: 0"))
    result = call("train", "counts.yaml")
    assert result.code == 1
    assert "counts.yaml:3:" in result.err
    assert "task 'arange' of group 'epoch' failed: TypeError: arange()" in result.err
    assert "'begin'" in result.err
