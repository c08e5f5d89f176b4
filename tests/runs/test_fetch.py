"""A run that is brought back: proven, named, and ready to go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobrun import CheckpointManager, JobRunner, LocalSession, load_blobs
from jobrun.errors import DamagedError, NotFoundError
from jobrun.model.job import Job, Task
from jobrun.remote.find import find_at
from jobrun.remote.store import join, open_store
from jobrun.remote.upload import upload_checkpoint, upload_files
from jobrun.runs.fetch import RUN_FILES, fetch


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
    run = fetch(find_at(uploaded), tmp_path / "runs")
    assert run.path == tmp_path / "runs" / "counted"
    assert [r.id for r in run.records()] == [3]
    assert count(run.path, 5) == 5
    assert load_blobs(run.path) == {"total": 5}
    assert fetch(find_at(uploaded), tmp_path / "runs").path.name == "counted-2"


def test_a_named_one(uploaded: str, tmp_path: Path) -> None:
    by_url = fetch(find_at(join(uploaded, "checkpoint_2")), tmp_path / "a")
    by_epoch = fetch(find_at(uploaded, epoch=1), tmp_path / "b")
    by_id = fetch(find_at(uploaded, id=2), tmp_path / "c")
    assert [r.epoch for run in (by_url, by_epoch, by_id) for r in run.records()] == [2, 1, 2]


def test_without_run_json_it_is_no_run(uploaded: str, tmp_path: Path) -> None:
    store = open_store(join(uploaded, "copies"))
    upload_checkpoint(tmp_path / "here" / "counted" / "checkpoint_2", store)
    with pytest.raises(NotFoundError, match=r"there is no run\.json") as caught:
        fetch(find_at(store.place), tmp_path / "runs")
    assert "load-blobs" in caught.value.hint
    assert not (tmp_path / "runs").exists()


def test_damage_is_found_before_it_has_a_name(uploaded: str, tmp_path: Path) -> None:
    store = open_store(uploaded)
    name = "checkpoint_3/main/total/zarr.json"
    store.write(name, store.read(name).replace(b"zarr", b"ZARR"))
    with pytest.raises(DamagedError) as caught:
        fetch(find_at(uploaded), tmp_path / "runs")
    assert str(caught.value.where).startswith(join(store.place, "checkpoint_3"))
    assert [p.name for p in (tmp_path / "runs").rglob("*checkpoint*")] == []
    assert fetch(find_at(uploaded, id=2), tmp_path / "runs").path.name == "counted"


class Killed(BaseException):
    """Stands for a kill: nothing is cleaned up."""


def test_a_fetch_that_was_killed_leaves_nothing_behind(
    uploaded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object) -> None:
        raise Killed

    monkeypatch.setattr("jobrun.runs.fetch._prove", kill)
    monkeypatch.setattr("jobrun.checkpoint.publish._remove", lambda *_: None)
    with pytest.raises(Killed):
        fetch(find_at(uploaded), tmp_path / "runs")
    assert len(list((tmp_path / "runs" / "counted").glob(".checkpoint_3.partial-*"))) == 1
    monkeypatch.undo()
    run = fetch(find_at(uploaded), tmp_path / "runs")
    assert run.path == tmp_path / "runs" / "counted"
    assert not list(run.path.glob(".*"))


def test_what_is_no_file_of_a_checkpoint_is_left_there(uploaded: str, tmp_path: Path) -> None:
    store = open_store(uploaded)
    store.write("checkpoint_3/main/.zarr.json.partial-0123456789abcdef", b"{")
    run = fetch(find_at(uploaded), tmp_path / "runs")
    assert (run.path / "checkpoint_3" / "main" / "zarr.json").is_file()
    assert [p for p in run.path.rglob("*") if p.name.startswith(".")] == []


def test_a_name_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    count(tmp_path / "here" / "counted", 1)
    store = open_store(f"memory://{tmp_path.name}")
    upload_checkpoint(tmp_path / "here" / "counted" / "checkpoint_1", store)
    upload_files(tmp_path / "here" / "counted", RUN_FILES, store)
    store.write("checkpoint_1/../../evil", b"x")
    assert "../../evil" in store.sizes("checkpoint_1")
    fetch(find_at(store.place), tmp_path / "runs")
    assert not list(tmp_path.rglob("evil"))
