"""The reference job in every variation: the table of totals, and what Caffe2 got wrong with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from reference_job import TOTALS, TRAINERS, reference
from whole_runs import blob_list, ids_and_epochs, names, records, state_of_disk, train

from jobrun import CheckpointManager, JobrunError, JobRunner, LocalSession, Task, load_blobs
from jobrun.engine.resume_policy import Request
from jobrun.errors import DataError, NotFoundError, SpecError
from jobrun.model.job import Data
from jobrun.model.rows import Batches, Reader

SUPPORT = Path(__file__).parent.parent / "support"
SPECS = Path(__file__).parent.parent.parent / "specs"
JOBRUN = str(Path(sys.executable).with_name("jobrun"))

variations = pytest.mark.parametrize(
    ("nodes", "threads"), [(None, 1), (None, 8), (TRAINERS, 1), (TRAINERS, 8)]
)


@pytest.fixture(scope="module")
def finished(memory: Path) -> Path:
    """A finished run, not to be changed."""
    path = memory / "finished"
    train(reference(), path)
    return path


@pytest.fixture(scope="module")
def finished_on_nodes(memory: Path) -> Path:
    """A finished run of three nodes, not to be changed."""
    path = memory / "finished_on_nodes"
    train(reference(nodes=TRAINERS), path)
    return path


def total_names(nodes: tuple[str, ...] | None) -> list[str]:
    return [f"{n}:total" for n in nodes] if nodes else ["total"]


def totals(run_dir: Path) -> list[int]:
    """The total of each checkpoint."""
    return [load_blobs(run_dir, "total", id=r.id)["total"].item() for r in records(run_dir)]


# The table.


@variations
def test_train_returns_after_4_epochs_with_145_and_checkpoints_0_to_4(
    run_dir: Path, nodes: tuple[str, ...] | None, threads: int
) -> None:
    ended = train(reference(nodes=nodes), run_dir, threads=threads)
    assert ended.epochs == ended.outcome.ran == 4
    assert ended.outcome.outcome == "finished"
    assert ended.outcome.exit_code == 0
    assert ended.outcome.reason.startswith("data finished: sum")
    assert ended.saved == [0, 1, 2, 3, 4]
    assert names(run_dir) == [*(f"checkpoint_{e}" for e in range(5)), "lock", "run.json"]
    for name in total_names(nodes):
        assert ended.blobs[name].tolist() == [145]
        assert [load_blobs(run_dir, name, epoch=e)[name].item() for e in range(5)] == TOTALS


def test_data_is_finished_after_epoch_4_and_not_before(finished: Path) -> None:
    assert [r.decision is not None for r in records(finished)] == [False] * 4 + [True]


@pytest.mark.parametrize("epoch", range(5))
def test_loading_checkpoint_e_gives_the_total_of_the_table(finished: Path, epoch: int) -> None:
    manager = CheckpointManager(finished)
    assert load_blobs(finished, epoch=epoch)["total"].tolist() == [TOTALS[epoch]]
    assert manager.load(epoch).blobs["main"]["total"].tolist() == [TOTALS[epoch]]
    assert load_blobs(manager.path(epoch))["total"].tolist() == [TOTALS[epoch]]


# Resume.


@variations
@pytest.mark.parametrize("epoch", range(4))
def test_resume_from_0_to_3_ends_at_epoch_4_and_writes_only_the_epochs_after(
    run_dir: Path,
    finished: Path,
    finished_on_nodes: Path,
    nodes: tuple[str, ...] | None,
    threads: int,
    epoch: int,
) -> None:
    shutil.copytree(finished_on_nodes if nodes else finished, run_dir)
    before = state_of_disk(run_dir)
    ended = train(reference(nodes=nodes), run_dir, epoch, threads=threads)
    assert (ended.epochs, ended.outcome.ran) == (4, 4 - epoch)
    assert ended.saved == list(range(epoch + 1, 5))
    for name in total_names(nodes):
        assert ended.blobs[name].tolist() == [145]
        assert [load_blobs(run_dir, name, epoch=e)[name].item() for e in range(5)] == TOTALS
    after = state_of_disk(run_dir)
    kept = [n for n in before if n.startswith(tuple(f"checkpoint_{e}" for e in range(epoch + 1)))]
    assert kept
    assert {n: after[n] for n in kept} == {n: before[n] for n in kept}


@pytest.mark.parametrize("epoch", range(4))
def test_resume_in_a_new_process(run_dir: Path, finished: Path, epoch: int) -> None:
    shutil.copytree(finished, run_dir)
    said = in_new_process(run_dir, 2, epoch)
    assert said == {"epochs": 4, "ran": 4 - epoch, "total": [145]}
    assert list(ids_and_epochs(run_dir).values()) == [0, 1, 2, 3, 4]


def in_new_process(run_dir: Path, *args: int) -> dict[str, object]:
    """Train the reference job in a process of its own."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from reference_job import main; main()",
            run_dir,
            *map(str, args),
        ],
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_resume_of_the_finished_run_in_a_new_process_runs_0_epochs(finished: Path) -> None:
    before = state_of_disk(finished)
    assert in_new_process(finished, 1) == {"epochs": 4, "ran": 0, "total": [145]}
    assert state_of_disk(finished) == before


