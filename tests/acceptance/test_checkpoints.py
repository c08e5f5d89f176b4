"""Checkpoints of whole runs: ids, history, what is whole, what is kept, and the best one."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference_job import TOTALS, reference
from whole_runs import (
    Died,
    Ended,
    ids_and_epochs,
    names,
    records,
    start,
    state_of_disk,
    train,
    train_and_die,
)

from jobrun import (
    Best,
    CheckpointManager,
    CheckpointPolicy,
    Every,
    Job,
    JobrunError,
    Keep,
    Task,
    load_blobs,
)
from jobrun.checkpoint.catalog import Catalog
from jobrun.checkpoint.loading import newest
from jobrun.checkpoint.publish import discard
from jobrun.core.events import (
    CheckpointLoaded,
    CheckpointSaved,
    CheckpointSkipped,
    CheckpointsRemoved,
    GroupStarted,
    LeftoversCleaned,
)
from jobrun.engine.resume_policy import Request
from jobrun.errors import DamagedError, NotFoundError, TaskError, UsageError
from jobrun.report import Broadcast, RunFiles
from jobrun.report.events_file import read_events
from jobrun.runs.rundir import RunDir
from jobrun.storage.fs import Fs
from jobrun.storage.lock import Lock


def counting(epochs: int, **policy: Any) -> Job:
    """A job whose ``total`` is the number of epochs."""
    with Job("counting", checkpoint=CheckpointPolicy(**policy)) as job:
        with job.init:
            Task(lambda: np.array([0]), out="total", name="zero")
        Task(lambda total: total + 1, "total", out="total", name="count")
        job.stop(epochs=epochs)
    return job


# Ids and history.


def test_ids_are_serial_and_a_checkpoint_knows_the_epochs_completed(run_dir: Path) -> None:
    train(counting(7, every=Every(3)), run_dir)
    assert ids_and_epochs(run_dir) == {0: 0, 1: 3, 2: 6, 3: 7}
    for id, epoch in ids_and_epochs(run_dir).items():
        assert load_blobs(run_dir, id=id) == load_blobs(run_dir, epoch=epoch) == {"total": [epoch]}


def test_a_rewind_moves_later_checkpoints_to_attempts_1_and_the_next_id_is_6(run_dir: Path) -> None:
    train(counting(5), run_dir)
    before = state_of_disk(run_dir)
    ended = train(counting(5), run_dir, 2)
    assert [(e.id, e.epoch) for e in ended.said(CheckpointSaved)] == [(6, 3), (7, 4), (8, 5)]
    assert ids_and_epochs(run_dir) == {0: 0, 1: 1, 2: 2, 6: 3, 7: 4, 8: 5}
    assert sorted(p.name for p in (run_dir / "attempts").iterdir()) == ["1"]
    assert ids_and_epochs(run_dir / "attempts" / "1") == {3: 3, 4: 4, 5: 5}
    after = state_of_disk(run_dir)
    for id in range(6):
        old, new = f"checkpoint_{id}", f"{'attempts/1/' if id > 2 else ''}checkpoint_{id}"
        files = [n for n in before if n.startswith(f"{old}/")]
        assert [after[n.replace(old, new)] for n in files] == [before[n] for n in files]

    train(counting(5), run_dir, 0)
    assert ids_and_epochs(run_dir) == {0: 0, 9: 1, 10: 2, 11: 3, 12: 4, 13: 5}
    assert ids_and_epochs(run_dir / "attempts" / "2") == {1: 1, 2: 2, 6: 3, 7: 4, 8: 5}


def test_an_id_is_not_given_again_when_all_checkpoints_are_gone(run_dir: Path) -> None:
    train(counting(3), run_dir)
    for id in range(4):
        shutil.rmtree(run_dir / f"checkpoint_{id}")
    train(counting(3), run_dir, request=Request(fresh=True))
    assert ids_and_epochs(run_dir) == {4: 0, 5: 1, 6: 2, 7: 3}


def test_a_fresh_start_in_the_same_directory_moves_the_old_history_away(run_dir: Path) -> None:
    train(counting(2), run_dir)
    ended = train(counting(2), run_dir, request=Request(fresh=True))
    assert (ended.epochs, ended.outcome.ran) == (2, 2)
    assert ids_and_epochs(run_dir) == {3: 0, 4: 1, 5: 2}
    assert ids_and_epochs(run_dir / "attempts" / "1") == {0: 0, 1: 1, 2: 2}


def test_id_names_any_checkpoint(run_dir: Path) -> None:
    train(counting(5, every=Every(2)), run_dir)
    ended = train(counting(5, every=Every(2)), run_dir, request=Request(id=1))
    assert [e.epoch for e in ended.said(CheckpointLoaded)] == [2]
    assert ids_and_epochs(run_dir) == {0: 0, 1: 2, 4: 4, 5: 5}
    with pytest.raises(NotFoundError, match="no checkpoint of id 2; there are 0, 1, 4, 5"):
        train(counting(5, every=Every(2)), run_dir, request=Request(id=2))


# Whole, latest, stray.


def test_success_is_what_makes_it_whole_and_holds_the_time_in_utc(run_dir: Path) -> None:
    train(counting(2), run_dir)
    for record in records(run_dir):
        time = datetime.fromisoformat(record.time)
        assert time.utcoffset() == timedelta(0)
    times = [r.time for r in records(run_dir)]
    assert times == sorted(times)
    (run_dir / "checkpoint_2" / "_SUCCESS").unlink()
    assert ids_and_epochs(run_dir) == {0: 0, 1: 1}
    assert train(counting(2), run_dir).outcome.ran == 1


def test_latest_is_the_highest_whole_id_not_by_string_order_nor_by_time(run_dir: Path) -> None:
    train(counting(11), run_dir)
    for id in range(12):
        for path in (run_dir / f"checkpoint_{id}", run_dir / f"checkpoint_{id}" / "_SUCCESS"):
            os.utime(path, (10**9 - id, 10**9 - id))
    shutil.rmtree(run_dir / "checkpoint_11" / "main")
    latest = CheckpointManager(run_dir).latest()
    assert latest is not None
    assert latest.id == 10
    with pytest.raises(DamagedError, match="checkpoint_11/main"):
        load_blobs(run_dir)
    assert load_blobs(run_dir, fallback=True)["total"].tolist() == [10]


def test_cp_r_does_not_change_the_latest(run_dir: Path) -> None:
    train(counting(3), run_dir)
    shutil.copytree(run_dir / "checkpoint_1", run_dir / "checkpoint_1 (copy)")
    shutil.copytree(run_dir / "checkpoint_1", run_dir / "checkpoint_99")
    shutil.copytree(run_dir, run_dir.parent / "other")
    for path in (run_dir, run_dir.parent / "other"):
        assert ids_and_epochs(path) == {0: 0, 1: 1, 2: 2, 3: 3}
        assert load_blobs(path)["total"].tolist() == [3]
    ended = train(counting(5), run_dir.parent / "other")
    assert (ended.epochs, ended.outcome.ran) == (5, 2)


STRAYS = (
    ".DS_Store",
    "notes.txt",
    "checkpoint_x/",
    "checkpoint_",
    "checkpoint_007",
    "checkpoint_-1",
    "checkpoint_1_old/",
    "checkpoint_9/",
    "checkpoint_12",
    ".checkpoint_5.partial-mine/",
)


def test_anything_else_is_never_taken_for_a_checkpoint_and_never_deleted(run_dir: Path) -> None:
    policy = {"keep": Keep(last=2)}
    train_and_die(counting(6, **policy), run_dir, after=3)
    for stray in STRAYS:
        path = run_dir / stray
        path.mkdir() if stray.endswith("/") else path.write_text("mine")
    shutil.copytree(run_dir / "checkpoint_3", run_dir / "checkpoint_20")
    (run_dir / "checkpoint_21").symlink_to("checkpoint_3")
    (run_dir / "checkpoint_1_old" / "_SUCCESS").write_text("no")
    ours = [*STRAYS, "checkpoint_20", "checkpoint_21"]

    ended = train(counting(6, **policy), run_dir)
    assert (ended.epochs, ended.outcome.ran) == (6, 3)
    assert ended.said(CheckpointSkipped) == ended.said(LeftoversCleaned) == []
    assert ids_and_epochs(run_dir) == {23: 5, 24: 6}, "strays count for ids, not for keep"
    for stray in ours:
        assert os.path.lexists(run_dir / stray.rstrip("/")), stray
    assert (run_dir / "notes.txt").read_text() == "mine"
    assert not (run_dir / "attempts").exists()

    fresh = train(counting(6, **policy), run_dir, request=Request(fresh=True))
    assert fresh.outcome.ran == 6
    assert all(os.path.lexists(run_dir / stray.rstrip("/")) for stray in ours)


def test_our_own_leftovers_are_cleaned_at_the_next_start_and_said(run_dir: Path) -> None:
    train_and_die(counting(3), run_dir, after=2)
    left = [f".checkpoint_3.partial-{'0' * 16}", f".checkpoint_1.trash-{'f' * 16}"]
    for name in left:
        (run_dir / name / "main").mkdir(parents=True)
        (run_dir / name / "_SUCCESS").write_text("half")
    assert load_blobs(run_dir)["total"].tolist() == [2]
    assert set(left) < set(names(run_dir)), "reading cleans nothing"
    ended = train(counting(3), run_dir)
    assert [sorted(e.names) for e in ended.said(LeftoversCleaned)] == [sorted(left)]
    assert not set(left) & set(names(run_dir))


# When.


def test_every_counts_from_the_last_save_over_resumes(run_dir: Path) -> None:
    policy = {"every": Every(3)}
    train_and_die(counting(10, **policy), run_dir, after=3)
    assert train(counting(10, **policy), run_dir).saved == [6, 9, 10]
    assert train(counting(10, every=Every(2)), run_dir, 3).saved == [5, 7, 9, 10]


def test_starting_the_same_command_again_after_an_interruption_resumes(run_dir: Path) -> None:
    train_and_die(reference(), run_dir, after=2)
    ended = train(reference(), run_dir)
    assert [(e.id, e.epoch) for e in ended.said(CheckpointLoaded)] == [(2, 2)]
    assert (ended.epochs, ended.outcome.ran, ended.saved) == (4, 2, [3, 4])
    assert [load_blobs(run_dir, epoch=e)["total"].item() for e in range(5)] == TOTALS


# Retention.


def test_ten_saves_last_3_leaves_7_8_9(run_dir: Path) -> None:
    ended = train(counting(9, keep=Keep(last=3)), run_dir)
    assert list(ids_and_epochs(run_dir)) == [7, 8, 9]
    removed = [id for e in ended.said(CheckpointsRemoved) for id in e.ids]
    assert removed == list(range(7))
    assert names(run_dir) == ["checkpoint_7", "checkpoint_8", "checkpoint_9", "lock", "run.json"]


@pytest.mark.parametrize("last", [0, -1])
def test_last_below_1_is_refused(last: int) -> None:
    with pytest.raises(UsageError, match=f"at least 1, not {last}"):
        Keep(last=last)


def test_keep_all_is_the_default(run_dir: Path) -> None:
    train(counting(9), run_dir)
    assert list(ids_and_epochs(run_dir)) == list(range(10))


class Watcher(Fs):
    """Looks at the run directory before every change of it."""

    def __init__(self, look: Callable[[], None]) -> None:
        self.look = look

    def at(self, op: str, path: str) -> None:
        """Look before what can change the set of checkpoints."""
        if op in ("mkdir", "rename", "rmtree"):
            self.look()


def test_at_no_instant_is_there_fewer_than_one_whole_checkpoint(run_dir: Path) -> None:
    counts: list[int] = []

    def look() -> None:
        if (run_dir / "checkpoint_0").exists() or counts:
            counts.append(len(ids_and_epochs(run_dir)))

    train(counting(4, keep=Keep(last=1)), run_dir, fs=Watcher(look))
    assert len(counts) > 8
    assert set(counts) == {1, 2}
    assert ids_and_epochs(run_dir) == {4: 4}


def test_the_one_resumed_from_stays_until_the_first_save_is_durable(run_dir: Path) -> None:
    train(counting(6), run_dir)
    seen: list[set[int]] = []
    policy = {"keep": Keep(last=1)}
    watcher = Watcher(lambda: seen.append(set(ids_and_epochs(run_dir))))
    train(counting(6, **policy), run_dir, 2, fs=watcher)
    first_save = next(i for i, ids in enumerate(seen) if 7 in ids)
    assert all(2 in ids for ids in seen[:first_save])
    assert ids_and_epochs(run_dir) == {10: 6}


def test_the_best_and_the_head_are_never_removed(run_dir: Path) -> None:
    losses = [5.0, 1.0, 3.0, 2.0, 4.0]
    job = scored(losses, keep=Keep(last=1, best=Best("loss")))
    train(job, run_dir)
    assert ids_and_epochs(run_dir) == {2: 2, 5: 5}


# Failing loads.


def flip(path: Path) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)


def test_resume_falls_back_to_the_newest_that_proves_whole_and_says_which_it_skipped(
    run_dir: Path,
) -> None:
    train_and_die(reference(), run_dir, after=3)
    flip(run_dir / "checkpoint_3" / "main" / "total" / "0")
    (run_dir / "checkpoint_2" / "main" / "total" / "0").unlink()
    ended = train(reference(), run_dir)
    skipped = ended.said(CheckpointSkipped)
    assert [e.id for e in skipped] == [3, 2]
    assert "total/0" in skipped[0].reason
    assert [e.id for e in ended.said(CheckpointLoaded)] == [1]
    assert (ended.epochs, ended.blobs["total"].tolist()) == (4, [145])
    assert ids_and_epochs(run_dir) == {0: 0, 1: 1, 4: 2, 5: 3, 6: 4}
    moved = [n for n in names(run_dir) if n.startswith("attempts/")]
    assert moved == ["attempts/1/checkpoint_2", "attempts/1/checkpoint_3"]


def test_with_an_epoch_or_id_it_does_not_choose_another(run_dir: Path) -> None:
    train(reference(), run_dir)
    flip(run_dir / "checkpoint_3" / "main" / "total" / "0")
    before = [n for n in names(run_dir) if n.startswith("checkpoint")]
    for request in (Request(epoch=3), Request(id=3)):
        with pytest.raises(DamagedError, match="total/0") as caught:
            train(reference(), run_dir, request=request)
        assert caught.value.exit_code == 5
        assert [n for n in names(run_dir) if n.startswith("checkpoint")] == before


@pytest.mark.parametrize("finished", [True, False])
def test_if_none_is_whole_that_is_an_error_and_no_fresh_start(
    run_dir: Path, finished: bool
) -> None:
    train(reference(), run_dir) if finished else train_and_die(reference(), run_dir, after=2)
    for path in run_dir.glob("checkpoint_*/main/total/0"):
        path.unlink()
    before = state_of_disk(run_dir)
    with pytest.raises(DamagedError, match=r"no checkpoint is whole:\n  checkpoint_0: ") as caught:
        train(reference(), run_dir)
    assert caught.value.exit_code == 5
    assert state_of_disk(run_dir) == before
    assert train(reference(), run_dir, request=Request(fresh=True)).epochs == 4


def test_if_none_proves_whole_the_newest_says_why(run_dir: Path) -> None:
    train_and_die(reference(), run_dir, after=2)
    for path in run_dir.glob("checkpoint_*/main/total/0"):
        flip(path)
    with pytest.raises(DamagedError, match="checkpoint_2/main/total/0"):
        train(reference(), run_dir)
    assert {"checkpoint_0", "checkpoint_1", "checkpoint_2"} < set(names(run_dir))


def test_a_finished_run_whose_last_checkpoint_is_lost_runs_the_lost_epochs_again(
    run_dir: Path,
) -> None:
    train(reference(), run_dir)
    (run_dir / "checkpoint_4" / "main" / "total" / "0").unlink()
    ended = train(reference(), run_dir)
    assert [e.id for e in ended.said(CheckpointSkipped)] == [4]
    assert (ended.epochs, ended.outcome.ran, ended.blobs["total"].item()) == (4, 1, 145)
    assert ids_and_epochs(run_dir) == {0: 0, 1: 1, 2: 2, 3: 3, 5: 4}


def test_load_blobs_takes_an_older_checkpoint_only_where_asked(run_dir: Path) -> None:
    train(reference(), run_dir)
    flip(run_dir / "checkpoint_4" / "_SUCCESS")
    for wanted in ((), ("total",)):
        said = load_blobs_command(run_dir, *wanted)
        assert (said.returncode, said.stdout) == (5, "")
        assert "checkpoint_4/_SUCCESS" in said.stderr
        assert "--fallback takes the newest checkpoint that is whole" in said.stderr
    said = load_blobs_command(run_dir, "--fallback")
    assert (said.returncode, "145" in said.stdout, "136" in said.stdout) == (0, False, True)
    assert "checkpoint_4 is skipped" in said.stderr
    assert load_blobs_command(run_dir, "--epoch", "3").stderr == ""
    for id in range(4):
        flip(run_dir / f"checkpoint_{id}" / "_SUCCESS")
    said = load_blobs_command(run_dir, "--fallback")
    assert (said.returncode, said.stdout) == (5, "")
    assert "no checkpoint is whole" in said.stderr


def load_blobs_command(*args: str | Path) -> subprocess.CompletedProcess[str]:
    """``jobrun load-blobs`` in a process of its own."""
    command = [sys.executable, "-m", "jobrun", "load-blobs", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True)


# The end.


def test_on_success_delete_removes_this_runs_checkpoints_once_exit_has_succeeded(
    run_dir: Path,
) -> None:
    policy = {"on_success": "delete"}
    seen: list[list[int]] = []
    job = counting(3, **policy)
    with job.exit:
        Task(lambda: seen.append(list(ids_and_epochs(run_dir))), name="look")
    run_dir.mkdir()
    (run_dir / "notes.txt").write_text("mine")
    (run_dir / "checkpoint_x").mkdir()
    ended = train(job, run_dir)
    assert seen == [[0, 1, 2, 3]]
    assert ended.blobs["total"].tolist() == [3]
    assert names(run_dir) == ["checkpoint_x", "lock", "notes.txt", "run.json"]
    again = train(job, run_dir)
    assert (again.epochs, again.outcome.ran, len(seen)) == (3, 0, 1)


@pytest.mark.parametrize("left", [1, 2, 3, 4], ids=lambda n: f"{n} left")
def test_a_deletion_that_was_interrupted_is_finished_by_the_next_start(
    run_dir: Path, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is killed before, or while, ``on_success: delete`` removes checkpoints."""

    def discarded(path: Path, id: int) -> None:
        if id == 4 - left:
            raise KeyboardInterrupt
        discard(path, id)

    monkeypatch.setattr("jobrun.engine.history.discard", discarded)
    with pytest.raises(KeyboardInterrupt):
        train(counting(3, on_success="delete"), run_dir)
    monkeypatch.undo()
    assert list(ids_and_epochs(run_dir)) == list(range(4 - left, 4))
    (run_dir / ".checkpoint_0.trash-0123456789abcdef").mkdir()
    (run_dir / "checkpoint_9").mkdir()

    kept = train(counting(3), run_dir)  # who keeps them now, keeps them
    assert kept.outcome.outcome == "nothing"
    assert list(ids_and_epochs(run_dir)) == list(range(4 - left, 4))

    held = Lock(run_dir)
    held.acquire()  # somebody else holds the run
    assert train(counting(3, on_success="delete"), run_dir).outcome.outcome == "nothing"
    held.release()
    assert list(ids_and_epochs(run_dir)) == list(range(4 - left, 4))

    again = train(counting(3, on_success="delete"), run_dir)
    assert (again.epochs, again.outcome.ran, again.outcome.exit_code) == (3, 0, 0)
    assert again.outcome.on_disk is None
    assert "removed what an interrupted deletion had left: checkpoints" in again.outcome.reason
    assert names(run_dir) == ["checkpoint_9", "lock", "run.json"]
    assert "removed" not in train(counting(3, on_success="delete"), run_dir).outcome.reason


