"""The upload of a run: after the loop, once, resumable, and never over another run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun import CheckpointManager, JobRunner, LocalSession
from jobrun.checkpoint.catalog import Catalog
from jobrun.core.events import Event, Uploaded
from jobrun.errors import BindError, StoreError, TaskError
from jobrun.model.job import Job, Node, Task
from jobrun.model.policy import CheckpointPolicy, Keep, Upload
from jobrun.remote.files import RemoteFs


def start() -> Any:
    return np.zeros(2)


def add(w: Any) -> None:
    w += 1


class Ran:
    """What ran after the loop, in order."""

    order: list[str] = []  # noqa: RUF012 - emptied by each test


def downloaded(w: Any) -> None:
    Ran.order.append("download")


def ended(w: Any) -> None:
    Ran.order.append("exit")


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    Ran.order.clear()


def make(upload: Upload, *, epochs: int = 3, keep: Keep = Keep(last=2)) -> Job:  # noqa: B008
    with Job("j", checkpoint=CheckpointPolicy(keep=keep), upload=upload) as job:
        with job.init:
            Task(start, out="w")
        Task(add, update="w")
        with job.download:
            Task(downloaded, in_="w")
        with job.exit:
            Task(ended, in_="w")
    job.stop(epochs=epochs)
    return job


def train(job: Job, run: Path) -> tuple[JobRunner, list[Event]]:
    events: list[Event] = []
    runner = JobRunner(job, CheckpointManager(run), report=events.append)
    runner.train(LocalSession(1))
    return runner, events


def ids(place: Path) -> list[int]:
    return [record.id for record in Catalog(str(place), RemoteFs()).listed()]


def test_the_final_one_before_download_and_exit(tmp_path: Path) -> None:
    _, events = train(make(Upload(str(tmp_path / "there"))), tmp_path / "run")
    assert ids(tmp_path / "there") == [3]
    assert Ran.order == ["download", "exit"]
    (said,) = (e for e in events if isinstance(e, Uploaded))
    assert (said.id, said.sent) == (3, said.files)
    assert (tmp_path / "there" / "run.json").is_file()


def test_all_that_are_kept(tmp_path: Path) -> None:
    train(make(Upload(str(tmp_path / "there"), what="kept")), tmp_path / "run")
    assert ids(tmp_path / "there") == [2, 3]


def test_of_three_nodes_three_parts(tmp_path: Path) -> None:
    with Job("j", nodes=["a", "b", "c"], upload=Upload(str(tmp_path / "there"))) as job:
        with job.init, Node("*"):
            Task(start, out="w")
        with job.epoch, Node("*"):
            Task(add, update="w")
    job.stop(epochs=1)
    parts = [tmp_path / "there" / "checkpoint_1" / f"manifest.{n}.json" for n in "abc"]
    assert not any(p.exists() for p in parts)
    train(job, tmp_path / "run")
    assert all(p.is_file() for p in parts)


def test_a_failure_is_said_and_the_run_resumes_there(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("a file stands in the way")
    job = make(Upload(str(tmp_path / "there")))
    runner = JobRunner(job, CheckpointManager(tmp_path / "run"))
    with pytest.raises(StoreError):
        runner.train(LocalSession(1))
    assert runner.outcome is not None
    assert (runner.outcome.outcome, runner.outcome.exit_code) == ("error", 1)
    assert Ran.order == []
    (tmp_path / "there").unlink()
    again, _ = train(make(Upload(str(tmp_path / "there"))), tmp_path / "run")
    assert again.outcome is not None
    assert (again.outcome.outcome, again.outcome.ran) == ("finished", 0)
    assert ids(tmp_path / "there") == [3]
    assert Ran.order == ["download", "exit"]


def test_what_is_there_is_not_sent_again(tmp_path: Path) -> None:
    job = make(Upload(str(tmp_path / "there")))
    failing = Task("m:f", in_="w", name="fails")
    failing.fn = lambda w: 1 / 0
    job.exit.tasks.append(failing)
    for expected in (True, False):
        events: list[Event] = []
        runner = JobRunner(job, CheckpointManager(tmp_path / "run"), report=events.append)
        with pytest.raises(TaskError):
            runner.train(LocalSession(1))
        (said,) = (e for e in events if isinstance(e, Uploaded))
        assert (said.sent > 0) is expected


def test_another_run_at_the_place_is_never_mixed_in(tmp_path: Path) -> None:
    upload = Upload(str(tmp_path / "there"))
    train(make(upload), tmp_path / "run")
    before = (tmp_path / "there" / "run.json").read_bytes()
    for epochs in (3, 4):
        with pytest.raises(StoreError, match="is already there"):
            train(make(upload, epochs=epochs), tmp_path / f"other-{epochs}")
    assert ids(tmp_path / "there") == [3]
    assert (tmp_path / "there" / "run.json").read_bytes() == before


def test_a_signal_stops_it_between_files(tmp_path: Path) -> None:
    runner: JobRunner | None = None

    def interrupt(event: Event) -> None:
        if isinstance(event, Uploaded):
            assert runner is not None
            runner.interrupt("SIGTERM")

    job = make(Upload(str(tmp_path / "there"), what="kept"))
    runner = JobRunner(job, CheckpointManager(tmp_path / "run"), report=interrupt)
    runner.train(LocalSession(1))
    assert runner.outcome is not None
    assert (runner.outcome.outcome, runner.outcome.exit_code) == ("interrupted", 143)
    assert ids(tmp_path / "there") == [2]
    assert Ran.order == []
    train(job, tmp_path / "run")
    assert ids(tmp_path / "there") == [2, 3]


def test_a_function_instead(tmp_path: Path) -> None:
    calls: list[tuple[str, str]] = []

    def send(path: str, bucket: str) -> None:
        calls.append((Path(path).name, bucket))
        if len(calls) == 2:
            raise OSError("the line is down")

    upload = Upload(call=send, literals={"bucket": "b"}, what="kept")
    with pytest.raises(TaskError, match="the upload of checkpoint_3 failed: OSError") as caught:
        train(make(upload), tmp_path / "run")
    assert "the line is down" in caught.value.trace
    train(make(upload), tmp_path / "run")
    assert calls == [("checkpoint_2", "b"), ("checkpoint_3", "b"), ("checkpoint_3", "b")]
    assert Ran.order == ["download", "exit"]


def test_a_failed_run_is_not_uploaded(tmp_path: Path) -> None:
    job = make(Upload(str(tmp_path / "there")))
    job.fail(epochs=2)
    train(job, tmp_path / "run")
    assert not (tmp_path / "there").exists()


def test_where_may_be_changed_at_any_time(tmp_path: Path) -> None:
    train(make(Upload(str(tmp_path / "a"))), tmp_path / "run")
    runner, _ = train(make(Upload(str(tmp_path / "b")), epochs=4), tmp_path / "run")
    assert runner.outcome is not None
    assert runner.outcome.ran == 1
    assert (ids(tmp_path / "a"), ids(tmp_path / "b")) == ([3], [4])


@pytest.mark.parametrize(
    ("upload", "message"),
    [
        (Upload("unheard-of://x/y"), "cannot be opened"),
        (Upload(call="no_such_module_here:f"), "no_such_module_here"),
    ],
)
def test_what_cannot_be_is_found_before_the_run(
    upload: Upload, message: str, tmp_path: Path
) -> None:
    with pytest.raises(BindError, match=message):
        train(make(upload), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_whose_checkpoints_are_removed_on_success(tmp_path: Path) -> None:
    policy = CheckpointPolicy(on_success="delete")
    job = make(Upload(str(tmp_path / "there")))
    job.checkpoint = policy
    train(job, tmp_path / "run")
    assert ids(tmp_path / "there") == [3]
    assert not list((tmp_path / "run").glob("checkpoint_*"))
    shutil.rmtree(tmp_path / "there")


def test_when_a_run_was_created_never_changes(tmp_path: Path) -> None:
    """It tells two runs apart at one place."""
    from jobrun.runs.rundir import RunDir

    seen = []

    def look(event: Event) -> None:
        state = RunDir(tmp_path / "run").state()
        seen.append(state.created if state is not None else None)

    for epochs in (1, 2):
        job = make(Upload(str(tmp_path / "there")), epochs=epochs)
        JobRunner(job, CheckpointManager(tmp_path / "run"), report=look).train(LocalSession(1))
        look(Uploaded(0, "", 0, 0, 0, 0.0))
    assert len(set(seen)) == 1
    assert seen[0]


@pytest.mark.parametrize("text", ["[]", "null", '"x"'])
def test_a_run_json_of_something_else_is_not_overwritten(text: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "run.json").write_text(text)
    with pytest.raises(StoreError, match="is already there"):
        train(make(Upload(str(tmp_path / "there"))), tmp_path / "run")
    assert (tmp_path / "there" / "run.json").read_text() == text
