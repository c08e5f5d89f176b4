"""SIGINT and SIGTERM in every phase of a run, once, twice, and followed by SIGKILL.

A signal goes to the process group, as from a terminal or a batch system.  Whatever comes, the exit
code and the text are honest, and the run that goes on ends with the bits of one left alone.
"""

from __future__ import annotations

import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from children import Child, Nursery, Places
from crash_job import bits, leftovers, prove_all
from pausing import PHASES, SPEC

from jobrun import load_blobs
from jobrun.runs.rundir import RunDir

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
ON_DISK = {
    "setup": "none",
    "init": "none",
    "epoch": "checkpoint_2 (epoch 2, after 1 task)",
    "batch": "checkpoint_2 (epoch 2, after batch 1 of pipe 'train')",
    "save": "epoch",
    "load": "checkpoint_1 (epoch 1)",
    "download": "checkpoint_3 (epoch 3)",
    "exit": "checkpoint_3 (epoch 3)",
}
"""What the summary of a run that was interrupted in a phase says of the disk."""


def ending(folder: Path) -> tuple[Any, str]:
    """The blobs of a run's end, and what its exit group wrote."""
    run = folder / "runs/pausing"
    return bits(load_blobs(run)), (run / "report.txt").read_text()


@pytest.fixture(scope="module")
def undisturbed(nursery: Nursery, module_places: Places) -> tuple[Any, str]:
    folder = module_places()
    (folder / "pausing.yaml").write_text(SPEC)
    child = nursery.start("pausing:command", "", "train", "pausing.yaml", folder=folder)
    assert child.wait() == 0, child.text
    return ending(folder)


@pytest.fixture
def folder(place: Path) -> Path:
    (place / "pausing.yaml").write_text(SPEC)
    return place


def start_until(nursery: Nursery, folder: Path, phase: str, *words: str) -> Child:
    """The command, which has come to a phase and waits there."""
    words = words or ("train", "pausing.yaml")
    if phase == "load":
        first = nursery.start("pausing:command", "", *words, "--epochs", "1", folder=folder)
        assert first.wait() == 0, first.text
    child = nursery.start("pausing:command", phase, *words, folder=folder)
    child.wait_for(folder / f"at-{phase}")
    return child


def finish(nursery: Nursery, folder: Path, undisturbed: tuple[Any, str]) -> Child:
    """The command that goes on; it ends as if nothing had happened."""
    run = folder / "runs/pausing"
    child = nursery.start("pausing:command", "", "train", "pausing.yaml", folder=folder)
    assert child.wait() == 0, child.text
    assert ending(folder) == undisturbed
    assert set(leftovers(run)) <= {"report.txt"}
    prove_all(run)
    assert (folder / "runs").is_dir()
    assert [p.name for p in (folder / "runs").iterdir()] == ["pausing"]
    return child


def signals_for(phase: str, long: bool) -> list[signal.Signals]:
    """Both in the long version, one of the two in turn in the short one."""
    return list(CODES) if long else [list(CODES)[PHASES.index(phase) % 2]]


def again(folder: Path) -> None:
    """Make the folder as it was."""
    for left in [*folder.glob("at-*"), *folder.glob("go")]:
        left.unlink()
    if (folder / "runs").exists():
        shutil.rmtree(folder / "runs")


@pytest.mark.parametrize("phase", PHASES)
def test_once(
    nursery: Nursery, folder: Path, undisturbed: tuple[Any, str], phase: str, long: bool
) -> None:
    for number in signals_for(phase, long):
        child = start_until(nursery, folder, phase)
        child.send_group(number)
        child.wait_for_text(f"{number.name}: no new work starts")
        (folder / "go").touch()
        assert child.wait() == CODES[number], child.text
        lines = child.text.splitlines()
        assert lines[-1] == "jobrun resume runs/pausing"
        assert any(line.startswith("pausing: interrupted after ") for line in lines)
        (on_disk,) = [line for line in lines if line.startswith("  checkpoint  ")]
        assert ON_DISK[phase] in on_disk
        state = RunDir(folder / "runs/pausing").state()
        assert state is not None
        assert (state.state, state.reason) == ("interrupted", number.name)
        assert set(leftovers(folder / "runs/pausing")) <= {"report.txt"}
        finish(nursery, folder, undisturbed)
        again(folder)


@pytest.mark.parametrize("phase", PHASES)
def test_twice(
    nursery: Nursery, folder: Path, undisturbed: tuple[Any, str], phase: str, long: bool
) -> None:
    """The second one ends the run in the middle of what it does."""
    for second in signals_for(phase, long):
        child = start_until(nursery, folder, phase)
        child.send_group(signal.SIGTERM)
        child.wait_for_text("SIGTERM: no new work starts")
        if second == signal.SIGTERM:
            time.sleep(1.1)  # one that follows at once is the same request
        child.send_group(second)
        assert child.wait(30) == CODES[second], child.text
        assert f"{second.name} again: exited at once; the last checkpoint is whole" in child.text
        (folder / "go").touch()
        finish(nursery, folder, undisturbed)
        again(folder)


