"""Saves that fail during the run: a job makes progress all the same, and says what is on disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from reference_job import TOTALS, reference
from whole_runs import FailingDisk, ids_and_epochs, names, start, train

from jobrun import CheckpointManager, CheckpointPolicy, Every, Task, load_blobs
from jobrun.core.events import CheckpointFailed, CheckpointSaved, Event
from jobrun.errors import SaveError
from jobrun.runs.rundir import RunDir


def test_all_saves_fail_after_epoch_0_still_4_epochs_and_145(run_dir: Path) -> None:
    ended = train(reference(), run_dir, fs=FailingDisk(1, 2, 3, 4))
    assert ended.epochs == ended.outcome.ran == 4
    assert ended.blobs["total"].tolist() == [145]
    assert [e.epoch for e in ended.said(CheckpointFailed)] == [1, 2, 3, 4]
    assert "No space left on device" in ended.said(CheckpointFailed)[0].message
    assert names(run_dir) == ["checkpoint_0", "lock", "run.json"]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_the_directory_made_unwritable_after_epoch_0(run_dir: Path) -> None:
    def close(event: Event) -> None:
        if isinstance(event, CheckpointSaved):
            run_dir.chmod(0o500)

    try:
        policy = CheckpointPolicy(background=False)
        ended = train(reference(checkpoint=policy), run_dir, watch=close)
    finally:
        run_dir.chmod(0o700)
    assert (ended.epochs, ended.blobs["total"].tolist()) == (4, [145])
    assert ended.outcome.exit_code == 6
    assert list(ids_and_epochs(run_dir)) == [0]


def test_the_last_state_not_on_disk_is_said_and_exit_code_6(run_dir: Path) -> None:
    ran: list[str] = []

    def job() -> Any:
        job = reference()
        with job.exit:
            Task(lambda: ran.append("exit"), name="leave")
        return job

    ended = train(job(), run_dir, fs=FailingDisk(3, 4))
    assert (ended.epochs, ended.outcome.exit_code, ended.outcome.on_disk) == (4, 6, 2)
    assert ran == ["exit"]

    again = train(job(), run_dir)
    assert (again.epochs, again.outcome.ran, again.outcome.exit_code) == (4, 2, 0)
    assert load_blobs(run_dir)["total"].tolist() == [145]
    assert ran == ["exit", "exit"]


def test_the_next_save_is_tried_in_full_and_an_id_is_not_given_again(run_dir: Path) -> None:
    ended = train(reference(), run_dir, fs=FailingDisk(2))
    assert (ended.epochs, ended.outcome.exit_code) == (4, 0)
    assert [(e.id, e.epoch) for e in ended.said(CheckpointFailed)] == [(2, 2)]
    assert "checkpoint 2 was not saved: " in ended.said(CheckpointFailed)[0].message
    assert ids_and_epochs(run_dir) == {0: 0, 1: 1, 3: 3, 4: 4}
    assert names(run_dir) == [*(f"checkpoint_{i}" for i in (0, 1, 3, 4)), "lock", "run.json"]
    assert load_blobs(run_dir, epoch=3)["total"].tolist() == [TOTALS[3]]


def test_a_save_that_failed_is_made_up_for_by_the_next_due_one(run_dir: Path) -> None:
    policy = CheckpointPolicy(every=Every(2))
    job = reference(batches_per_epoch=1, checkpoint=policy)
    ended = train(job, run_dir, fs=FailingDisk(1))
    assert ended.epochs == 10
    assert list(ids_and_epochs(run_dir).values()) == [0, 4, 6, 8, 10]


@pytest.mark.parametrize("background", [True, False])
def test_on_error_fail_ends_the_run_at_once_with_code_6(run_dir: Path, background: bool) -> None:
    policy = CheckpointPolicy(on_error="fail", background=background)
    run = start(reference(checkpoint=policy), run_dir, fs=FailingDisk(2))
    with pytest.raises(SaveError, match="checkpoint 2 was not saved") as caught:
        run.runner.train(run.session)
    assert caught.value.exit_code == run.outcome.exit_code == 6
    assert run.outcome.on_disk == 1
    assert run.outcome.epoch <= 3
    assert ids_and_epochs(run_dir) == {0: 0, 1: 1}
    assert train(reference(checkpoint=policy), run_dir).blobs["total"].tolist() == [145]


@pytest.mark.parametrize("on_error", ["warn", "fail"])
@pytest.mark.parametrize("background", [True, False])
def test_if_the_first_save_fails_the_run_ends_at_once(
    run_dir: Path, on_error: str, background: bool
) -> None:
    policy = CheckpointPolicy(on_error=on_error, background=background)
    run = start(reference(checkpoint=policy), run_dir, fs=FailingDisk(0))
    with pytest.raises(SaveError, match="checkpoint 0 was not saved") as caught:
        run.runner.train(run.session)
    assert caught.value.exit_code == run.outcome.exit_code == 6
    assert run.outcome.epoch <= 1
    assert names(run_dir) == ["lock", "run.json"]
    assert RunDir(run_dir).state().state == "error"
    assert train(reference(checkpoint=policy), run_dir).epochs == 4


def test_checkpoint_false_is_for_those_who_want_none(run_dir: Path) -> None:
    ended = train(reference(checkpoint=None), run_dir, fs=FailingDisk(*range(9)))
    assert (ended.epochs, ended.outcome.exit_code, ended.saved) == (4, 0, [])
    assert names(run_dir) == ["lock", "run.json"]
    again = train(reference(checkpoint=None), run_dir)
    assert (again.epochs, again.outcome.ran) == (4, 0)


def test_the_disk_comes_back_in_the_same_process(run_dir: Path) -> None:
    disk = FailingDisk(*range(1, 5))
    manager = CheckpointManager(run_dir, fs=disk)
    assert train(reference(), manager=manager).outcome.exit_code == 6
    disk.broken.clear()
    again = train(reference(), manager=manager)
    assert (again.epochs, again.outcome.ran, again.outcome.exit_code) == (4, 4, 0)
    assert ids_and_epochs(run_dir) == {0: 0, 5: 1, 6: 2, 7: 3, 8: 4}
