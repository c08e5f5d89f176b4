"""Interrupted equals uninterrupted, bit for bit: random jobs, killed anywhere, on any threads."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import random_nodes
from engine import cut_after
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from random_jobs import build, descriptions, equal
from whole_runs import (
    MEMORY,
    Ended,
    bytes_of_checkpoints,
    facts_of_checkpoints,
    records,
    start,
    train,
    train_and_die,
)

from jobrun import CheckpointPolicy, Job, LocalSession, Task, load_blobs
from jobrun.analysis.graph import Plan
from jobrun.core.position import Position
from jobrun.session.base import Control
from jobrun.storage.fs import DEFAULT

EPOCHS = 3
LONG = bool(os.environ.get("JOBRUN_LONG"))
deaths = st.lists(st.integers(0, EPOCHS), min_size=1, max_size=2, unique=True).map(sorted)
threads = st.sampled_from([1, 8])
slow = (HealthCheck.too_slow, HealthCheck.data_too_large)
fixture = (HealthCheck.function_scoped_fixture,)


def assert_same_runs(one: Path, other: Path) -> None:
    """Every file of every checkpoint is the same, and what ``_SUCCESS`` says beside times."""
    left, right = bytes_of_checkpoints(one), bytes_of_checkpoints(other)
    assert list(left) == list(right)
    for name in left:
        assert left[name] == right[name], name
    assert facts_of_checkpoints(one) == facts_of_checkpoints(other)


def assert_disk_is_memory(ended: Ended, run_dir: Path) -> None:
    """The last checkpoint, loaded, is what the workspace holds: kinds, dtypes, order and bits."""
    loaded = load_blobs(run_dir, {n.split("/")[0] for n in load_blobs(run_dir)})
    for name, value in loaded.items():
        assert equal(value, ended.blobs[name]), name


@settings(deadline=None, suppress_health_check=slow, max_examples=200 if LONG else 15)
@given(descriptions, deaths, st.data())
def test_a_run_killed_at_any_epochs_and_resumed_equals_one_left_alone(
    description: dict[str, Any], deaths: list[int], data: st.DataObject
) -> None:
    with TemporaryDirectory(dir=MEMORY) as folder:
        alone, killed = Path(folder, "alone"), Path(folder, "killed")
        ended = train(build(description, EPOCHS), alone, threads=data.draw(threads))
        for after in deaths:
            train_and_die(build(description, EPOCHS), killed, after, threads=data.draw(threads))
        resumed = train(build(description, EPOCHS), killed, threads=data.draw(threads))
        assert resumed.epochs == ended.epochs == EPOCHS
        assert_same_runs(alone, killed)
        assert_disk_is_memory(ended, alone)
        assert_disk_is_memory(resumed, killed)


@settings(deadline=None, suppress_health_check=slow, max_examples=100 if LONG else 8)
@given(descriptions, threads)
def test_three_epochs_are_one_epoch_and_two_more(description: dict[str, Any], count: int) -> None:
    with TemporaryDirectory(dir=MEMORY) as folder:
        whole, parts = Path(folder, "whole"), Path(folder, "parts")
        train(build(description, EPOCHS), whole, threads=count)
        train(build(description, 1), parts, threads=count)
        resumed = train(build(description, EPOCHS), parts, threads=count)
        assert resumed.outcome.ran == 2
        assert bytes_of_checkpoints(whole) == bytes_of_checkpoints(parts)
        assert [r.position for r in records(whole)] == [r.position for r in records(parts)]
        assert_disk_is_memory(resumed, parts)


# Cut anywhere, over nodes, with objects that no checkpoint holds.


class CutSession(LocalSession):
    """Interrupts the run at its look number ``place``, counted from 0, for a cut of ``epoch``."""

    def __init__(self, threads: int, place: int) -> None:
        super().__init__(threads)
        self._is_due = cut_after(place)
        self.ended: Ended | None = None

    def run(self, plan: Plan, position: Position, control: Control) -> Position:
        """See Session."""
        if plan.group != "epoch":
            return super().run(plan, position, control)

        def cut() -> bool:
            assert self.ended is not None
            if self._is_due():
                self.ended.runner.interrupt("SIGTERM")
            return control.cut()

        return super().run(plan, position, replace(control, cut=cut))


def train_cut(description: dict[str, Any], run_dir: Path, threads: int, place: int) -> Ended:
    """Train from where the run stands until it is cut at a place, or to its end."""
    session = CutSession(threads, place)
    job = random_nodes.build(description, remembers=False)
    session.ended = ended = start(job, run_dir, session=session)
    ended.epochs = ended.runner.train(session)
    return ended


@settings(deadline=None, suppress_health_check=slow, max_examples=60 if LONG else 4)
@given(
    random_nodes.descriptions,
    st.sampled_from([1, 2, 8]),
    st.lists(st.integers(2, 12), min_size=1, max_size=12),
)
@example(random_nodes.WAITING_COPY, 2, [4, 2, 3, 2, 4, 9])
def test_a_run_over_nodes_that_is_cut_anywhere_and_resumed_equals_one_left_alone(
    description: dict[str, Any], count: int, cuts: list[int]
) -> None:
    """Each resume is a new session, with new objects; a cut comes after any task or batch."""
    with TemporaryDirectory(dir=MEMORY) as folder:
        alone, cut = Path(folder, "alone"), Path(folder, "cut")
        ended = train_cut(description, alone, 1, 1 << 30)
        for place in cuts:
            if train_cut(description, cut, count, place).outcome.outcome == "finished":
                break
        resumed = train_cut(description, cut, count, 1 << 30)
        assert resumed.epochs == ended.epochs == 2
        left, right = (load_blobs(run) for run in (alone, cut))
        assert list(left) == list(right) == random_nodes.names(description)
        for name in left:
            assert equal(left[name], right[name]), name


# Saves in flight.


@pytest.fixture
def _slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write waits a little, so that epochs run while a save is still under way."""
    monkeypatch.setattr(DEFAULT, "at", lambda op, path: time.sleep(0.001 * (op == "write")))


