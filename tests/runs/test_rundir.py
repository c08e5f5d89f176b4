"""A run directory: run.json, rewinds, and what a crash in between leaves."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jobrun.checkpoint.manager import CheckpointManager
from jobrun.errors import DamagedError, LockedError, NotFoundError, SaveError
from jobrun.runs.run_state import Rewind, RunState
from jobrun.runs.rundir import RunDir
from jobrun.storage.fs import Fs

STATE = RunState(
    name="sum",
    job="sum",
    digest="abc",
    facts={"vars": {"lr": 0.1, "name": "é"}},
    code={"sum.py": "0" * 64},
    folder="/somewhere",
    folder_relative="../../somewhere",
    spec="sum.yaml",
    state="interrupted",
    reason="SIGINT",
    epoch=5,
    elapsed=12.5,
    attempts=1,
    next_id=6,
)


class Killed(BaseException):
    """The process dies here."""


class KillAt(Fs):
    """Dies before the operation of a number."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.seen = 0

    def at(self, op: str, path: str) -> None:
        """Count the operations that change something."""
        if op in ("open", "list", "stat", "read", "close"):
            return
        self.seen += 1
        if self.seen > self.number:
            raise Killed(op)


def save(path: Path, *epochs: int) -> None:
    """Save checkpoints of these epochs."""
    with CheckpointManager(path, job="sum", digest="abc") as manager:
        for epoch in epochs:
            manager.save(epoch, {"main": {"total": np.array([epoch])}})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was interrupted after five epochs."""
    run = RunDir(tmp_path_factory.mktemp("made") / "sum")
    save(run.path, 0, 1, 2, 3, 4, 5)
    run.write(STATE)
    return run.path


@pytest.fixture
def run(made: Path, tmp_path: Path) -> RunDir:
    """A copy of it."""
    return RunDir(shutil.copytree(made, tmp_path / "sum"))


def entries(path: Path) -> list[str]:
    return sorted(e for e in os.listdir(path) if e.startswith("checkpoint_"))


# run.json


def test_the_state_comes_back_as_it_was_written(run: RunDir) -> None:
    found = run.state()
    assert found is not None
    assert found.updated == found.created != ""
    assert replace(found, created="", updated="") == STATE


def test_writing_again_keeps_the_time_of_creation(run: RunDir) -> None:
    first = run.state()
    assert first is not None
    run.write(replace(first, epoch=6))
    second = run.state()
    assert second is not None
    assert (second.created, second.epoch) == (first.created, 6)
    assert second.updated > first.updated


def test_no_run_has_no_state(tmp_path: Path) -> None:
    assert RunDir(tmp_path / "none").state() is None
    assert RunDir(tmp_path).state() is None
    assert not RunDir(tmp_path).is_run()
    assert RunDir(tmp_path / "none").head() is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"format": 1}',
        "null",
        '{"format": 1, "name": "sum", "job": "sum", "rewind": null, "state": "sleeping"}',
        '{"format": 1, "name": "sum", "job": "sum", "rewind": null, "epoch": "5"}',
        '{"format": 1, "name": "sum", "job": "sum", "rewind": {"x": 1}}',
        "\x00\x01",
    ],
)
def test_a_torn_state_is_rebuilt_from_the_checkpoints(run: RunDir, text: str) -> None:
    (run.path / "run.json").write_text(text)
    state = run.state()
    assert state is not None
    assert (state.rebuilt, state.state, state.epoch, state.next_id) == (True, "interrupted", 5, 6)
    assert (state.job, state.digest, state.name) == ("sum", "abc", "sum")
    assert state.reason == "run.json was lost, and rebuilt from the checkpoints"


def test_a_lost_state_is_rebuilt_and_can_be_written(run: RunDir) -> None:
    (run.path / "run.json").unlink()
    run.store_spec("name: sum\n", "name: sum\n")
    state = run.state()
    assert state is not None
    assert (state.rebuilt, state.built_in_python, state.spec) == (True, False, "spec.yaml")
    run.write(state)
    again = run.state()
    assert again is not None
    assert not again.rebuilt


def test_a_torn_state_without_checkpoints_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")
    assert RunDir(tmp_path).state() is None


def test_the_state_of_a_newer_jobrun_is_not_taken_for_torn(run: RunDir) -> None:
    (run.path / "run.json").write_text('{"format": 2}')
    with pytest.raises(DamagedError, match="format 2"):
        run.state()


def test_a_key_that_this_jobrun_does_not_know_is_not_dropped_silently(run: RunDir) -> None:
    data = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps(data | {"colour": "red"}))
    state = run.state()
    assert state is not None
    assert state.rebuilt


@pytest.mark.parametrize("number", range(5))
def test_a_crash_while_writing_leaves_the_old_state_or_the_new(tmp_path: Path, number: int) -> None:
    path = tmp_path / "sum"
    RunDir(path).write(STATE)
    with contextlib.suppress(Killed):
        RunDir(path, fs=KillAt(number)).write(replace(STATE, epoch=6))
    run = RunDir(path)
    state = run.state()
    assert state is not None
    assert state.epoch in (5, 6)
    left = run.clean()
    assert all(name.startswith(".run.json.") for name in left)
    assert [e for e in os.listdir(path) if e.startswith(".")] == []


def test_clean_touches_only_our_own_leftovers(run: RunDir) -> None:
    ours = [".run.json.0123abcd", ".spec.yaml.0123abcd", ".spec.resolved.yaml.0123abcd"]
    theirs = [".DS_Store", ".run.json.mine", "notes.txt", "run.json.0123abcd"]
    for name in ours + theirs:
        (run.path / name).write_text("x")
    assert run.clean() == sorted(ours)
    assert all((run.path / name).exists() for name in theirs)


def test_a_state_that_cannot_be_written_is_a_save_error(run: RunDir) -> None:
    class Full(Fs):
        def at(self, op: str, path: str) -> None:
            if op == "write":
                raise OSError(28, "No space left on device")

    with pytest.raises(SaveError, match=r"run\.json cannot be written"):
        RunDir(run.path, fs=Full()).write(replace(STATE, epoch=6))
    state = run.state()
    assert state is not None
    assert state.epoch == 5
    assert run.clean() == []


def test_the_spec_is_kept(run: RunDir) -> None:
    run.store_spec("name: é\n", "name: é\nseed: 0\n")
    assert run.spec_path.read_text(encoding="utf-8") == "name: é\n"
    assert run.resolved_path.read_text(encoding="utf-8") == "name: é\nseed: 0\n"


# The lock.


def test_running_while_the_lock_is_free_is_interrupted(run: RunDir) -> None:
    run.write(replace(STATE, state="running", reason=""))
    state = run.state()
    assert state is not None
    assert (state.state, state.reason) == (
        "interrupted",
        "the process was killed or crashed (no end recorded)",
    )
    run.lock()
    for one in (run, RunDir(run.path)):
        state = one.state()
        assert state is not None
        assert state.state == "running"
    with pytest.raises(LockedError):
        RunDir(run.path).lock()
    run.unlock()
    assert not run.held()


def test_a_manager_of_the_same_directory_shares_its_lock(run: RunDir) -> None:
    manager = CheckpointManager(run.path)
    manager.save(6, {"main": {"total": 1}})
    shared = RunDir(run.path, lock=manager.lock)
    shared.lock()
    assert RunDir(run.path).held()
    manager.close()
    assert not shared.held()


# Checkpoints and rewinds.


def test_checkpoints_are_found_by_epoch_and_id(run: RunDir) -> None:
    head, second = run.checkpoint(), run.checkpoint(epoch=2)
    assert (head is not None and head.id, second is not None and second.id) == (5, 2)
    assert [r.epoch for r in run.records()] == [0, 1, 2, 3, 4, 5]
    with pytest.raises(NotFoundError, match=r"no checkpoint of epoch 9; there are 0\.\.5"):
        run.checkpoint(epoch=9)
    with pytest.raises(NotFoundError, match="no checkpoint of id 9"):
        run.checkpoint(id=9)


def test_a_rewind_moves_what_is_later(run: RunDir) -> None:
    assert run.rewind(2) == [3, 4, 5]
    assert entries(run.path) == ["checkpoint_0", "checkpoint_1", "checkpoint_2"]
    assert entries(run.path / "attempts/1") == ["checkpoint_3", "checkpoint_4", "checkpoint_5"]
    state = run.state()
    assert state is not None
    assert (state.next_id, state.rewind) == (6, None)
    save_after = CheckpointManager(run.path, first_id=run.next_id())
    assert save_after.save(3, {"main": {"total": 1}}) == 6
    assert run.finish_rewind() == []
    assert [r.id for r in run.records()] == [0, 1, 2, 6]


def test_a_second_rewind_goes_to_its_own_attempt(run: RunDir) -> None:
    run.rewind(4)
    state = run.state()
    assert state is not None
    run.write(replace(state, attempts=2))
    save(run.path, 5)
    assert run.rewind(1) == [2, 3, 4, 6]
    assert entries(run.path / "attempts/1") == ["checkpoint_5"]
    assert run.next_id() == 7


def test_a_running_attempt_leaves_the_one_before_it(run: RunDir) -> None:
    run.write(replace(STATE, state="running", attempts=3))
    run.lock()
    run.rewind(4)
    run.unlock()
    assert entries(run.path / "attempts/2") == ["checkpoint_5"]


def test_a_rewind_to_the_newest_does_nothing(run: RunDir) -> None:
    before = (run.path / "run.json").read_bytes()
    assert run.rewind(5) == []
    assert (run.path / "run.json").read_bytes() == before
    assert not (run.path / "attempts").exists()


@pytest.mark.parametrize("number", range(24))
def test_a_crash_at_any_place_of_a_rewind_is_completed(run: RunDir, number: int) -> None:
    fs = KillAt(number)
    try:
        RunDir(run.path, fs=fs).rewind(2)
        done = True
    except Killed:
        done = False
    found = RunDir(run.path)
    head = found.head()
    assert head is not None
    knows = head.id == 2
    assert knows or head.id == 5  # run.json did not know yet: as if it was never asked for
    assert [r.id for r in found.records()] == list(range(head.id + 1))
    found.finish_rewind()
    found.clean()
    assert found.finish_rewind() == []
    left = entries(found.path) + (
        entries(found.path / "attempts/1") if (found.path / "attempts/1").exists() else []
    )
    assert sorted(left) == [f"checkpoint_{i}" for i in range(6)]
    assert entries(found.path) == [f"checkpoint_{i}" for i in range(head.id + 1)]
    assert found.next_id() == 6
    state = found.state()
    assert state is not None
    assert state.rewind is None
    assert not (done and not knows)


def test_a_rewind_under_way_is_seen_as_done(run: RunDir) -> None:
    run.write(replace(STATE, rewind=Rewind(2, 6, 1)))
    head = run.head()
    assert head is not None
    assert head.id == 2
    with pytest.raises(NotFoundError, match=r"no checkpoint of epoch 4; there are 0\.\.2"):
        run.checkpoint(epoch=4)
    with pytest.raises(NotFoundError, match="no checkpoint of id 5"):
        run.checkpoint(id=5)
    one = run.checkpoint(epoch=1)
    assert one is not None
    assert one.id == 1


def test_rewinding_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no run to rewind"):
        RunDir(tmp_path).rewind(0)


def test_passed_over_checkpoints_are_set_aside(run: RunDir) -> None:
    run.set_aside([5, 3], 2)
    assert entries(run.path / "attempts/2") == ["checkpoint_3", "checkpoint_5"]
    run.set_aside([], 3)
    assert not (run.path / "attempts/3").exists()


def test_ids_count_what_was_moved_and_what_is_not_whole(run: RunDir) -> None:
    (run.path / "checkpoint_9").mkdir()
    assert run.next_id() == 10
    run.set_aside([9], 1)
    (run.path / "run.json").unlink()
    assert run.next_id() == 10


def test_listing_needs_neither_numpy_nor_zarr() -> None:
    code = (
        "import sys, jobrun.runs.find\n"
        "jobrun.runs.find.list_runs('.')\n"
        "print([m for m in ('numpy', 'zarr', 'rich', 'yaml') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
