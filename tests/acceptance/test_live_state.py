"""Live state in whole runs: killed anywhere equals left alone, best, and what may change."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine import same
from live import CounterAdapter, build, build_params, trainer, weights
from whole_runs import (
    bytes_of_checkpoints,
    die_after_save,
    facts_of_checkpoints,
    records,
    start,
    train,
    train_and_die,
)

from jobrun import Best, CheckpointPolicy, Every, Job, Keep, Pipe, Task, load_blobs, log
from jobrun.core.events import CheckpointLoaded, Event, GroupStarted, Warned
from jobrun.engine.resume_policy import Request
from jobrun.errors import RunRefusedError, TaskError
from jobrun.session.base import Session

EPOCHS = 3


def job_of(epochs: int = EPOCHS, nodes: list[str] | None = None, **options: Any) -> Job:
    """Saved after each epoch and after each third batch."""
    policy = CheckpointPolicy(every=Every(epochs=1, batches=3))
    job = trainer(nodes, **{"checkpoint": policy, "metrics": {"loss": "min"}, **options})
    job.stop(epochs=epochs)
    return job


def assert_same(one: Path, other: Path) -> None:
    left, right = bytes_of_checkpoints(one), bytes_of_checkpoints(other)
    assert list(left) == list(right)
    assert [name for name in left if left[name] != right[name]] == []
    assert facts_of_checkpoints(one) == facts_of_checkpoints(other)


@pytest.mark.parametrize("nodes", [None, ["a", "b"]])
@pytest.mark.parametrize("deaths", [[0], [1, 2, 3], [4, 9], [5, 6, 11]])
def test_killed_at_any_checkpoints_equals_left_alone(
    tmp_path: Path, deaths: list[int], nodes: list[str] | None
) -> None:
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    train(job_of(nodes=nodes, metrics={}), alone, threads=4)
    for id in deaths:
        die_after_save(job_of(nodes=nodes, metrics={}), killed, id)
    train(job_of(nodes=nodes, metrics={}), killed, threads=2)
    assert_same(alone, killed)


@pytest.mark.parametrize("only", ["", "exit"])
def test_a_resume_that_is_interrupted_in_setup_restores_nothing(tmp_path: Path, only: str) -> None:
    """The objects are not there yet, and the run stays as it was."""
    alone, stopped = tmp_path / "alone", tmp_path / "stopped"
    train(job_of(), alone)
    if only:
        train(job_of(), stopped)
    else:
        die_after_save(job_of(), stopped, 5)

    def interrupt(event: Event) -> None:
        if isinstance(event, GroupStarted) and event.group == "setup":
            run.runner.interrupt("SIGINT")

    before = [r.id for r in records(stopped)]
    run = start(job_of(), stopped, watch=interrupt, request=Request(only=only))
    run.runner.train(run.session)
    assert (run.outcome.outcome, run.outcome.exit_code) == ("interrupted", 130)
    assert run.outcome.on_disk == records(stopped)[-1].epoch
    assert not run.said(CheckpointLoaded)
    assert [r.id for r in records(stopped)] == before
    train(job_of(), stopped)
    assert_same(alone, stopped)


def test_on_a_cluster_it_is_the_same(tmp_path: Path, sessions: Callable[[str], Session]) -> None:
    alone, killed = tmp_path / "alone", tmp_path / "killed"

    def job() -> Job:
        state = {"net": None, "opt": None, "counter": "live:CounterAdapter", "params": None}
        return job_of(
            nodes=["a", "b"],
            metrics={},
            state={**state, "rng.numpy": None},
            checkpoint=CheckpointPolicy(every=Every(epochs=1)),
        )

    train(job(), alone)
    die_after_save(job(), killed, 1, session=sessions("dask"))
    train(job(), killed, session=sessions("dask"))
    assert_same(alone, killed)


def draw_and_tell() -> list[float]:
    """Draws while the cluster measures a message of many events, and samples them for that."""
    drawn = []
    for number in range(8):
        for step in range(30):
            log(number=number, step=step)
        drawn.append(random.random())
        time.sleep(0.1)
    return drawn


def test_messages_of_a_cluster_draw_nothing_from_the_generators_of_tasks(
    tmp_path: Path, sessions: Callable[[str], Session]
) -> None:
    for kind in ("1 threads", "dask"):
        with Job("draws", seed=3, state=["rng.python"]) as job:
            Task(draw_and_tell, out="drawn")
            job.stop(epochs=1)
        train(job, tmp_path / kind, session=sessions(kind))
    assert_same(tmp_path / "1 threads", tmp_path / "dask")


SPEC = """\
name: live
seed: 4
setup:
  - {call: "mine:rows", out: data}
  - {call: "live:build", out: [net, opt]}
  - {call: "live:Counter", out: counter}
  - {call: "live:build_params", out: params}