@pytest.mark.parametrize("phase", PHASES)
def test_killed_after_a_short_grace(
    nursery: Nursery, folder: Path, undisturbed: tuple[Any, str], phase: str, long: bool
) -> None:
    """As a batch system does: SIGTERM, and SIGKILL for what is still there."""
    choice = random.Random(phase)
    for _ in range(8 if long else 1):
        child = start_until(nursery, folder, phase)
        child.send_group(signal.SIGTERM)
        (folder / "go").touch()
        if not child.ends_within(choice.uniform(0.0, 0.08)):
            child.send_group(signal.SIGKILL)
        code = child.wait()  # 0: it was done before the signal could stop it
        assert code in (0, 143, -signal.SIGKILL), child.text
        assert code or "pausing: finished after 3 epochs" in child.text
        finish(nursery, folder, undisturbed)
        again(folder)


def test_at_any_instant(
    nursery: Nursery, folder: Path, undisturbed: tuple[Any, str], long: bool
) -> None:
    """Signals one after the other, until the run is done."""
    for seed in range(20 if long else 2):
        choice = random.Random(seed)
        for _ in range(6):
            child = nursery.start("pausing:command", "", "train", "pausing.yaml", folder=folder)
            number = choice.choice(list(CODES))
            if not child.ends_within(choice.uniform(0.0, 0.25)):
                child.send_group(number)
            # minus the signal: before its handler was there, or after the command's end
            assert child.wait() in (0, CODES[number], -number), child.text
            assert "Traceback" not in child.text
            assert "bug" not in child.text
        finish(nursery, folder, undisturbed)
        again(folder)


@pytest.mark.parametrize("phase", ["setup", "epoch"])
def test_in_a_run_that_goes_on(nursery: Nursery, folder: Path, phase: str) -> None:
    """What is on disk is said, though nothing of it is loaded yet."""
    words = ("train", "pausing.yaml", "--epochs", "1")
    assert nursery.start("pausing:command", "", *words, folder=folder).wait() == 0
    child = start_until(nursery, folder, phase)
    child.send_group(signal.SIGINT)
    child.wait_for_text("SIGINT: no new work starts")
    (folder / "go").touch()
    assert child.wait() == 130, child.text
    where = "1 (epoch 1)" if phase == "setup" else "2 (epoch 2, after 1 task)"
    assert f"  checkpoint  runs/pausing/checkpoint_{where}" in child.text
    assert "pausing: interrupted after 1 epoch" in child.text
    state = RunDir(folder / "runs/pausing").state()
    assert state is not None
    assert (state.state, state.epoch) == ("interrupted", 1)
    assert state.elapsed > 0


def test_a_failure_in_setup_of_a_run_that_goes_on(nursery: Nursery, folder: Path) -> None:
    """The run does not forget how far it has come."""
    words = ("train", "pausing.yaml", "--epochs", "1")
    assert nursery.start("pausing:command", "", *words, folder=folder).wait() == 0
    child = nursery.start("pausing:command", "fail", "train", "pausing.yaml", folder=folder)
    assert child.wait() == 1, child.text
    assert "  checkpoint  runs/pausing/checkpoint_1 (epoch 1)" in child.text
    state = RunDir(folder / "runs/pausing").state()
    assert state is not None
    assert (state.state, state.epoch) == ("error", 1)


@pytest.mark.parametrize("phase", ["struck epoch", "struck save"])
def test_one_that_does_not_wake_the_main_thread(
    nursery: Nursery, folder: Path, undisturbed: tuple[Any, str], phase: str
) -> None:
    """As one that comes just before the main thread begins to wait: it is said at once all the
    same, and not when a task or save, which may take hours, is over.
    """
    child = start_until(nursery, folder, phase)
    child.wait_for_text("SIGTERM: no new work starts")
    assert not (folder / "go").exists()
    assert child.code is None
    (folder / "go").touch()
    assert child.wait() == 143, child.text
    finish(nursery, folder, undisturbed)


@pytest.mark.parametrize("number", CODES)
def test_one_that_python_loses(
    nursery: Nursery, folder: Path, undisturbed: tuple[Any, str], number: signal.Signals
) -> None:
    """No exception can be raised out of a callback: a signal that comes in one counts too."""
    child = nursery.start("pausing:command", f"lost {number.name}", "train", "pausing.yaml",
                          folder=folder)  # fmt: skip
    assert child.wait() == CODES[number], child.text
    assert f"{number.name}: exited before the run began" in child.text
    assert "Traceback" not in child.text
    finish(nursery, folder, undisturbed)
