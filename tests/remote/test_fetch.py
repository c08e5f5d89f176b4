"""A run that is brought back: proven, named, and ready to go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobrun import CheckpointManager, JobRunner, LocalSession, load_blobs
from jobrun.errors import DamagedError, NotFoundError
from jobrun.job import Job, Task
from jobrun.remote.fetch import RUN_FILES, checkpoints_at, fetch
from jobrun.remote.store import join, open_store
from jobrun.remote.upload import upload_checkpoint, upload_files


def start() -> int:
    return 0


def add(total: int) -> int:
    return total + 1


def count(run: Path, epochs: int) -> int:
    with Job("count") as job:
        with job.init:
            Task(start, out="total")
        Task(add, in_="total", out="total")
    job.stop(epochs=epochs)
    return JobRunner(job, CheckpointManager(run)).train(LocalSession(1))


@pytest.fixture
def uploaded(tmp_path: Path, place: str) -> str:
    """A run of three epochs, of which the checkpoints of epochs 1 to 3 are elsewhere."""
    count(tmp_path / "here" / "counted", 3)
    store = open_store(place)
    for id in (1, 2, 3):
        upload_checkpoint(tmp_path / "here" / "counted" / f"checkpoint_{id}", store)
    upload_files(tmp_path / "here" / "counted", RUN_FILES, store)
    return store.place


def test_the_newest_and_it_goes_on(uploaded: str, tmp_path: Path) -> None:
    run = fetch(uploaded, tmp_path / "runs")
    assert run.path == tmp_path / "runs" / "counted"
    assert [r.id for r in run.records()] == [3]
    assert count(run.path, 5) == 5
    assert load_blobs(run.path) == {"total": 5}
    assert fetch(uploaded, tmp_path / "runs").path.name == "counted-2"


def test_a_named_one(uploaded: str, tmp_path: Path) -> None:
    by_url = fetch(join(uploaded, "checkpoint_2"), tmp_path / "a")
    by_epoch = fetch(uploaded, tmp_path / "b", epoch=1)
    by_id = fetch(uploaded, tmp_path / "c", id=2)
    assert [r.epoch for run in (by_url, by_epoch, by_id) for r in run.records()] == [2, 1, 2]


def test_what_is_not_there(uploaded: str, tmp_path: Path) -> None:
    for options in ({"epoch": 9}, {"id": 9}):
        with pytest.raises(NotFoundError, match="9"):
            fetch(uploaded, tmp_path / "runs", **options)
    with pytest.raises(NotFoundError):
        fetch(join(uploaded, "nothing"), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_one_without_success_is_passed_over(uploaded: str, tmp_path: Path) -> None:
    store = open_store(uploaded)
    store.write("checkpoint_7/zarr.json", b"{}")
    store.write("checkpoint_8/_SUCCESS", b"nonsense")
    assert list(checkpoints_at(store)) == [1, 2, 3]
    assert [r.id for r in fetch(uploaded, tmp_path / "runs").records()] == [3]


def test_damage_is_found_before_it_has_a_name(uploaded: str, tmp_path: Path) -> None:
    store = open_store(uploaded)
    store.write("checkpoint_3/main/total/zarr.json", b"{}")
    with pytest.raises(DamagedError) as caught:
        fetch(uploaded, tmp_path / "runs")
    assert str(caught.value.where).startswith(join(store.place, "checkpoint_3"))
    assert [p.name for p in (tmp_path / "runs").rglob("*checkpoint*")] == []
