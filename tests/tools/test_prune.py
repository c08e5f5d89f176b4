"""Removing checkpoints of a run: never the newest, never without the lock."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun import CheckpointManager
from jobrun.errors import JobrunError, LockedError
from jobrun.model.policy import Best, Keep
from jobrun.runs.rundir import RunDir
from jobrun.storage.fs import Fs
from jobrun.tools.prune import prune


def make(path: Path, epochs: int = 5) -> RunDir:
    with CheckpointManager(path) as manager:
        for epoch in range(epochs):
            manager.save(epoch, {"main": {"n": epoch}}, metrics={"loss": float(epoch % 3)})
    return RunDir(path)


keeps = st.builds(
    Keep,
    st.none() | st.integers(1, 6),
    st.none() | st.integers(1, 3),
    st.none() | st.builds(Best, st.just("loss"), smaller=st.booleans()),
).filter(lambda keep: not keep.all)


@settings(max_examples=15, deadline=None)
@given(keeps)
def test_a_dry_run_says_what_is_done(tmp_path_factory: pytest.TempPathFactory, keep: Keep) -> None:
    run = make(tmp_path_factory.mktemp("prune"))
    said = prune(run, keep, dry_run=True)
    assert [r.id for r in run.records()] == [0, 1, 2, 3, 4]
    done = prune(run, keep)
    assert said == done
    assert [r.id for r in run.records()] == list(done.kept)
    assert sorted(done.kept + done.removed) == [0, 1, 2, 3, 4]
    assert 4 in done.kept
    assert not run.held()


def test_the_lock(tmp_path: Path) -> None:
    run = make(tmp_path)
    other = RunDir(tmp_path)
    other.lock()
    with pytest.raises(LockedError):
        prune(run, Keep(last=1))
    assert len(run.records()) == 5
    other.unlock()
    assert prune(run, Keep(last=1)).kept == (4,)


def test_what_cannot_be_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(tmp_path)

    def refuse(fs: Fs, op: str, path: str) -> None:
        if op == "rename" and ".checkpoint_1." in path:
            raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(Fs, "at", refuse)
    with pytest.raises(JobrunError, match="checkpoint 1 cannot be removed: rename of"):
        prune(run, Keep(last=1))
    assert [r.id for r in run.records()] == [1, 2, 3, 4]
    assert not run.held()


def test_ids_are_not_given_again(tmp_path: Path) -> None:
    run = make(tmp_path)
    prune(run, Keep(last=1))
    with CheckpointManager(tmp_path) as manager:
        assert manager.save(9, {"main": {"n": 1}}) == 5
