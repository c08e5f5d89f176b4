"""A smoke run: what it shortens, and what it finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobrun.model.job import Job, Pipe, Task
from jobrun.model.policy import Best, CheckpointPolicy, Every, Keep, Upload
from jobrun.tools.smoke import Smoke, shorten, smoke

SPEC = """\
name: walk
seed: 3
setup:
  - {call: "walk:rows", out: rows}
init:
  - {call: "walk:start", out: total}
epoch:
  - name: train
    pipe: {from: {x: rows}, batch: 2, shuffle: true}
    do:
      - {call: "walk:add", in: {x, rng}, update: {total}, out: loss}
metrics: {loss: min}
stop: {epochs: 50}
exit:
  - {call: "walk:end", in: {total}}
"""
CODE = """\
import numpy as np

SEEN = []

def rows():
    return np.arange(100.0)

def start():
    return np.zeros(3)

def add(x, rng, total):
    total += x.sum() * rng.random(3)
    return float(total[0])

def end(total):
    print("total", total)
"""


def run(folder: Path, *replaced: tuple[str, str]) -> Smoke:
    spec, code = SPEC, CODE
    for old, new in replaced:
        assert old in spec or old in code
        spec, code = spec.replace(old, new), code.replace(old, new)
    (folder / "walk.yaml").write_text(spec)
    (folder / "walk.py").write_text(code)
    runs = folder / "runs"
    runs.mkdir()
    return smoke(str(folder / "walk.yaml"), (), runs, epochs=2, batches=3)


def pipe(**options: object) -> Pipe:
    step = Task("m:f", in_="x", out="y")
    return Pipe(from_={"x": "x"}, do=[step], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, 5),
        ({"batches_per_epoch": 3}, 3),
        ({"batches_per_epoch": 9}, 5),
        ({"batches_per_epoch": "short"}, 2),
        ({"batches_per_epoch": "unknown"}, "unknown"),
    ],
)
def test_pipes_are_shortened(options: dict[str, object], limit: object) -> None:
    with Job("j", vars={"short": 2}) as job:
        made = pipe(**options)
    shorten(job, 5, save_inside=False)
    assert made.reader.batches.batches_per_epoch == limit


def test_every_epoch_is_saved_and_nothing_is_removed() -> None:
    job = Job("j", checkpoint=CheckpointPolicy(Every(7), Keep(last=1, best=Best("loss"))))
    shorten(job, 5, save_inside=True)
    policy = job.checkpoint
    assert policy is not None
    assert policy.every == Every(epochs=1, batches=1)
    assert policy.keep.best == Best("loss")
    assert (policy.keep.last or 0) > 1000
    job = Job("j", checkpoint=None)
    shorten(job, 5, save_inside=False)
    assert job.checkpoint is not None


def test_nobody_else_is_told_of_it() -> None:
    job = Job("j", checkpoint=CheckpointPolicy(catalogue="site:Record"), upload=Upload("s3://b/j"))
    shorten(job, 5, save_inside=False)
    assert job.upload is None
    assert job.checkpoint is not None
    assert job.checkpoint.catalogue is None


def test_a_job_that_resumes_to_its_bits(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.ok
    assert result.exit_code == 0
    assert [(s.name, s.status) for s in result.steps] == [
        ("spec", "ok"),
        ("train", "ok"),
        ("kill and resume", "ok"),
        ("compare", "ok"),
    ]
    assert "after a save of an epoch and after a save inside one" in result.steps[2].text
    assert result.steps[3].text == "1 blob the same, bit for bit"


def test_state_outside_of_the_blobs_is_found(tmp_path: Path) -> None:
    hidden = "SEEN.append(1)\n    total += len(SEEN) + x.sum() * rng.random(3)"
    result = run(tmp_path, ("total += x.sum() * rng.random(3)", hidden))
    assert result.exit_code == 1
    (failed,) = (s for s in result.steps if s.status == "failed")
    assert failed.name == "compare"
    assert "total: 3 of 3 elements differ, by at most" in failed.details
    assert "metrics" in failed.details


def test_an_input_that_is_changed_silently_is_found(tmp_path: Path) -> None:
    change = (
        "import ctypes\n    ctypes.cast(total.ctypes.data, ctypes.POINTER(ctypes.c_double))[0] += 1"
    )
    result = run(tmp_path, ('print("total", total)', change))
    assert result.steps[-1].name == "train"
    assert result.steps[-1].status == "failed"
    assert result.exit_code == 1


def test_a_failing_task_shows_the_users_own_lines(tmp_path: Path) -> None:
    result = run(tmp_path, ('print("total", total)', "raise KeyError('gone')"))
    failed = result.steps[-1]
    assert (failed.name, failed.status, result.exit_code) == ("train", "failed", 1)
    assert "KeyError: 'gone'" in failed.text
    assert "raise KeyError('gone')" in failed.details


def test_a_job_that_ends_as_a_failure(tmp_path: Path) -> None:
    result = run(tmp_path, ("stop: {epochs: 50}", "stop: {epochs: 50}\nfail: {when: loss > 0}"))
    assert (result.steps[-1].name, result.exit_code) == ("train", 7)


@pytest.mark.parametrize(
    ("old", "new", "code"), [("out: total", "uot: total", 3), ("walk:start", "walk:begin", 4)]
)
def test_a_wrong_spec(old: str, new: str, code: int, tmp_path: Path) -> None:
    result = run(tmp_path, (old, new))
    assert [(s.name, s.status) for s in result.steps] == [("spec", "failed")]
    assert result.exit_code == code


def test_a_run_that_something_else_kills(tmp_path: Path) -> None:
    kill = (
        "import os, pathlib\n    mark = pathlib.Path(__file__).with_name('ended')\n"
        "    os.kill(os.getpid(), 9) if mark.exists() else mark.touch()"
    )
    result = run(tmp_path, ('print("total", total)', kill))
    failed = result.steps[-1]
    assert (failed.name, failed.status, result.exit_code) == ("kill and resume", "failed", 1)
    assert failed.text == "it ended with exit code -9"


def test_a_run_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobrun.tools.smoke._TIMEOUT", 0.01)
    result = run(tmp_path, ("return np.zeros(3)", "import time; return time.sleep(3600)"))
    failed = result.steps[-1]
    assert (failed.name, failed.status, result.exit_code) == ("train", "failed", 1)
    assert failed.text == "it did not end within 0.01 s"