@pytest.mark.usefixtures("_slow_disk")
@settings(deadline=None, suppress_health_check=[*slow, *fixture], max_examples=30 if LONG else 3)
@given(descriptions, threads)
def test_a_save_in_flight_holds_the_state_of_its_epoch(
    description: dict[str, Any], count: int
) -> None:
    with TemporaryDirectory(dir=MEMORY) as folder:
        for background in (True, False):
            job = build(description, EPOCHS, background=background)
            train(job, Path(folder, str(background)), threads=count)
        assert_same_runs(Path(folder, "True"), Path(folder, "False"))


def large(epochs: int, *, background: bool) -> Job:
    """Updates of arrays that are large enough for their memory to be used again."""

    def make() -> dict[str, Any]:
        return {"w": np.arange(30_000.0), "b": [np.ones(20_000), np.zeros((100, 100), order="F")]}

    def step(model: dict[str, Any], flat: np.ndarray, epoch: int) -> np.ndarray:
        for array in (model["w"], *model["b"], flat):
            array *= 0.5
            array += epoch
        return model["w"] if epoch % 3 else model["w"][::2]

    with Job("large", checkpoint=CheckpointPolicy(background=background, include=("*",))) as job:
        with job.init:
            Task(make, out="model")
            Task(lambda: np.arange(40_000), out="same", name="same")
            Task(lambda same: same.astype(float), "same", out="flat", name="flat")
        Task(step, {"epoch": None}, update={"model": None, "flat": None}, out="view")
        Task(lambda view: view, "view", out="alias", name="alias")
        Task(lambda flat: flat + 1, "flat", out="flat", name="replace", every=2)
        job.stop(epochs=epochs)
    return job


@pytest.mark.usefixtures("_slow_disk")
@pytest.mark.parametrize("count", [1, 8])
def test_memory_that_saves_release_never_changes_what_another_save_holds(
    run_dir: Path, count: int
) -> None:
    for background in (True, False):
        train(large(12, background=background), run_dir / str(background), threads=count)
    train_and_die(large(12, background=True), run_dir / "killed", 7, threads=count)
    train(large(12, background=True), run_dir / "killed", threads=count)
    assert_same_runs(run_dir / "True", run_dir / "False")
    assert_same_runs(run_dir / "True", run_dir / "killed")