state: [net, opt, params, rng.python, rng.numpy, {counter: "live:CounterAdapter"}]
epoch:
  - name: train
    pipe: {from: {x: data}, batch: 2, threads: 2}
    map: [{call: "mine:noisy", in: x, out: x}]
    do:
      - {call: "mine:slow_train", in: {x}, update: {net, opt}, out: loss}
      - {call: "live:count", update: counter}
      - {call: "live:move", in: {x, params}, out: params}
metrics: {loss: min}
stop: {epochs: 6}
checkpoint: {every: {epochs: 1, batches: 1}}
"""

CODE = """\
import random, time
import numpy as np

def rows():
    return np.arange(12.0)

def noisy(x):
    return x + np.random.standard_normal(len(x)) + random.random()

def slow_train(x, net, opt):
    time.sleep(0.002)
    return opt.step(x + random.random() * np.random.random())
"""


def test_killed_at_any_instant_equals_left_alone(memory: Path) -> None:
    """SIGKILL to a process of its own, again and again, inside epochs and while it saves."""
    folder = memory / "live-kills"
    folder.mkdir()
    (folder / "live.yaml").write_text(SPEC)
    (folder / "mine.py").write_text(CODE)
    support = str(Path(__file__).parent.parent / "support")
    env = {k: v for k, v in os.environ.items() if not k.startswith("JOBRUN_")}
    env["PYTHONPATH"] = support

    def command(runs: str) -> list[str]:
        place = ["--runs-dir", str(folder / runs)]
        return [sys.executable, "-m", "jobrun", "train", str(folder / "live.yaml"), *place]

    done = subprocess.run(command("alone"), env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    chance = random.Random(5)
    for _ in range(4):
        process = subprocess.Popen(
            command("killed"), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _wait_for_a_checkpoint(folder / "killed", process)
        time.sleep(chance.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = subprocess.run(command("killed"), env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    last = [max(r.id for r in records(folder / name / "live")) for name in ("alone", "killed")]
    found = [load_blobs(folder / name / "live") for name in ("alone", "killed")]
    assert same(found[0], found[1])
    assert found[0]["counter/n"] == 36
    assert last[0] == 36


def _wait_for_a_checkpoint(runs: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait for a checkpoint that was not there before."""
    before = {p.name for p in runs.glob("live/checkpoint_*")}
    end = time.monotonic() + 30
    while {p.name for p in runs.glob("live/checkpoint_*")} <= before:
        if process.poll() is not None or time.monotonic() > end:
            return
        time.sleep(0.002)


def test_best_objects_after_the_loop(tmp_path: Path) -> None:
    seen: list[Any] = []

    def look(best: Any, net: Any) -> None:
        seen.append((best.calls, net.calls, best.w.copy()))

    job = job_of(
        checkpoint=CheckpointPolicy(keep=Keep(best=Best("score"))), metrics={"score": "max"}
    )
    with job.epoch:
        Task(
            lambda weights, epoch: float(epoch == 2),
            ["weights", "epoch"],
            out="score",
            name="score",
        )
    with job.exit:
        Task(look, ["best:net", "net"], name="see")
    train(job, tmp_path)
    ((best, now, w),) = seen
    assert (best, now) == (20, 30)
    saved = load_blobs(tmp_path, ["net"], epoch=2)["net"]
    assert np.array_equal(saved["w"], w)


def test_a_task_that_fails_leaves_the_checkpoint_of_before(tmp_path: Path) -> None:
    def broken(net: Any, epoch: int) -> None:
        net.w += 1e9
        if epoch == 2:
            raise ValueError("broken")

    def job() -> Job:
        made = job_of()
        with made.epoch:
            Task(broken, {"epoch": "epoch"}, update={"net": "net"}, name="break")
        return made

    with pytest.raises(TaskError, match="broken"):
        train(job(), tmp_path)
    assert max(r.epoch for r in records(tmp_path)) == 1


# What may change between two starts.


