"""Interrupted equals uninterrupted, bit for bit: random jobs, killed anywhere, on any threads."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_jobs import build, descriptions, equal
from whole_runs import (
    MEMORY,
    Ended,
    bytes_of_checkpoints,
    facts_of_checkpoints,
    records,
    train,
    train_and_die,
)

from jobrun import load_blobs

EPOCHS = 3
deaths = st.lists(st.integers(0, EPOCHS), min_size=1, max_size=2, unique=True).map(sorted)
threads = st.sampled_from([1, 8])
slow = (HealthCheck.too_slow, HealthCheck.data_too_large)


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


@settings(deadline=None, suppress_health_check=slow, max_examples=40)
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


@settings(deadline=None, suppress_health_check=slow, max_examples=20)
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
