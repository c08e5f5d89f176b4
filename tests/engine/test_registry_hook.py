"""A site's own record: asked where to resume, asked before saves, told of all; never in the way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun import (
    Catalogue,
    CheckpointManager,
    CheckpointPolicy,
    Job,
    JobRunner,
    LocalSession,
    Task,
)
from jobrun.core.events import (
    CheckpointFailed,
    CheckpointLoaded,
    CheckpointsRemoved,
    Event,
    RunStarted,
    Warned,
)
from jobrun.engine.resume_policy import Request
from jobrun.errors import BindError, DamagedError, NotFoundError, SaveError, TaskError
from jobrun.model.policy import Keep
from jobrun.runs.rundir import RunDir


def start() -> Any:
    return np.zeros(2)


def add(w: Any) -> None:
    w += 1


class Notes(Catalogue):
    """Writes down every call."""

    def __init__(self, latest: int | None = None) -> None:
        self.epoch = latest
        self.calls: list[tuple[str, Any]] = []
        self.run = ""

    def latest(self, run: str) -> int | None:
        self.run = run
        return self.epoch

    def accessible(self, run: str, id: int) -> bool:
        assert run == self.run
        self.calls.append(("accessible", id))
        return True

    def written(self, run: str, checkpoint: Mapping[str, Any]) -> None:
        assert run == self.run
        assert (Path(checkpoint["path"]) / "_SUCCESS").is_file()
        self.calls.append(("written", checkpoint["id"]))

    def report(self, run: str, event: Mapping[str, Any]) -> None:
        assert run == self.run
        self.calls.append(("report", event["event"]))


def make(catalogue: object, epochs: int = 3, **policy: Any) -> Job:
    with Job("j", checkpoint=CheckpointPolicy(catalogue=catalogue, **policy)) as job:
        with job.init:
            Task(start, out="w")
        Task(add, update="w")
    job.stop(epochs=epochs)
    return job


def train(
    catalogue: object, run: Path, epochs: int = 3, request: Request | None = None, **policy: Any
) -> tuple[JobRunner, list[Event]]:
    events: list[Event] = []
    job = make(catalogue, epochs, **policy)
    runner = JobRunner(job, CheckpointManager(run), report=events.append, request=request)
    runner.train(LocalSession(1))
    return runner, events


def loaded(events: list[Event]) -> list[int]:
    return [e.epoch for e in events if isinstance(e, CheckpointLoaded)]


def notes(events: list[Event]) -> tuple[str, ...]:
    (started,) = (e for e in events if isinstance(e, RunStarted))
    return started.notes


# Told.


def test_every_save_is_asked_for_and_told(tmp_path: Path) -> None:
    found = Notes()
    train(found, tmp_path / "run", 2, background=False)
    assert found.run == str(tmp_path / "run")
    assert found.calls == [
        *[
            call
            for id in range(3)
            for call in (("accessible", id), ("written", id), ("report", "CheckpointSaved"))
        ],
        ("report", "RunEnded"),
    ]


def test_what_is_written_down(tmp_path: Path) -> None:
    class Facts(Catalogue):
        seen: list[Mapping[str, Any]] = []  # noqa: RUF012 - one for the test

        def written(self, run: str, checkpoint: Mapping[str, Any]) -> None:
            self.seen.append(checkpoint)

    train(Facts, tmp_path / "run", 1)
    record = RunDir(tmp_path / "run").catalog.check(1)
    assert Facts.seen[1] == {
        "id": 1,
        "epoch": 1,
        "place": "epoch 1",
        "path": str(tmp_path / "run/checkpoint_1"),
        "time": record.time,
        "bytes": record.bytes,
        "files": record.files,
        "metrics": {},
        "job": "j",
    }


def test_loads_and_removals_are_told(tmp_path: Path) -> None:
    train(None, tmp_path / "run", 2)
    found = Notes()
    train(found, tmp_path / "run", 4, keep=Keep(last=1))
    told = [what for call, what in found.calls if call == "report"]
    assert told[0] == "CheckpointLoaded"
    assert "CheckpointsRemoved" in told
    assert told[-1] == "RunEnded"


def test_the_manager_is_free_of_it_afterwards(tmp_path: Path) -> None:
    found = Notes()
    manager = CheckpointManager(tmp_path / "run")
    JobRunner(make(found), manager).train(LocalSession(1))
    before = list(found.calls)
    manager.save(4, {"main": {"w": 1}})
    manager.close()
    assert found.calls == before


# Asked where to resume.


def test_its_epoch_is_where_a_run_is_resumed(tmp_path: Path) -> None:
    train(None, tmp_path / "run", 3)
    runner, events = train(Notes(1), tmp_path / "run", 4)
    assert loaded(events) == [1]
    assert notes(events)[0] == "the catalogue names epoch 1; the newest checkpoint is of epoch 3"
    assert runner.blobs["w"].tolist() == [4, 4]
    assert runner.outcome is not None
    assert runner.outcome.ran == 3
    left = tmp_path / "run" / "attempts" / "1"
    assert sorted(p.name for p in left.iterdir()) == ["checkpoint_2", "checkpoint_3"]


@pytest.mark.parametrize("epoch", [None, 3])
def test_none_and_the_newest_change_nothing(epoch: int | None, tmp_path: Path) -> None:
    train(None, tmp_path / "run", 3)
    _, events = train(Notes(epoch), tmp_path / "run", 4)
    assert loaded(events) == [3]
    assert not any("catalogue names" in note for note in notes(events))


@pytest.mark.parametrize(
    ("request_", "epoch", "said"),
    [
        (Request(epoch=2), 2, "the catalogue names epoch 1, but epoch 2 was requested"),
        (Request(id=0), 0, "the catalogue names epoch 1, but checkpoint_0 was requested"),
    ],
)
def test_what_is_asked_for_counts_and_both_are_said(
    request_: Request, epoch: int, said: str, tmp_path: Path
) -> None:
    train(None, tmp_path / "run", 3)
    _, events = train(Notes(1), tmp_path / "run", 4, request_)
    assert loaded(events) == [epoch]
    assert notes(events)[0] == said


def test_a_fresh_run_does_not_ask(tmp_path: Path) -> None:
    train(None, tmp_path / "run", 3)
    runner, events = train(Notes(9), tmp_path / "run", 1, Request(fresh=True))
    assert loaded(events) == []
    assert runner.outcome is not None
    assert runner.outcome.epoch == 1


def test_an_epoch_that_is_not_there(tmp_path: Path) -> None:
    train(None, tmp_path / "run", 3)
    request = Request(afresh="jobrun train j.yaml --fresh")
    for run, there in ((tmp_path / "run", r"0\.\.3"), (tmp_path / "new", "none")):
        with pytest.raises(
            NotFoundError, match=rf"names epoch 9 of .*no checkpoint of epoch 9; there are {there}"
        ) as caught:
            train(Notes(9), run, 4, request)
        assert caught.value.exit_code == 5
        assert "--epoch" in caught.value.hint
        assert "jobrun train j.yaml --fresh" in caught.value.hint
    assert not (tmp_path / "new").exists()


def test_no_other_stands_in_for_one_that_is_damaged(tmp_path: Path) -> None:
    train(None, tmp_path / "run", 3)
    chunk = tmp_path / "run/checkpoint_2/main/w/0"
    data = bytearray(chunk.read_bytes())
    data[1] ^= 1
    chunk.write_bytes(data)
    with pytest.raises(DamagedError, match="checksum"):
        train(Notes(2), tmp_path / "run", 4)
    chunk.unlink()
    with pytest.raises(DamagedError, match=r"names epoch 2 of .*it is missing"):
        train(Notes(2), tmp_path / "run", 4)


def test_latest_that_fails_ends_it_with_the_users_own_lines(tmp_path: Path) -> None:
    class Broken(Catalogue):
        def latest(self, run: str) -> int | None:
            raise ConnectionError("the database is down")

    with pytest.raises(TaskError, match=r"latest\(\) failed: ConnectionError") as caught:
        train(Broken(), tmp_path / "run")
    assert 'raise ConnectionError("the database is down")' in caught.value.trace
    assert "jobrun/" not in caught.value.trace.replace(__file__, "")
    for answer in ("3", -1, 2.0, True):
        found = Notes()
        found.epoch = answer  # type: ignore[assignment]
        with pytest.raises(TaskError, match="expected a number of epochs or None"):
            train(found, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Asked before a save.


class Refusing(Notes):
    """Refuses some checkpoints."""

    def __init__(self, *refused: int) -> None:
        super().__init__()
        self.refused = refused

    def accessible(self, run: str, id: int) -> bool:
        return id not in self.refused


def test_a_save_that_is_refused_fails_and_leaves_nothing(tmp_path: Path) -> None:
    runner, events = train(Refusing(1), tmp_path / "run", 3)
    (failed,) = (e for e in events if isinstance(e, CheckpointFailed))
    assert failed.id == 1
    assert "accessible() returned False" in failed.message
    assert runner.outcome is not None
    assert runner.outcome.exit_code == 0
    names = sorted(p.name for p in (tmp_path / "run").iterdir() if "checkpoint" in p.name)
    assert names == ["checkpoint_0", "checkpoint_2", "checkpoint_3"]


def test_as_the_policy_says(tmp_path: Path) -> None:
    with pytest.raises(SaveError, match="checkpoint 1 was not saved: the catalogue"):
        train(Refusing(1), tmp_path / "a", on_error="fail")
    with pytest.raises(SaveError, match="checkpoint 0"):
        train(Refusing(0), tmp_path / "b")


# What goes wrong in it.


class Failing(Catalogue):
    """Everything but ``latest`` fails."""

    def accessible(self, run: str, id: int) -> bool:
        raise ValueError("asked")

    def written(self, run: str, checkpoint: Mapping[str, Any]) -> None:
        raise ValueError("told")

    def report(self, run: str, event: Mapping[str, Any]) -> None:
        raise ValueError


def test_failures_are_said_once_each_and_hurt_nothing(tmp_path: Path) -> None:
    runner, events = train(Failing(), tmp_path / "run", 3)
    assert runner.outcome is not None
    assert runner.outcome.exit_code == 0
    assert [r.id for r in RunDir(tmp_path / "run").records()] == [0, 1, 2, 3]
    said = sorted(e.message.rpartition(" (")[0] for e in events if isinstance(e, Warned))
    assert said == [
        "the catalogue's accessible() failed (reported once): ValueError: asked",
        "the catalogue's report() failed (reported once): ValueError",
        "the catalogue's written() failed (reported once): ValueError: told",
    ]
    assert all("test_registry_hook.py:" in e.message for e in events if isinstance(e, Warned))


# Which one.


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "a_site.py").write_text(
        "import jobrun\n"
        "class Record(jobrun.Catalogue):\n"
        "    made = 0\n"
        "    def latest(self, run): return 1\n"
        "def make(): return Record()\n"
        "here = Record()\n"
        "class Half:\n"
        "    def latest(self, run): return None\n"
        "class Bad:\n"
        "    def __init__(self): raise OSError('no such database')\n"
        "number = 3\n"
    )
    return tmp_path


@pytest.mark.parametrize("name", ["Record", "make", "here"])
def test_by_name(name: str, site: Path) -> None:
    train(None, site / "run", 3)
    _, events = train(f"a_site:{name}", site / "run", 4, Request(folder=site))
    assert loaded(events) == [1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Half", r"has no accessible\(\), written\(\), report\(\)"),
        ("Bad", "cannot be created: OSError: no such database"),
        ("number", r"has no latest\(\)"),
        ("other", "has no 'other'"),
    ],
)
def test_what_is_none(name: str, message: str, site: Path) -> None:
    with pytest.raises(BindError, match=message):
        train(f"a_site:{name}", site / "run", 3, Request(folder=site))
    assert not (site / "run").exists()


def test_it_may_be_changed_at_any_time(tmp_path: Path) -> None:
    train(None, tmp_path / "run", 2)
    runner, events = train(Notes(), tmp_path / "run", 3)
    assert runner.outcome is not None
    assert runner.outcome.ran == 1
    assert any("checkpoint.catalogue" in note for note in notes(events))


def test_that_all_are_removed_at_the_end_is_told_and_not_asked_after(tmp_path: Path) -> None:
    found = Notes()
    runner, events = train(found, tmp_path / "run", 2, on_success="delete")
    told = [what for call, what in found.calls if call == "report"]
    assert told[-2:] == ["CheckpointsRemoved", "RunEnded"]
    assert [e.ids for e in events if isinstance(e, CheckpointsRemoved)] == [(0, 1, 2)]
    assert runner.outcome is not None
    assert (runner.outcome.on_disk, runner.outcome.checkpoint) == (None, None)
    found.epoch = 2  # what it was told of last
    again, _ = train(found, tmp_path / "run", 2, on_success="delete")
    assert again.outcome is not None
    assert (again.outcome.outcome, again.outcome.epoch) == ("nothing", 2)
