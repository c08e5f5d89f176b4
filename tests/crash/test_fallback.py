"""A run whose newest checkpoints are damaged goes on from the one before, and ends the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from children import Nursery, Places
from crash_job import leftovers, prove_all, result_of

from jobrun.checkpoint.catalog import listed


@pytest.fixture(scope="module")
def undisturbed(nursery: Nursery, module_places: Places) -> dict[str, Any]:
    run = module_places() / "run"
    assert nursery.start("crash_job:train", run, "all").wait() == 0
    return result_of(run)


def begin(nursery: Nursery, run: Path, policy: str, name: str) -> list[int]:
    """A run that was killed where something is renamed to ``name``; the ids that it leaves."""
    child = nursery.start("crash_job:train", run, policy, 1, [0, "rename", name])
    assert child.wait() == -9, child.text
    return [r.id for r in listed(run)]


def flip(checkpoint: Path) -> None:
    """Damage that only reading finds: a bit in the middle of a blob."""
    path = checkpoint / "main/model/scale/0"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.unlink()  # it may have other names
    path.write_bytes(data)


def cut(checkpoint: Path) -> None:
    """Damage that listing finds: a file that is too short."""
    path = checkpoint / "manifest.main.json"
    data = path.read_bytes()[:-9]
    path.unlink()
    path.write_bytes(data)


DAMAGES = {"flip": flip, "cut": cut}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("count", [1, 2])
def test_the_newest_are_damaged(
    nursery: Nursery, place: Path, undisturbed: dict[str, Any], damage: str, count: int
) -> None:
    run = place / "run"
    ids = begin(nursery, run, "all", "/checkpoint_5")
    assert ids == [0, 1, 2, 3, 4]
    for id in ids[-count:]:
        DAMAGES[damage](run / f"checkpoint_{id}")
    child = nursery.start("crash_job:train", run, "all")
    assert child.wait() == 0, child.text
    log = (run / "log.txt").read_text()
    for id in ids[-count:]:
        assert f"warning: checkpoint_{id} is skipped" in log
    assert f"loaded checkpoint_{ids[-count - 1]} " in log
    moved = sorted(p.name for p in (run / "attempts/1").iterdir())
    assert moved == [f"checkpoint_{id}" for id in ids[-count:]]
    assert result_of(run) == undisturbed  # with one row for each epoch in metrics.csv
    assert leftovers(run) == ["attempts"]
    assert min(r.id for r in prove_all(run) if r.id > ids[-count - 1]) > ids[-1]


@pytest.mark.parametrize("policy", ["one", "three, inline", "two or every third"])
def test_what_retention_keeps_is_fallen_back_on(
    nursery: Nursery, place: Path, undisturbed: dict[str, Any], policy: str
) -> None:
    """Few checkpoints are kept: neither the good one nor the damaged one is removed too early."""
    run = place / "run"
    ids = begin(nursery, run, policy, ".checkpoint_3.trash-")
    assert ids[0] <= 3 < ids[-1]
    flip(run / f"checkpoint_{ids[-1]}")
    child = nursery.start("crash_job:train", run, policy)
    assert child.wait() == 0, child.text
    assert f"loaded checkpoint_{ids[-2]} " in (run / "log.txt").read_text()
    assert os.listdir(run / "attempts/1") == [f"checkpoint_{ids[-1]}"]
    assert result_of(run) == undisturbed
    assert leftovers(run) == ["attempts"]


def test_none_is_whole(nursery: Nursery, place: Path) -> None:
    """Nothing is thrown away and nothing begun anew: that is for the user to decide."""
    run = place / "run"
    ids = begin(nursery, run, "all", "/checkpoint_5")
    for id in ids:
        flip(run / f"checkpoint_{id}")
    child = nursery.start("crash_job:train", run, "all")
    assert child.wait() == 5, child.text
    assert [r.id for r in listed(run)] == ids