def resume(job: Job, run_dir: Path, *, accept: bool = False) -> Any:
    return train(job, run_dir, request=Request(accept_changes=accept))


def pair(state: list[str], epochs: int = 3) -> Job:
    """A network and its optimizer, which a task changes though it only reads it."""
    job = Job("pair", state=state, constant=[n for n in ("net", "opt") if n not in state])
    with job.setup:
        Task(build, out=["net", "opt"])
    with job.epoch:
        Task(one_step, ["opt"], out="loss", name="step")
    job.stop(epochs=epochs)
    return job


def one_step(opt: Any) -> float:
    return float(opt.step(np.ones(2)))


def test_what_is_new_in_state_starts_as_setup_made_it(tmp_path: Path) -> None:
    train_and_die(pair(["net"]), tmp_path, 1)
    with pytest.raises(RunRefusedError, match=r"state\.opt: added"):
        resume(pair(["net", "opt"]), tmp_path)
    ended = resume(pair(["net", "opt"]), tmp_path, accept=True)
    assert ended.session.blob("net").calls == 3
    expected = build()[1]
    expected.step(np.ones(2))
    expected.momenta = {}
    expected.step(np.ones(2))
    expected.step(np.ones(2))
    assert np.array_equal(ended.session.blob("opt").momenta[0], expected.momenta[0])


def test_what_is_removed_from_state_is_not_restored(tmp_path: Path) -> None:
    train_and_die(pair(["net", "opt"]), tmp_path, 1)
    with pytest.raises(RunRefusedError, match=r"state\.opt: removed"):
        resume(pair(["net"]), tmp_path)
    ended = resume(pair(["net"]), tmp_path, accept=True)
    assert {name.partition("/")[0] for name in load_blobs(tmp_path)} == {"net"}
    assert ended.session.blob("net").calls == 3


def test_another_adapter_cannot_be_accepted(tmp_path: Path) -> None:
    class Other(CounterAdapter):
        name = "tests.Other"

    state = {"net": None, "opt": None, "params": None}
    train_and_die(job_of(), tmp_path, 1)
    with pytest.raises(RunRefusedError, match="another adapter"):
        resume(job_of(state={**state, "counter": Other()}), tmp_path, accept=True)


def test_constants_are_free(tmp_path: Path) -> None:
    train_and_die(job_of(), tmp_path, 1)
    again = job_of(constant=["data"])
    assert resume(again, tmp_path).epochs == EPOCHS


def test_another_shape_at_setup_is_refused_by_its_place(tmp_path: Path) -> None:
    def other() -> dict[str, Any]:
        made = build_params()
        return {**made, "layer": made["layer"]._replace(w=np.zeros(4))}

    train_and_die(job_of(), tmp_path, 1)
    job = job_of()
    next(t for t in job.setup if t.name == "build_params").fn = other
    with pytest.raises(TaskError) as caught:
        resume(job, tmp_path, accept=True)
    assert "'params'" in str(caught.value)
    assert "at ['layer'].w, expected float64[4], got float64[3]" in str(caught.value)


def test_retries_are_announced_once(tmp_path: Path) -> None:
    job = job_of()
    with job.epoch:
        Task(weights, "net", out="w", name="again", retries=1)
    ended = train(job, tmp_path)
    said = [e.message for e in ended.said(Warned) if "copied before each call" in e.message]
    assert len(said) == 1
    assert "task 'again' of group 'epoch' has retries: the state of 'net' and 'opt'" in said[0]


class Anchor:
    """Holds the array that a tree had when ``setup`` made it."""

    def __init__(self, tree: dict[str, Any]) -> None:
        self.w = tree["w"]


def _held_tree() -> tuple[dict[str, Any], Momentum, Anchor]:
    tree = {"w": np.ones(3)}
    return tree, Momentum(tree), Anchor(tree)


def _move_to_new(params: dict[str, Any], anchor: Anchor) -> dict[str, Any]:
    return {"w": params["w"] * 1.5 + anchor.w}


def _move_in_place(params: dict[str, Any], anchor: Anchor) -> None:
    params["w"] += 0.5 * anchor.w  # the same array