def test_a_failing_exit_a_stop_by_signal_and_a_failure_delete_nothing(run_dir: Path) -> None:
    policy = {"on_success": "delete"}

    def in_exit(function: Callable[[], None], epochs: int = 2) -> Job:
        job = counting(epochs, **policy)
        with job.exit:
            Task(lambda: function(), name="leave")
        return job

    def fail() -> None:
        raise OSError("no")

    with pytest.raises(TaskError):
        train(in_exit(fail), run_dir)
    assert ids_and_epochs(run_dir) == {0: 0, 1: 1, 2: 2}
    train(in_exit(lambda: None), run_dir)
    assert ids_and_epochs(run_dir) == {}

    stopped = run_dir.parent / "stopped"
    ended = train_and_interrupt(counting(9, **policy), stopped, "SIGINT", 3)
    assert (ended.outcome.outcome, ended.outcome.epoch) == ("interrupted", 2)
    assert ids_and_epochs(stopped) == {0: 0, 1: 1, 2: 2}

    failed = run_dir.parent / "failed"
    job = counting(9, **policy)
    job.fail(when="total >= 2")
    assert train(job, failed).outcome.exit_code == 7
    assert ids_and_epochs(failed) == {0: 0, 1: 1, 2: 2}


def train_and_interrupt(job: Job, run_dir: Path, signal: str, epoch: int) -> Ended:
    """Train until an epoch starts, and interrupt it there."""

    def interrupt(event: object) -> None:
        if isinstance(event, GroupStarted) and event.epoch == epoch:
            run.runner.interrupt(signal)

    run = start(job, run_dir, watch=interrupt)
    run.runner.train(run.session)
    return run


