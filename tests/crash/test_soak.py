"""Many epochs: files, descriptors, threads and memory stay as many as they were."""

from __future__ import annotations

import json
from pathlib import Path

from children import Nursery
from crash_job import leftovers, prove_all


def test_nothing_grows(nursery: Nursery, place: Path, long: bool) -> None:
    epochs = 2000 if long else 150
    child = nursery.start("soaking:train", place / "run", epochs)
    assert child.wait(3600 if long else 90) == 0, child.text
    samples = json.loads(child.text)
    first, last = samples[3], samples[9]
    between = last["epoch"] - first["epoch"]
    assert between == epochs * 6 // 10
    opened = [sample["descriptors"] for sample in samples]  # one more while a save writes
    assert min(opened[6:]) <= min(opened[1:5]), samples
    assert last["threads"] <= first["threads"] + 2, samples  # pools make theirs when needed
    assert last["files"] - first["files"] < 30, samples  # those being written or removed just now
    # two thousand: caches that still fill
    assert last["blocks"] - first["blocks"] < 2000 + between / 2, samples
    assert last["kilobytes"] - first["kilobytes"] < 4096, samples
    assert [r.epoch for r in prove_all(place / "run")] == [epochs - 2, epochs - 1, epochs]
    assert leftovers(place / "run") == []