@pytest.mark.parametrize("in_place", [False, True])
def test_who_holds_an_array_of_a_tree_has_on_a_resume_what_it_had(
    in_place: bool, tmp_path: Path
) -> None:
    """The trained values where they were changed in place, the first ones where they were not."""

    def job(epochs: int) -> Job:
        with Job("held", state=["params", "opt"], constant=["anchor"]) as made:
            with made.setup:
                Task(_held_tree, out=["params", "opt", "anchor"])
            with made.epoch:
                if in_place:
                    held = {"anchor": "anchor"}
                    Task(_move_in_place, held, update={"params": "params"}, name="move")
                else:
                    Task(_move_to_new, ["params", "anchor"], out="params", name="move")
                Task(weights_of, "params", out="w")
            with made.exit:
                Task(np.sum, "w", out="sum", name="sum")
            made.stop(epochs=epochs)
        return made

    alone = train(job(4), tmp_path / "alone")
    for epochs in (1, 2, 4):
        parts = train(job(epochs), tmp_path / "parts")
    assert parts.blobs["w"].tolist() == alone.blobs["w"].tolist()
    assert bytes_of_checkpoints(tmp_path / "parts") == bytes_of_checkpoints(tmp_path / "alone")


def weights_of(params: dict[str, Any]) -> Any:
    return params["w"].copy()


class Momentum:
    """An optimizer that changes the arrays of its tree in place."""

    def __init__(self, tree: dict[str, Any]) -> None:
        self.tree, self.v = tree, np.zeros(3)

    def step(self) -> None:
        self.v += 1
        self.tree["w"] += self.v

    def state_dict(self) -> dict[str, Any]:
        return {"v": self.v}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.v = np.array(state["v"])


def test_an_optimizer_that_was_replaced_with_its_tree_trains_it_on_a_resume(tmp_path: Path) -> None:
    def build() -> tuple[dict[str, Any], Momentum]:
        tree = {"w": np.ones(3)}
        return tree, Momentum(tree)

    def job(epochs: int) -> Job:
        with Job("pair", state=["params", "opt"]) as made:
            with made.setup:
                Task(build, out=["params", "opt"])
            with made.init:
                Task(build, out=["params", "opt"], name="again")
            with made.epoch:
                Task(lambda params, opt: opt.step(), update=["params", "opt"], name="step")
                Task(weights_of, "params", out="w")
            with made.exit:
                Task(np.sum, "w", out="sum", name="sum")
            made.stop(epochs=epochs)
        return made

    alone = train(job(3), tmp_path / "alone")
    train(job(1), tmp_path / "parts")
    parts = train(job(3), tmp_path / "parts")
    assert parts.blobs["w"].tolist() == alone.blobs["w"].tolist() == [7.0] * 3


def partly_replaced() -> tuple[dict[str, Any], dict[str, Any], Callable[[], float]]:
    """Make a tree with an array that a closure holds, and one that another tree holds too."""
    w, shared = np.zeros(2), np.ones(3)
    return {"w": w, "m": np.zeros(2), "n": 0, "shared": shared}, {"s": shared}, lambda: w.sum()


def partly_replacing(x: Any, tree: dict[str, Any], other: Any, look: Any) -> tuple[Any, float]:
    """Change two arrays in place, and replace another array and a number."""
    tree["w"] += x.mean()
    tree["shared"] *= 0.9
    made = {**tree, "m": tree["m"] + look(), "n": tree["n"] + 1}
    return made, float(look() + other["s"].sum() + made["m"].sum() + made["n"])


@pytest.mark.parametrize("deaths", [[2], [1, 4]])
def test_a_tree_that_is_partly_replaced_and_partly_changed_in_place(
    tmp_path: Path, deaths: list[int]
) -> None:
    """What was changed in place is what others hold, after a resume too."""

    def job() -> Job:
        policy = CheckpointPolicy(every=Every(batches=2))
        made = Job("partly", seed=1, state=["tree", "other"], checkpoint=policy)
        made.metrics = {"loss": None}
        with made.setup:
            Task(lambda: np.arange(12.0), out="rows", name="rows")
            Task(partly_replaced, out=["tree", "other", "look"], name="make")
        with made.epoch:
            given = {"x": "x", "tree": "tree", "other": "other", "look": "look"}
            do = [Task(partly_replacing, given, out=["tree", "loss"], name="step")]
            Pipe({"x": "rows"}, batch=3, do=do, name="pipe")
        made.stop(epochs=EPOCHS)
        return made

    train(job(), tmp_path / "alone")
    for id in deaths:
        die_after_save(job(), tmp_path / "killed", id)
    train(job(), tmp_path / "killed")
    assert_same(tmp_path / "alone", tmp_path / "killed")