@pytest.mark.parametrize(("signal", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_stop_by_a_signal_is_gone_on_from(run_dir: Path, signal: str, code: int) -> None:
    ended = train_and_interrupt(reference(), run_dir, signal, 2)
    assert (ended.outcome.exit_code, ended.outcome.epoch) == (code, 1)
    assert RunDir(run_dir).state().state == "interrupted"
    ended = train(reference(), run_dir)
    assert (ended.epochs, ended.blobs["total"].tolist()) == (4, [145])
    assert [load_blobs(run_dir, epoch=e)["total"].item() for e in range(5)] == TOTALS


# The best.


def scored(losses: list[float], *, direction: str = "min", **how: Any) -> Job:
    """A job whose ``total`` counts epochs and whose ``loss`` follows ``losses``."""
    stop = how.pop("stop", {"epochs": len(losses)})
    job = counting(1, **how)
    job.conditions.clear()
    job.metrics = {"loss": direction}
    job.vars["losses"] = losses
    with job.epoch:
        Task(lambda losses, epoch: losses[epoch - 1], ["losses", "epoch"], out="loss", name="score")
    job.stop(**stop)
    return job


def with_exit(job: Job, seen: list[Any]) -> Job:
    """``job`` with a ``download`` and an ``exit`` that note what they read from the best."""
    with job.download:
        Task(lambda best: best * 10, "best:total", out="gathered", name="gather")
    with job.exit:
        Task(
            lambda best, gathered, total: seen.append([best[0], gathered[0], total[0]]),
            ["best:total", "gathered", "total"],
            name="see",
        )
    return job


@pytest.mark.parametrize(
    ("losses", "how", "best", "last"),
    [
        ([3.0, 1.0, 2.0], {}, 2, 3),
        ([3.0, 2.0, 1.0], {}, 3, 3),
        ([1.0, 2.0, 3.0], {}, 1, 3),
        ([1.0, 3.0, 2.0], {"direction": "max"}, 2, 3),
        ([3.0, 1.0, 2.0, 2.0, 9.0], {"stop": {"patience": {"loss": 2}}}, 2, 4),
        ([3.0, 1.0, 2.0, 0.5], {"stop": {"when": "loss > 1.5 and epoch > 1"}}, 2, 3),
        ([3.0, 1.0, 2.0, 4.0], {"keep": Keep(last=1, best=Best("loss"))}, 2, 4),
        ([3.0, 1.0, 2.0, 4.0], {"keep": Keep(last=1)}, 2, 4),
        ([math.inf, 2.0, -math.inf, math.nan], {}, 2, 4),
        ([math.nan, -math.inf, 2.0, math.inf], {"direction": "max"}, 3, 4),
        ([3.0, 1.0, 2.0, 4.0, 5.0], {"every": Every(3)}, 3, 5),
    ],
    ids=[
        "in the middle",
        "the last",
        "the first",
        "the largest",
        "stopped by patience",
        "stopped by a threshold",
        "kept by retention",
        "kept since it is read",
        "not one that is not finite",
        "not one that is not finite, max",
        "of those saved",
    ],
)
def test_best_reads_from_the_best_checkpoint_whatever_ended_the_run(
    run_dir: Path, losses: list[float], how: dict[str, Any], best: int, last: int
) -> None:
    seen: list[Any] = []
    train(with_exit(scored(losses, **how), seen), run_dir)
    assert seen == [[best, best * 10, last]]
    train(with_exit(scored(losses, **how), seen), run_dir)
    assert len(seen) == 1, "a finished run does not run exit again"


@pytest.mark.parametrize("after", range(5))
def test_best_after_a_crash_at_any_epoch(run_dir: Path, after: int) -> None:
    seen: list[Any] = []

    def job() -> Job:
        keep = Keep(last=1, best=Best("loss"))
        return with_exit(scored([3.0, 1.0, 2.0, 4.0], keep=keep), seen)

    train_and_die(job(), run_dir, after)
    assert seen == []
    train(job(), run_dir)
    assert seen == [[2, 20, 4]]


@pytest.mark.parametrize("group", ["download", "exit"])
def test_best_after_a_crash_between_the_last_save_and_the_end_of_exit(
    run_dir: Path, group: str
) -> None:
    seen: list[Any] = []

    def die(event: object) -> None:
        if isinstance(event, GroupStarted) and event.group == group:
            raise Died

    job = with_exit(scored([3.0, 1.0, 2.0]), seen)
    with pytest.raises(Died):
        train(job, run_dir, watch=die)
    ended = train(job, run_dir)
    assert (ended.outcome.ran, seen) == (0, [[2, 20, 3]])


def test_a_best_checkpoint_that_is_damaged_is_an_error_and_no_other_is_taken(run_dir: Path) -> None:
    seen: list[Any] = []

    def damage(event: object) -> None:
        if isinstance(event, CheckpointSaved) and event.epoch == 3:
            flip(run_dir / "checkpoint_2" / "main" / "total" / "0")

    with pytest.raises(DamagedError, match="checkpoint_2"):
        train(with_exit(scored([3.0, 1.0, 2.0]), seen), run_dir, watch=damage)
    assert seen == []


# What is said.


def test_saves_and_loads_are_events_with_bytes_files_seconds_and_stall(run_dir: Path) -> None:
    train_and_die(reference(), run_dir, after=2)
    ended = train(reference(), run_dir)
    for saved in ended.said(CheckpointSaved):
        files = [p for p in Path(saved.path).rglob("*") if p.is_file() and p.name != "_SUCCESS"]
        assert saved.files == len(files)
        assert saved.bytes == sum(p.stat().st_size for p in files)
        assert min(saved.seconds, saved.stall) >= 0
        assert {"wait", "snapshot", "write", "sync", "commit", "retain"} == set(saved.phases)
    (loaded,) = ended.said(CheckpointLoaded)
    assert (loaded.bytes, loaded.path) == (8, str(run_dir / "checkpoint_2"))


def test_the_events_file_says_of_each_save_what_is_on_disk(run_dir: Path) -> None:
    """Bytes and files, those shared with an earlier checkpoint, and the phases."""
    with Job("phases", checkpoint=CheckpointPolicy()) as job:
        with job.init:
            Task(lambda: np.arange(1000.0), out="still", name="still")
            Task(lambda: list(np.zeros((2, 9))), out=["x", "y"], name="start")
        Task(lambda x, y: (x + 1, y + 2), ["x", "y"], out=["x", "y"], name="step")
        job.stop(epochs=4)
    fan = Broadcast()
    fan.add("files", lambda: RunFiles(fan))
    train(job, run_dir, watch=fan)
    fan.close()
    said = list(read_events(run_dir / "events.jsonl", ("CheckpointSaved",)))
    assert [event["id"] for event in said] == [0, 1, 2, 3, 4]
    earlier: set[int] = set()
    for event in said:
        files = [p.stat() for p in Path(event["path"]).rglob("*") if p.is_file()]
        success = (Path(event["path"]) / "_SUCCESS").stat().st_size
        assert event["files"] == len(files) - 1
        assert event["bytes"] == sum(status.st_size for status in files) - success
        assert event["linked"] == sum(s.st_size for s in files if s.st_ino in earlier)
        assert (event["linked"] > 8000) == (event["id"] >= 2)  # from the one before the parent
        phases = event["phases"]
        assert set(phases) == {"wait", "snapshot", "write", "sync", "commit", "retain"}
        assert min(phases.values()) >= 0
        save = sum(phases[name] for name in ("write", "sync", "commit", "retain"))
        assert event["seconds"] == pytest.approx(save)
        earlier |= {status.st_ino for status in files}


def test_a_lost_run_json_is_rebuilt_from_the_checkpoints(run_dir: Path) -> None:
    train_and_die(reference(), run_dir, after=2)
    (run_dir / "run.json").unlink()
    ended = train(reference(), run_dir)
    assert (ended.epochs, ended.outcome.ran) == (4, 2)
    (run_dir / "run.json").write_text('{"format": 1, "name": "tor')
    ended = train(reference(), run_dir, 3)
    assert (ended.epochs, ended.outcome.ran) == (4, 1)


def test_no_error_of_a_checkpoint_is_a_bare_one(run_dir: Path) -> None:
    """Whatever lies at the place of a checkpoint's files, the error is one of our tree."""
    train(reference(), run_dir)
    for path in sorted((run_dir / "checkpoint_4").rglob("*")):
        if path.is_file():
            copy = run_dir.parent / "copy"
            shutil.copytree(run_dir, copy)
            target = copy / path.relative_to(run_dir)
            target.unlink()
            target.mkdir()
            assert newest(Catalog(copy)).id == 3
            with pytest.raises(JobrunError) as caught:
                train(reference(), copy, 4)
            assert caught.value.exit_code == 5
            assert re.search("checkpoint_?.?4|epoch 4", str(caught.value))
            shutil.rmtree(copy)


def turn(tree: dict[str, np.ndarray], epoch: int) -> dict[str, np.ndarray]:
    """Two leaves change places; one is there in odd epochs only."""
    turned = {"p": tree["q"], "q": tree["p"], "same": tree["same"]}
    return turned | ({"odd": np.full(3, epoch)} if epoch % 2 else {})


def turn_in_place(kept: dict[str, np.ndarray], epoch: int) -> None:
    """As ``turn``, in the dict itself."""
    turned = turn(kept, epoch)
    kept.clear()
    kept.update(turned)


def turning(link: str) -> Job:
    """Blobs and leaves of dicts that change places, come and go, or are changed now and then."""
    leaves = {"p": 0, "q": 1, "same": 9}
    with Job("turn", checkpoint=CheckpointPolicy(link=link)) as job:
        with job.init:
            Task(lambda: [np.full(3, i) for i in range(3)], out=["a", "b", "c"], name="start")
            for tree in ("new", "kept", "parts"):
                Task(lambda: {k: np.full(3, n) for k, n in leaves.items()}, out=tree, name=tree)
            Task(lambda: np.zeros(3, int), out="parts/rare", name="first")
        Task(lambda a, b, c: (b, c, a), ["a", "b", "c"], out=["a", "b", "c"], name="turn")
        Task(turn, ["new", "epoch"], out="new", name="turn_new")
        Task(turn_in_place, {"epoch": None}, update={"kept": None}, name="turn_kept")
        parts = ["parts/p", "parts/q"]
        Task(lambda p, q: (q, p), parts, out=parts, name="turn_parts")
        Task(lambda epoch: np.full(3, epoch), "epoch", out="parts/rare", name="rare", every=2)
        job.stop(epochs=6)
    return job


def turned(epoch: int) -> dict[str, list[int]]:
    """What the blobs of ``turning`` are after an epoch."""
    found = {name: (number + epoch) % 3 for number, name in enumerate("abc")}
    for tree in ("new", "kept", "parts"):
        found |= {f"{tree}/p": epoch % 2, f"{tree}/q": 1 - epoch % 2, f"{tree}/same": 9}
        if epoch % 2 and tree != "parts":
            found[f"{tree}/odd"] = epoch
    found["parts/rare"] = epoch - epoch % 2
    return {name: [number] * 3 for name, number in found.items()}


@pytest.mark.parametrize("link", ["parent", "alternate"])
def test_blobs_that_change_places_are_saved_where_they_are(run_dir: Path, link: str) -> None:
    """Values that are handed on as they are have versions, which hold for their old names alone."""
    train(turning(link), run_dir)
    for epoch in range(7):
        found = load_blobs(run_dir, epoch=epoch)
        assert {name: value.tolist() for name, value in found.items()} == turned(epoch)
    still = [(run_dir / f"checkpoint_{id}/main/parts/same/0").stat().st_ino for id in range(7)]
    assert len(set(still)) == (1 if link == "parent" else 2), "what stays in its place is linked"