@variations
def test_resume_of_the_finished_run_runs_0_epochs_and_leaves_nothing_new_on_disk(
    finished: Path, finished_on_nodes: Path, nodes: tuple[str, ...] | None, threads: int
) -> None:
    run_dir = finished_on_nodes if nodes else finished
    before = state_of_disk(run_dir)
    for epoch in (None, 4):
        ended = train(reference(nodes=nodes), run_dir, epoch, threads=threads)
        assert (ended.epochs, ended.outcome.ran, ended.outcome.outcome) == (4, 0, "nothing")
        assert ended.outcome.exit_code == 0
        assert ended.saved == []
        for name in total_names(nodes):
            assert ended.blobs[name].tolist() == [145]
        assert state_of_disk(run_dir) == before


def test_one_manager_for_several_resumes_in_one_process(run_dir: Path) -> None:
    with CheckpointManager(run_dir) as manager:
        assert train(reference(), manager=manager).epochs == 4
        for epoch in (2, 0, 3, None, 1):
            ended = train(reference(), None, epoch, manager=manager)
            assert ended.epochs == 4
            assert ended.blobs["total"].tolist() == [145]
    assert totals(run_dir) == TOTALS


def test_one_job_and_one_session_for_several_runs_in_one_process(run_dir: Path) -> None:
    job, session = reference(), LocalSession(2)
    for name in ("a", "b"):
        runner = JobRunner(job, CheckpointManager(run_dir / name))
        assert runner.train(session) == 4
        assert runner.blobs["total"].tolist() == [145]
        assert totals(run_dir / name) == TOTALS


def test_the_same_job_built_twice_in_one_process(run_dir: Path) -> None:
    first, second = reference(), reference()
    for name, job in (("a", first), ("b", second)):
        ended = train(job, run_dir / name)
        assert (ended.epochs, totals(run_dir / name)) == (4, TOTALS)
    again = train(second, run_dir / "a", 2)
    assert (again.epochs, again.outcome.ran, totals(run_dir / "a")) == (4, 2, TOTALS)


# Other sizes.


@pytest.mark.parametrize(
    ("rows", "batch", "batches_per_epoch", "expected"),
    [
        (9, 1, 3, [100, 103, 115, 136]),
        (9, 3, 1, [100, 103, 115, 136]),
        (10, 1, 5, [100, 110, 145]),
        (10, 5, 1, [100, 110, 145]),
        (10, 1, None, [100, 145]),
        (10, 4, None, [100, 145]),
        (10, 1, 1, [100, 100, 101, 103, 106, 110, 115, 121, 128, 136, 145]),
        (10, 1, 100, [100, 145]),
    ],
    ids=[
        "9 rows, 3 a time: 3 epochs",
        "9 rows, a batch of 3: 3 epochs",
        "10 rows, 5 a time: 2 epochs",
        "10 rows, a batch of 5: 2 epochs",
        "one pass an epoch: 1 epoch",
        "one pass an epoch, batches of 4: 1 epoch",
        "10 rows, 1 a time: 10 epochs",
        "more than there is: 1 epoch",
    ],
)
@pytest.mark.parametrize("threads", [1, 8])
def test_rows_and_limits(
    run_dir: Path,
    rows: int,
    batch: int,
    batches_per_epoch: int | None,
    expected: list[int],
    threads: int,
) -> None:
    ended = train(reference(rows, batch, batches_per_epoch), run_dir, threads=threads)
    assert ended.epochs == len(expected) - 1
    assert totals(run_dir) == expected


@pytest.mark.parametrize("limit", [0, -1])
@pytest.mark.parametrize("key", ["batch", "batches_per_epoch"])
def test_a_limit_of_0_or_below_is_an_error_that_says_so(
    run_dir: Path, key: str, limit: int
) -> None:
    with pytest.raises((SpecError, DataError), match=rf"{key}.*{limit}") as caught:
        train(reference(**{key: limit}), run_dir)
    assert caught.value.exit_code in (1, 3)


def test_no_passes_at_all_is_a_spec_error_that_says_so(run_dir: Path) -> None:
    for passes in (0, -1):
        job = reference()
        pipe = job.epoch.tasks[0]
        pipe.reader = Reader(Data(blobs={"val": "rows"}), Batches(passes=passes))
        with pytest.raises(SpecError, match=f"'passes'.* a number from 1 up, got {passes}"):
            train(job, run_dir)


def test_an_empty_source_is_a_data_error_that_says_so(run_dir: Path) -> None:
    with pytest.raises(DataError, match="the source has no rows") as caught:
        train(reference(rows=0), run_dir)
    assert caught.value.exit_code == 1


