"""Tasks that change the current directory: no path of jobrun's is a relative one by then."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun import CheckpointManager, Job, JobRunner, LocalSession, Pipe, Task
from jobrun.checkpoint.read_blobs import load_blobs

Call = Callable[..., Any]
SPEC = """\
name: moving
setup:
  - {call: "moving:setup"}
init:
  - {call: "moving:zero", out: total}
  - {load: {run: other, blobs: {warm: start}}}
epoch:
  - name: read
    pipe: {from: data, file: rows.npz, batch: 2, batches_per_epoch: 2, processes: 1}
    map:
      - {call: "moving:twice", in: data, out: data}
    do:
      - {call: "moving:add", in: {total, data}, out: total}
  - {shell: "bash ${spec.dir}/size.sh", in: {x.txt: total}, out: {size.txt: size}}
  - {call: "moving:loss", in: {total}, out: loss}
exit:
  - {call: "moving:report", in: {total: "best:total"}, with: {file: "${run.dir}/report.txt"}}
metrics: {loss: min}
report: [{lines: lines.txt}]
stop: {epochs: 3}
upload: {to: copies/moving}
checkpoint: {keep: {last: 2, best: loss}}
"""
CODE = """\
import os, pathlib
WHEN, WHERE = "{when}", "{where}"
def move(when):
    if when == WHEN:
        os.chdir(WHERE)
move("import")
def setup():
    move("setup")
def zero():
    return 0.0
def twice(data):
    return 2 * data
def add(total, data):
    move("batch")
    return total + float(data.sum())
def loss(total):
    return 1 / total
def report(total, file):
    pathlib.Path(file).write_text(str(total))
"""


@pytest.mark.parametrize("when", ["import", "setup", "batch"])
def test_a_task_changes_the_directory(when: str, start: Call, folder: Path, tmp_path: Path) -> None:
    with CheckpointManager(folder / "other") as manager:
        manager.save(0, {"main": {"warm": 1.0}})
    (elsewhere := tmp_path / "elsewhere").mkdir()
    np.savez(folder / "rows.npz", data=np.arange(6.0))
    (folder / "size.sh").write_text("wc -c < x.txt > size.txt\n")
    (folder / "moving.py").write_text(CODE.format(when=when, where=elsewhere))
    (folder / "moving.yaml").write_text(SPEC)
    process = start("train", "moving.yaml")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert "warning" not in err
    assert not list(elsewhere.iterdir())
    assert "  checkpoint  runs/moving/checkpoint_3 (epoch 3)" in out
    assert "jobrun load-blobs runs/moving" in out
    (copy,) = (folder / "copies/moving").glob("checkpoint_3")
    assert load_blobs(copy) == load_blobs(folder / "runs/moving")
    assert (folder / "runs/moving/report.txt").exists()
    assert "epoch 3" in (folder / "lines.txt").read_text()
    events = [json.loads(line) for line in (folder / "runs/moving/events.jsonl").open()]
    assert events[-1]["event"] == "RunEnded"
    assert (folder / "runs/moving/metrics.csv").read_text().count("\n") == 4


def test_a_job_in_python_changes_the_directory(folder: Path) -> None:
    (elsewhere := folder / "elsewhere").mkdir()
    np.savez(folder / "rows.npz", data=np.arange(4.0))

    def zero() -> float:
        os.chdir(elsewhere)
        return 0.0

    def add(total: float, data: Any) -> float:
        return total + float(data.sum())

    step = Task(add, {"total": "total", "data": "data"}, out="total")
    with Job("sum", seed=7) as job:
        with job.init:
            Task(zero, out="total")
        with job.epoch:
            Pipe("data", file="rows.npz", batch=2, do=[step], name="read")
    job.stop(epochs=2)
    runner = JobRunner(job, CheckpointManager("runs/sum"))
    assert runner.train(LocalSession(threads=2)) == 2
    assert not list(elsewhere.iterdir())
    assert load_blobs(folder / "runs/sum")["total"] == 12
