"""Two trainers on one run, and readers that look while it is trained."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from children import Nursery
from crash_job import prove_all
from pausing import SPEC
from watching import BLOBS, make_job
from whole_runs import state_of_disk

from jobrun import CheckpointManager, JobRunner, LocalSession, open_checkpoint
from jobrun.checkpoint.catalog import listed
from jobrun.errors import JobrunError


@pytest.mark.parametrize("words", [("train", "pausing.yaml"), ("resume", "runs/pausing")])
@pytest.mark.parametrize("phase", ["epoch", "save"])
def test_a_second_trainer_is_refused(
    nursery: Nursery, place: Path, phase: str, words: tuple[str, ...]
) -> None:
    """And leaves alone what the first one is saving: it is no leftover while that lives."""
    (place / "pausing.yaml").write_text(SPEC)
    first = nursery.start("pausing:command", phase, "train", "pausing.yaml", folder=place)
    first.wait_for(place / f"at-{phase}")
    saving = list(place.glob("runs/pausing/.checkpoint_2.partial-*"))
    assert len(saving) == (phase == "save")
    before = [state_of_disk(partial) for partial in saving]
    second = nursery.start("pausing:command", "", *words, folder=place)
    assert second.wait() == 8, second.text
    assert f"the run is held by process {first.pid} on " in second.text
    assert "Traceback" not in second.text
    assert [state_of_disk(partial) for partial in saving] == before
    (place / "go").touch()
    assert first.wait() == 0, first.text
    prove_all(place / "runs/pausing")
    again = nursery.start("pausing:command", "", *words, folder=place)
    assert again.wait() == 0, again.text
    assert "nothing is left to do" in again.text


def test_of_many_trainers_at_once_one_trains(nursery: Nursery, place: Path) -> None:
    """All others are refused, or find the run finished: none of them starts another one."""
    (place / "pausing.yaml").write_text(SPEC)
    words = ("train", "pausing.yaml", "--epochs", "1")
    assert nursery.start("pausing:command", "", *words, folder=place).wait() == 0
    rivals = [
        nursery.start("pausing:command", "", "train", "pausing.yaml", folder=place)
        for _ in range(6)
    ]
    codes = sorted(rival.wait() for rival in rivals)
    assert codes[0] == 0
    assert set(codes) <= {0, 8}, "\n".join(rival.text for rival in rivals)
    assert [p.name for p in (place / "runs").iterdir()] == ["pausing"]
    assert [r.id for r in listed(place / "runs/pausing")] == [0, 1, 2, 3]


def test_each_read_is_one_whole_epoch(nursery: Nursery, place: Path, long: bool) -> None:
    """Retention keeps one checkpoint, and takes it from under the readers' hands."""
    run, stop = place / "run", place / "stop"
    trainer = nursery.start("watching:train", run, 1000 if long else 60)
    trainer.wait_for(run / "checkpoint_0")
    ways = ["python", "command"] * 2
    readers = [nursery.start("watching:watch", run, way, stop) for way in ways]
    assert trainer.wait(600) == 0, trainer.text
    stop.touch()
    for reader in readers:
        assert reader.wait() == 0, reader.text
        told = json.loads(reader.text)
        assert told["reads"] >= told["epochs"] > 1


def test_a_checkpoint_held_open_while_retention_deletes_it(place: Path) -> None:
    """What is gone is an error for who holds it open, and never zeros."""
    run = place / "run"
    runner = JobRunner(make_job(2), CheckpointManager(run))
    runner.train(LocalSession(1))
    (record,) = listed(run)
    held = open_checkpoint(run / f"checkpoint_{record.id}")
    arrays = [held[f"main/tree/b{i}"] for i in range(BLOBS)]
    assert np.all(arrays[0][:] == 2)
    assert np.all(held["main/count"][:] == 2)
    JobRunner(make_job(3), CheckpointManager(run)).train(LocalSession(1))
    assert [r.id for r in listed(run)] == [record.id + 1]
    for array in arrays:
        with pytest.raises((JobrunError, OSError, KeyError)):
            array[:]
