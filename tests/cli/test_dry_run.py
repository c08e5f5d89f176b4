"""``train -n`` and ``resume -n``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

PLAN = """\
sum in runs/sum: would start from the beginning

sum
├─ init, once
│  └─ 1 start  → total●
└─ epoch, again and again
   ├─ 1 add  updates total●
   └─ 2 loss_of  total● → loss
● persists: it is in the checkpoints

session      local, 2 threads
persists     total
checkpoints  every epoch, at most 4 kept
stops        after epoch 3
"""


def test_the_plan_of_a_fresh_run(
    write: Callable[..., None], call: Callable[..., Any], folder: Path
) -> None:
    write()
    done = call("train", "sum.yaml", "-n", "--threads", "2")
    assert (done.code, done.out, done.err) == (0, PLAN, "")
    assert not (folder / "runs").exists()


def test_sizes_where_they_are_asked_for(
    write: Callable[..., None], call: Callable[..., Any], folder: Path
) -> None:
    write(("return 100", "import numpy\n    return numpy.zeros((10, 100))"))
    done = call("train", "sum.yaml", "-n", "--shapes")
    assert "checkpoints  every epoch, at most 4 kept; each 8 kB in 1 blob\n" in done.out
    assert "  total  float64  (10, 100)   8 kB\n" in done.out
    assert not (folder / "runs").exists()
    assert call("train", "sum.yaml", "--shapes").code == 2


def test_what_would_go_on(write: Callable[..., None], call: Callable[..., Any]) -> None:
    write()
    assert call("train", "sum.yaml").code == 0
    done = call("train", "sum.yaml", "-n")
    assert (done.code, done.out.splitlines()[0][:21]) == (0, "runs/sum is finished,")
    done = call("resume", "-n", "--epochs", "9")
    assert done.out.startswith("sum in runs/sum: would resume from checkpoint_3 (epoch 3)\n")
    assert "stops        after epoch 9 (epochs 3/9)\n" in done.out
    done = call("resume", "-n", "--epoch", "1")
    assert "later checkpoints would move to its attempts/" in done.out
    assert call("checkpoints", "path", "sum").out == "runs/sum/checkpoint_3\n"


def test_what_would_be_refused_is(write: Callable[..., None], call: Callable[..., Any]) -> None:
    write(("return 1 / total", "return 1 / (total < 103)"))
    assert call("train", "sum.yaml").code == 1
    done = call("train", "sum.yaml", "-n", "--set", "step=3")
    assert done.code == 2
    assert "--accept-changes" in done.err


def test_the_session_is_the_one_that_would_run_it_and_is_not_started(
    write: Callable[..., None], call: Callable[..., Any]
) -> None:
    """No scheduler is asked: the port is nobody's."""

    def session(*more: str) -> str:
        done = call("train", "sum.yaml", "-n", *more)
        assert (done.code, done.err) == (0, "")
        (line,) = (line for line in done.out.splitlines() if line.startswith("session  "))
        return line.removeprefix("session      ")

    write(("stop:", "session: {kind: dask, workers: 3}\nstop:"))
    assert session() == "dask, 3 workers on this machine, 1 thread each"
    assert session("--threads", "2") == "dask, 3 workers on this machine, 2 threads each"
    address = "tcp://127.0.0.1:1"
    assert session("--scheduler", address) == f"dask, the workers of {address}"
    more = ("--scheduler", address, "--threads", "2")
    assert session(*more) == f"dask, the workers of {address}, 2 threads a node"
    assert session("--set", "session.kind=local", "--threads", "1") == "local, 1 thread"
    planned = json.loads(call("train", "sum.yaml", "-n", "--json", "--scheduler", address).out)
    assert planned["session"] == f"dask, the workers of {address}"


def test_json(write: Callable[..., None], call: Callable[..., Any]) -> None:
    write()
    planned = json.loads(call("train", "sum.yaml", "-n", "--json").out)
    assert planned["action"] == "fresh"
    assert planned["persists"] == ["total"]
    assert [t["task"] for t in planned["tasks"]] == ["start", "add", "loss_of"]
    assert planned["conditions"][0]["earliest"] == 3
