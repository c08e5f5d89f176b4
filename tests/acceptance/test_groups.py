"""The run, step by step: which group runs when, what persists, and what a failure leaves."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from whole_runs import (
    blob_list,
    ids_and_epochs,
    names,
    records,
    start,
    state_of_disk,
    train,
    train_and_die,
)

from jobrun import CheckpointManager, CheckpointPolicy, Every, Job, Keep, Task, load_blobs
from jobrun.core.events import EpochFinished, GroupStarted, Warned
from jobrun.errors import LockedError, SpecError, TaskError, UsageError
from jobrun.runs.rundir import RunDir


class Log(list[str]):
    """What was called, in order."""

    def task(self, group: str, result: Any = None) -> Any:
        """A function for a task of ``group``; ``result`` is what it returns, or raises."""

        def call(*inputs: Any) -> Any:
            self.append(group)
            if isinstance(result, Exception):
                raise result
            return result

        call.__qualname__ = group
        return call


def add_one(total: np.ndarray) -> None:
    """Add one in place."""
    total += 1


def counting(log: Log, epochs: int = 3, **failing: Exception | None) -> Job:
    """A job with all groups that counts epochs in ``total``, from 0 on."""
    with Job("counting") as job:
        with job.setup:
            Task(log.task("setup", np.arange(4)), out="data")
        with job.init:
            Task(log.task("init", np.array([0])), out="total")
        Task(log.task("epoch", failing.get("epoch")), "data", name="watch")
        Task(add_one, update="total")
        with job.download:
            Task(log.task("download", failing.get("download") or np.array([7])), out="gathered")
        with job.exit:
            Task(log.task("exit", failing.get("exit")), ["total", "gathered"])
        job.stop(epochs=epochs)
    return job


def test_groups_run_in_order_and_init_only_once(run_dir: Path) -> None:
    log = Log()
    ended = train(counting(log), run_dir)
    assert log == ["setup", "init", "epoch", "epoch", "epoch", "download", "exit"]
    said = [e.group for e in ended.said(GroupStarted)]
    assert list(dict.fromkeys(said)) == ["setup", "init", "epoch", "download", "exit"]

    log.clear()
    train(counting(log), run_dir, 1)
    assert log == ["setup", "epoch", "epoch", "download", "exit"], "setup at every start, no init"


def test_deciding_loads_and_writes_nothing(run_dir: Path) -> None:
    log = Log()
    run = start(counting(log), run_dir)
    assert run.runner.choose().action == "fresh"
    assert not run_dir.exists()
    train_and_die(counting(log), run_dir, after=2)
    log.clear()
    before = state_of_disk(run_dir)
    assert start(counting(log), run_dir).runner.choose().action == "resume"
    assert start(counting(log, epochs=2), run_dir).runner.choose().action == "resume"
    assert state_of_disk(run_dir) == before
    assert log == []


def test_a_run_is_locked_before_setup(run_dir: Path) -> None:
    log = Log()
    train_and_die(counting(log), run_dir, after=1)
    log.clear()
    before = state_of_disk(run_dir)
    other = RunDir(run_dir)
    other.lock()
    try:
        with pytest.raises(LockedError) as caught:
            train(counting(log), run_dir)
    finally:
        other.unlock()
    assert caught.value.exit_code == 8
    assert log == []
    changed = {n for n, s in state_of_disk(run_dir).items() if before.get(n) != s}
    assert changed <= {"lock"}


def test_epoch_0_is_saved_after_init_and_a_resumed_state_never_again(run_dir: Path) -> None:
    ended = train(counting(Log()), run_dir)
    assert ended.saved == [0, 1, 2, 3]
    assert train(counting(Log(), epochs=5), run_dir).saved == [4, 5]
    assert ids_and_epochs(run_dir) == {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5}


def test_setup_is_never_checkpointed(run_dir: Path) -> None:
    train(counting(Log()), run_dir)
    assert {n for r in records(run_dir) for n in blob_list(run_dir, r)} == {"main:total"}


@pytest.mark.parametrize("group", ["init", "epoch", "download", "exit"])
def test_no_other_group_may_write_a_blob_of_setup(group: str) -> None:
    for access in ({"out": "data"}, {"update": "data"}, {"out": "data/x"}):
        job = counting(Log())
        with job.groups[group]:
            Task(len, name="intruder", **access)
        with pytest.raises(SpecError, match="belongs to 'setup'") as caught:
            train(job)
        assert "'intruder'" in caught.value.message


# What persists.


def persisting(include: tuple[str, ...] = ()) -> Job:
    """A job with blobs of every fate."""
    policy = CheckpointPolicy(include=include)
    with Job("persisting", metrics={"metric": "min"}, checkpoint=policy) as job:
        with job.init:
            Task(lambda: {"a": 1.0, "b": np.zeros(2)}, out="tree", name="init")
        Task(lambda tree: tree["a"] + 1, "tree", out="scratch", name="scratch")
        Task(lambda x: x * 2, "scratch", out="metric", name="metric")
        Task(lambda x: x > 100, "scratch", out="flag", name="flag")
        Task(lambda x: x * 3, "scratch", out="read_later", name="later")
        Task(lambda x: x * 3, "scratch", out="big.block@GRAD".replace("@", "-"), name="named")
        with job.exit:
            Task(lambda x: None, "read_later", name="reader")
        job.stop(epochs=2, when="metric < 0", blob="flag", patience={"metric": 5})
    return job


def test_what_init_writes_and_what_a_later_group_reads_persists_and_nothing_else(
    run_dir: Path,
) -> None:
    train(persisting(), run_dir)
    tree = ["main:tree", "main:tree/a", "main:tree/b"]
    lists = [blob_list(run_dir, r) for r in records(run_dir)]
    assert lists == [tree, [*tree, "main:read_later"], [*tree, "main:read_later"]]


def growing(epochs: int) -> Job:
    """``init`` makes a/b, and each epoch writes the whole of ``a`` anew."""
    with Job("growing") as job:
        with job.init:
            Task(lambda: np.zeros(2), out="a/b")
            Task(lambda: {"b": np.ones(2)}, out="first")
        Task(lambda a: {"b": a["b"] + 1, "c": a["b"].sum()}, "a", out="a", name="whole")
        job.stop(epochs=epochs)
    return job


def test_a_tree_that_an_epoch_writes_whole_persists_for_a_part_that_init_made(
    run_dir: Path,
) -> None:
    train(growing(2), run_dir)
    found = [load_blobs(run_dir, epoch=epoch) for epoch in range(3)]
    assert [sorted(blobs) for blobs in found] == [
        ["a/b", "first/b"],
        ["a/b", "a/c", "first/b"],
        ["a/b", "a/c", "first/b"],
    ]
    ended = train(growing(4), run_dir)
    assert (ended.blobs["a"]["b"].tolist(), ended.blobs["a/c"]) == ([4.0, 4.0], 6.0)


def test_include_adds_globs(run_dir: Path) -> None:
    train(persisting(include=("scr*", "big.*")), run_dir)
    assert {"scratch", "big.block-GRAD", "read_later"} < set(load_blobs(run_dir))
    assert "metric" not in load_blobs(run_dir)


def test_conditions_metrics_and_best_see_scalars_that_are_not_saved_as_blobs(
    run_dir: Path,
) -> None:
    train(persisting(), run_dir)
    last = records(run_dir)[-1]
    assert last.metrics == {"metric": 4.0, "flag": False}


# The verdict on resume.


def test_the_verdict_is_asked_before_any_epoch_on_resume(run_dir: Path) -> None:
    log = Log()
    train_and_die(counting(log), run_dir, after=3)
    log.clear()
    ended = train(counting(log), run_dir)
    assert (ended.epochs, ended.outcome.ran, ended.saved) == (3, 0, [])
    assert log == ["setup", "download", "exit"]


def test_the_verdict_is_not_asked_at_epoch_0_where_an_uninterrupted_run_does_not(
    run_dir: Path,
) -> None:
    def job() -> Job:
        with Job("flagged") as job:
            with job.init:
                Task(lambda: True, out="flag", name="raise_flag")
                Task(lambda: np.array([0]), out="total", name="make_total")
            Task(add_one, update="total")
            job.stop(blob="flag")
        return job

    assert train(job(), run_dir).epochs == 1
    resumed = train(job(), run_dir, 0)
    assert (resumed.epochs, resumed.outcome.ran) == (1, 1)


# The last epoch, and the end.


@pytest.mark.parametrize(("epochs", "saved"), [(4, [0, 2, 4]), (5, [0, 2, 4, 5]), (1, [0, 1])])
def test_the_last_epoch_is_always_saved_due_or_not(
    run_dir: Path, epochs: int, saved: list[int]
) -> None:
    job = counting(Log(), epochs)
    job.checkpoint = CheckpointPolicy(every=Every(2))
    assert train(job, run_dir).saved == saved


@pytest.mark.parametrize("group", ["download", "exit"])
def test_a_failure_after_the_loop_is_resumed_from_download(run_dir: Path, group: str) -> None:
    log = Log()
    with pytest.raises(TaskError, match=f"of group '{group}' failed: OSError: no room"):
        train(counting(log, **{group: OSError("no room")}), run_dir)
    assert log[-1] == group
    assert RunDir(run_dir).state().state == "error"

    log.clear()
    ended = train(counting(log), run_dir)
    assert log == ["setup", "download", "exit"]
    assert (ended.epochs, ended.outcome.ran, ended.saved) == (3, 0, [])
    assert ended.outcome.outcome == "finished"
    assert RunDir(run_dir).state().state == "finished"
    assert train(counting(log), run_dir).outcome.outcome == "nothing"


def test_a_crash_between_download_and_the_end_of_exit_is_resumed_from_download(
    run_dir: Path,
) -> None:
    class Crash(BaseException):
        pass

    log = Log()

    def crash(event: Any) -> None:
        if isinstance(event, GroupStarted) and event.group == "exit":
            raise Crash

    with pytest.raises(Crash):
        train(counting(log), run_dir, watch=crash)
    assert log[-1] == "download"
    log.clear()
    assert train(counting(log), run_dir).outcome.outcome == "finished"
    assert log == ["setup", "download", "exit"]


def test_a_failing_task_ends_the_run_and_later_groups_do_not_run(run_dir: Path) -> None:
    log = Log()
    train_and_die(counting(log), run_dir, after=1)
    log.clear()
    with pytest.raises(TaskError) as caught:
        train(counting(log, epoch=ZeroDivisionError("by hand")), run_dir)
    assert caught.value.exit_code == 1
    assert "task 'watch' of group 'epoch' failed: ZeroDivisionError: by hand" in str(caught.value)
    assert log == ["setup", "epoch"], "exit is not a finally"
    assert ids_and_epochs(run_dir) == {0: 0, 1: 1}, "earlier checkpoints stay"
    assert load_blobs(run_dir)["total"].tolist() == [1]
    assert train(counting(log), run_dir).epochs == 3


@pytest.mark.parametrize("group", ["setup", "init"])
def test_a_failure_before_the_loop_starts_afresh_the_next_time(run_dir: Path, group: str) -> None:
    log = Log()
    job = counting(log)
    job.groups[group].tasks[0].fn = log.task(group, ValueError("no"))
    with pytest.raises(TaskError, match=f"of group '{group}' failed"):
        train(job, run_dir)
    assert names(run_dir) == ["lock", "run.json"]
    ended = train(counting(log), run_dir)
    assert (ended.epochs, ended.saved) == (3, [0, 1, 2, 3])


def test_the_blobs_of_an_update_that_failed_are_not_shown(run_dir: Path) -> None:
    def half(total: np.ndarray) -> None:
        total += 1000
        raise ValueError("half way")

    job = counting(Log())
    with job.epoch:
        Task(half, update="total")
    run = start(job, run_dir)
    with pytest.raises(TaskError):
        run.runner.train(run.session)
    with pytest.raises(KeyError, match="being updated when its task failed"):
        run.blobs["total"]
    assert load_blobs(run_dir)["total"].tolist() == [0]


def test_download_without_a_manager() -> None:
    with Job("vectors") as job:
        with job.init:
            Task(lambda: (np.ones(8), np.ones(8)), out=["a", "b"], name="ones")
        Task(np.add, ["a", "b"], out="output")
        with job.download:
            Task(np.copy, "output", out="result")
        job.stop(epochs=1)
    ended = train(job)
    assert ended.epochs == 1
    assert ended.blobs["output"].tolist() == ended.blobs["result"].tolist() == [2.0] * 8


@pytest.mark.parametrize("threads", [1, 8])
def test_the_result_is_that_of_the_spec_from_top_to_bottom(run_dir: Path, threads: int) -> None:
    """Read after write, write after read and write after write, on trees and their leaves."""

    def put(value: float) -> Any:
        return lambda *inputs: value + sum(float(x) for x in inputs)

    def turn(t: dict[str, float], z: float) -> dict[str, float]:
        return {"x": t["y"] % 7, "y": z % 5}

    def job() -> Job:
        with Job("order") as job:
            with job.init:
                Task(lambda: {"x": 1.0, "y": 2.0}, out="t", name="tree")
                Task(lambda: [0.0], out="seen", name="seen")
            for number in range(20):
                Task(put(number), "t/x", out="t/y", name=f"y{number}")
                Task(put(number), "t/y", out="t/x", name=f"x{number}")
                Task(put(0), ["t/x", "t/y"], out="z", name=f"z{number}")
                Task(
                    lambda t, z: {"x": t["y"] % 7, "y": z % 5},
                    ["t", "z"],
                    out="t",
                    name=f"t{number}",
                )
            job.stop(epochs=3)
        return job

    x, y = 1.0, 2.0
    for _ in range(3):
        for number in range(20):
            y = number + x
            x = number + y
            x, y = y % 7, (x + y) % 5
    ended = train(job(), run_dir, threads=threads)
    assert ended.blobs["t"] == {"x": x, "y": y}


def test_every_n_epochs_keeps_its_place_in_the_order() -> None:
    """A task that is not due orders the ones around it all the same."""

    def slow(total: np.ndarray) -> None:
        time.sleep(0.002)
        total += 1

    def double(total: np.ndarray) -> None:
        total *= 2

    with Job("every") as job:
        with job.init:
            Task(lambda: np.array([0]), out="total", name="make")
        Task(slow, update="total")
        Task(double, update="total", every=3, name="rare")
        Task(double, update="total", name="always")
        job.stop(epochs=7)
    total = 0
    for epoch in range(1, 8):
        total = (total + 1) * (4 if epoch % 3 == 0 else 2)
    for threads in (1, 8):
        assert train(job, threads=threads).blobs["total"].tolist() == [total]


# Runners.


def test_a_job_in_which_nothing_persists_is_warned_about(run_dir: Path) -> None:
    with Job("forgetful") as job:
        Task(lambda epoch: epoch, "epoch", out="x", name="forget")
        job.stop(epochs=2)
    assert "no blob of this job persists" in train(job, run_dir).said(Warned)[0].message
    assert train(job).said(Warned) == [], "nothing is saved, so nothing is missed"
    assert train(counting(Log()), run_dir.parent / "other").said(Warned) == []


def test_a_task_that_changes_the_directory_moves_no_checkpoint(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = run_dir.parent / "here", run_dir.parent / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    job = counting(Log())
    job.epoch.tasks[0].fn = lambda data: os.chdir(there)
    ended = train(job, Path("run"))
    assert list(there.iterdir()) == []
    assert list(ids_and_epochs(here / "run").values()) == [0, 1, 2, 3]
    assert ended.outcome.checkpoint == str(here / "run" / "checkpoint_3")


def test_a_runner_that_was_interrupted_goes_on_when_trained_again(run_dir: Path) -> None:
    def interrupt(event: Any) -> None:
        if isinstance(event, EpochFinished) and event.epoch == 1:
            run.runner.interrupt("SIGINT")

    run = start(counting(Log()), run_dir, watch=interrupt)
    assert run.runner.train(run.session) == 1
    assert run.outcome.outcome == "interrupted"
    assert run.runner.train(run.session) == 3
    assert (run.outcome.outcome, run.outcome.ran) == ("finished", 2)
    assert run.runner.train(run.session) == 3
    assert run.outcome.outcome == "nothing"


def test_a_checkpoint_cannot_be_named_without_a_manager() -> None:
    with pytest.raises(UsageError, match="there is no CheckpointManager to find it"):
        train(counting(Log()), None, 2)


def test_one_manager_for_jobs_of_other_policies_keeps_what_each_of_them_says(run_dir: Path) -> None:
    manager = CheckpointManager(run_dir)
    job = counting(Log(), epochs=4)
    job.checkpoint = CheckpointPolicy(keep=Keep(last=1))
    train(job, manager=manager)
    assert ids_and_epochs(run_dir) == {4: 4}
    train(counting(Log(), epochs=7), manager=manager)
    assert ids_and_epochs(run_dir) == {4: 4, 5: 5, 6: 6, 7: 7}
