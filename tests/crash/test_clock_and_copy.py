"""Clocks that lie, times of files that lie, and runs that are found elsewhere than they were made.

Nothing but ids says which checkpoint is the newest, and a run directory is all that a run needs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import crash_job
import pytest
from children import COMMAND, Nursery, Places
from crash_job import CLOCKS, SPEC, STOPS_AFTER, leftovers, prove_all, result_of, said_saved
from pausing import SPEC as PAUSING

from jobrun import load_blobs
from jobrun.checkpoint.catalog import listed


@pytest.fixture(scope="module")
def undisturbed(nursery: Nursery, module_places: Places) -> dict[str, Any]:
    run = module_places() / "run"
    assert nursery.start("crash_job:train", run, "all").wait() == 0
    return result_of(run)


@pytest.fixture(scope="module")
def half_done(nursery: Nursery, module_places: Places) -> Path:
    """A run with several checkpoints, that was killed."""
    run = module_places() / "run"
    child = nursery.start("crash_job:train", run, "all", 1)
    while not said_saved(run)[3:]:
        assert not child.ends_within(0.001), child.text
    assert child.kill() == -9, child.text
    return run


def finish(nursery: Nursery, run: Path, undisturbed: dict[str, Any]) -> None:
    """The run goes on, from the checkpoint of the highest id, and ends as it would have."""
    before = [r.id for r in listed(run)]
    child = nursery.start("crash_job:train", run, "all")
    assert child.wait() == 0, child.text
    assert result_of(run) == undisturbed
    assert leftovers(run) == []
    assert [r.id for r in prove_all(run)][: len(before)] == before
    assert f"checkpoint_{before[-1]})" in (run / "log.txt").read_text()


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_clock_that_lies(
    nursery: Nursery, place: Path, undisturbed: dict[str, Any], clock: str
) -> None:
    run = place / "run"
    killed = nursery.start("crash_job:train_with_clock", run, "one", clock, [400])
    assert killed.wait() == -9, killed.text
    child = nursery.start("crash_job:train_with_clock", run, "one", clock)
    assert child.wait() == 0, child.text
    assert result_of(run) == undisturbed
    assert leftovers(run) == []
    assert len(listed(run)) == 1


def test_a_clock_that_lies_only_after_a_restart(
    nursery: Nursery, place: Path, half_done: Path, undisturbed: dict[str, Any]
) -> None:
    """All that is saved now is older than what was saved before."""
    run = shutil.copytree(half_done, place / "run")
    child = nursery.start("crash_job:train_with_clock", run, "all", "still")
    assert child.wait() == 0, child.text
    records = listed(run)
    assert records[0].time > records[-1].time
    assert [r.id for r in records] == sorted(r.id for r in records)
    assert load_blobs(run)["trace"].shape == (STOPS_AFTER, 3)
    assert result_of(run) == undisturbed


def test_times_of_files_that_lie(
    nursery: Nursery, place: Path, half_done: Path, undisturbed: dict[str, Any]
) -> None:
    """The oldest files look newest, and all directories too."""
    run = shutil.copytree(half_done, place / "run")
    paths = sorted(run.rglob("*"), key=lambda p: p.lstat().st_mtime_ns, reverse=True)
    for age, path in enumerate(paths):
        os.utime(path, (1e9 + age, 1e9 + age))
    finish(nursery, run, undisturbed)


@pytest.mark.parametrize("how", [["-r"], ["-a"], ["-rL"]], ids=str)
def test_a_copy_goes_on(
    nursery: Nursery, place: Path, half_done: Path, undisturbed: dict[str, Any], how: list[str]
) -> None:
    """With other times, owners and inodes, and hard links that are none any more."""
    copy = place / "copy"
    subprocess.run(["cp", *how, str(half_done), str(copy)], check=True)
    finish(nursery, copy, undisturbed)


def test_a_copy_of_a_run_that_is_being_trained(nursery: Nursery, place: Path) -> None:
    """The lock of the one is not the lock of the other."""
    (place / "pausing.yaml").write_text(PAUSING)
    first = nursery.start("pausing:command", "epoch", "train", "pausing.yaml", folder=place)
    first.wait_for(place / "at-epoch")
    # not all of it may be copied: a save may be under way
    subprocess.run(["cp", "-r", str(place / "runs/pausing"), str(place / "copy")])
    copied = nursery.start("pausing:command", "", "resume", "copy", folder=place)
    assert copied.wait() == 0, copied.text
    assert first.code is None
    (place / "go").touch()
    assert first.wait() == 0, first.text
    ends = [(r / "report.txt").read_text() for r in (place / "copy", place / "runs/pausing")]
    assert ends[0] == ends[1]


def jobrun(folder: Path, *words: str) -> tuple[int, str]:
    """The installed command in a folder; its exit code and what it wrote."""
    done = subprocess.run(
        [*COMMAND, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=90,
    )
    return done.returncode, done.stdout


@pytest.fixture
def project(place: Path) -> Path:
    """A folder with spec and code, in which three epochs were trained."""
    project = place / "project"
    project.mkdir()
    (project / "chain.yaml").write_text(SPEC)
    shutil.copy(crash_job.__file__, project / "crash_job.py")
    code, text = jobrun(project, "train", "chain.yaml", "--epochs", "3")
    assert code == 0, text
    return project


def test_all_of_it_moved(project: Path, undisturbed: dict[str, Any]) -> None:
    """Spec, code and run keep their places to each other: nothing has to be said."""
    moved = project.rename(project.with_name("moved"))
    code, text = jobrun(moved, "resume", "runs/chain", "--epochs", "20")
    assert code == 0, text
    assert result_of(moved / "runs/chain") == undisturbed


def test_only_the_run_moved(project: Path, undisturbed: dict[str, Any]) -> None:
    """The code is where it was; then it is not, and --code says where."""
    run = shutil.move(project / "runs/chain", project.with_name("elsewhere"))
    code, text = jobrun(run.parent, "resume", "elsewhere", "--epochs", "5")
    assert code == 0, text
    project.rename(project.with_name("moved"))
    code, text = jobrun(run.parent, "resume", "elsewhere", "--epochs", "20")
    assert code in (4, 5), text
    assert "--code" in text
    assert "Traceback" not in text
    code, text = jobrun(run.parent, "resume", "elsewhere", "--epochs", "20", "--code", "moved")
    assert code == 0, text
    assert result_of(run) == undisturbed