def test_resume_with_5_batches_an_epoch_instead_of_3_from_epoch_1_ends_at_3(run_dir: Path) -> None:
    train(reference(), run_dir)
    ended = train(reference(batches_per_epoch=5), run_dir, 1)
    assert ended.saved == [2, 3]
    assert (ended.epochs, ended.blobs["total"].tolist()) == (3, [145])
    assert totals(run_dir) == [100, 103, 103 + 3 + 4 + 5 + 6 + 7, 145]


# Partial loads.


@pytest.mark.parametrize("epoch", range(5))
def test_partial_load_of_two_of_three_nodes(finished_on_nodes: Path, epoch: int) -> None:
    wanted = ["trainer_1:total", "trainer_2:total"]
    found = load_blobs(finished_on_nodes, wanted, epoch=epoch)
    assert list(found) == wanted
    assert [value.tolist() for value in found.values()] == [[TOTALS[epoch]]] * 2


def test_partial_load_of_epoch_5_says_which_there_are(finished_on_nodes: Path) -> None:
    with pytest.raises(
        NotFoundError, match=r"no checkpoint of epoch 5; there are 0\.\.4"
    ) as caught:
        load_blobs(finished_on_nodes, ["trainer_1:total"], epoch=5)
    assert caught.value.exit_code == 5


def test_a_missing_name_is_an_error_with_the_nearest_names(finished_on_nodes: Path) -> None:
    with pytest.raises(NotFoundError, match="trainer_1:total") as caught:
        load_blobs(finished_on_nodes, ["trainer_2:total", "trainer_1:totl"])
    assert "'trainer_1:totl'" in caught.value.message
    assert caught.value.exit_code == 5


def test_resume_from_epoch_5_names_the_ones_there_are_and_changes_nothing(finished: Path) -> None:
    before = state_of_disk(finished)
    with pytest.raises(NotFoundError, match=r"no checkpoint of epoch 5; there are 0\.\.4"):
        train(reference(), finished, 5)
    assert state_of_disk(finished) == before


# What is saved.


def test_nothing_that_a_save_creates_becomes_part_of_the_state(
    finished: Path, finished_on_nodes: Path
) -> None:
    for run, expected in (
        (finished, ["main:total"]),
        (finished_on_nodes, [f"{n}:total" for n in TRAINERS]),
    ):
        assert [blob_list(run, r) for r in records(run)] == [expected] * 5


def test_blobs_are_the_same_with_and_without_a_manager(run_dir: Path) -> None:
    without, with_manager = train(reference()), train(reference(), run_dir)
    assert without.epochs == with_manager.epochs == 4
    assert list(without.blobs) == list(with_manager.blobs)
    assert set(without.blobs) == {"rows", "total"}
    for name in without.blobs:
        assert np.array_equal(without.blobs[name], with_manager.blobs[name])


# From YAML, by the command line.


def jobrun(*args: str | Path) -> subprocess.CompletedProcess[str]:
    """The installed command in a process of its own."""
    return subprocess.run([JOBRUN, *map(str, args)], capture_output=True, text=True)


@pytest.mark.parametrize("spec", ["reference", "reference_nodes"])
def test_the_spec_trains_resumes_and_loads_by_the_command_line(run_dir: Path, spec: str) -> None:
    trained = jobrun("train", SPECS / f"{spec}.yaml", "--runs-dir", run_dir)
    assert trained.returncode == 0, trained.stderr
    (run,) = run_dir.iterdir()
    wanted = ["total"] if spec == "reference" else ["trainer_1:total", "trainer_2:total"]
    for epoch, total in enumerate(TOTALS):
        found = load_blobs(run, wanted, epoch=epoch)
        assert [value.item() for value in found.values()] == [total] * len(wanted)

    resumed = jobrun("resume", run, "--epoch", "2")
    assert resumed.returncode == 0, resumed.stderr
    assert ids_and_epochs(run) == {0: 0, 1: 1, 2: 2, 5: 3, 6: 4}
    assert load_blobs(run, wanted)[wanted[0]].item() == 145

    before = state_of_disk(run)
    again = jobrun("resume", run)
    assert (again.returncode, state_of_disk(run)) == (0, before)

    absent = jobrun("load-blobs", run, wanted[0], "--epoch", "5")
    assert absent.returncode == 5
    assert absent.stdout == ""
    assert "no checkpoint of epoch 5; there are 0..4" in absent.stderr
    misspelt = jobrun("load-blobs", run, "totl")
    assert (misspelt.returncode, misspelt.stdout) == (5, "")
    assert "total" in misspelt.stderr


def test_changes_of_the_job_are_refused(run_dir: Path) -> None:
    train(reference(), run_dir, request=Request())
    job = reference()
    with job.exit:
        Task(len, "total")
    with pytest.raises(JobrunError, match="differs") as caught:
        train(job, run_dir)
    assert caught.value.exit_code == 2
