"""The runner: saves inside an epoch, signals, and going on at the very next batch.

What a whole run does, with its numbers, is in ``tests/acceptance``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun import CheckpointManager, Job, JobRunner, LocalSession, Pipe, Task
from jobrun.analysis import accesses
from jobrun.analysis.accesses import Access, access
from jobrun.checkpoint.catalog import Catalog
from jobrun.core.current_task import CurrentTask, task_here
from jobrun.core.events import CheckpointSaved, EpochFinished, Event, RunEnded, Warned
from jobrun.engine.resume_policy import Request
from jobrun.errors import LockedError, RunRefusedError, SpecError, TaskError, UsageError
from jobrun.model.policy import CheckpointPolicy, Every

ROWS = 100


def load() -> np.ndarray:
    return np.arange(float(ROWS))


def make(rng: np.random.Generator) -> dict[str, Any]:
    return {"w": rng.normal(size=5), "n": 0}


def noisy(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return x + rng.normal(size=x.shape)


def step(x: np.ndarray, model: dict[str, Any]) -> float:
    model["w"] += x.mean()
    model["n"] += 1
    return float(x.sum())


def summary(loss: float, model: dict[str, Any]) -> float:
    return loss * 2 + model["n"]


def first(model: dict[str, Any]) -> float:
    return float(model["w"][0])


def wide(model: dict[str, Any]) -> np.ndarray:
    return model["w"] * 2


def total(a: np.ndarray, loss: float) -> float:
    return float(a.sum()) + loss


def job_of(every: Every, *, step: Callable[..., Any] = step, epochs: int = 2) -> Job:
    """25 batches an epoch, with tasks before and behind the pipe, and scratch between them."""
    with Job(
        "cuts",
        seed=3,
        metrics={"loss": "min", "z": None, "early": "min"},
        checkpoint=CheckpointPolicy(every),
    ) as job:
        with job.setup:
            Task(load, out="rows")
        with job.init:
            Task(make, ["rng"], out="model")
        Task(first, ["model"], out="early")
        Task(wide, ["model"], out="wide")
        Pipe(
            {"x": "rows"},
            batch=4,
            shuffle=True,
            map=[Task(noisy, ["x", "rng"], out="x")],
            do=[Task(step, ["x"], update=["model"], out="loss", name="step")],
            name="train",
        )
        Task(summary, ["loss", "model"], out="z")
        Task(total, ["wide", "loss"], out="t")
        job.stop(epochs=epochs, patience={"loss": 50})
    return job


Place = tuple[int, int]


def places(run_dir: Path) -> list[Place]:
    """(epoch going on, batch) of every checkpoint; the end of an epoch is its batch 25."""
    found = []
    for record in Catalog(run_dir).listed():
        batches = [p.batches for p in record.position.pipes.values()]
        if batches:
            found.append((record.epoch + 1, batches[0]))
        elif "train" in record.position.tasks:
            found.append((record.epoch + 1, 25))
        else:
            found.append((record.epoch, 25 if record.epoch else 0))
    return found


def result(runner: JobRunner) -> dict[str, Any]:
    assert runner.outcome is not None
    blobs = {n: v.tobytes() if hasattr(v, "tobytes") else v for n, v in runner.blobs.items()}
    blobs.pop("model", None)
    return {**blobs, **{f"metric {n}": v for n, v in runner.outcome.metrics.items()}}


def train(
    run_dir: Path, every: Every, threads: int = 2, report: Callable[[Event], None] | None = None
) -> JobRunner:
    runner = JobRunner(job_of(every), CheckpointManager(run_dir), report=report or (lambda e: None))
    runner.train(LocalSession(threads))
    return runner


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return result(train(tmp_path_factory.mktemp("whole") / "run", Every()))


def test_epochs_and_batches_whichever_comes_first(tmp_path: Path, undisturbed: Any) -> None:
    runner = train(tmp_path / "run", Every(epochs=1, batches=10))
    assert places(tmp_path / "run") == [
        (0, 0), (1, 10), (1, 20), (1, 25), (2, 10), (2, 20), (2, 25),
    ]  # fmt: skip
    assert result(runner) == undisturbed


def test_batches_alone_count_over_the_borders_of_epochs(tmp_path: Path, undisturbed: Any) -> None:
    runner = train(tmp_path / "run", Every(epochs=None, batches=10))
    found = list(dict.fromkeys(places(tmp_path / "run")))
    assert found == [(0, 0), (1, 10), (1, 20), (2, 5), (2, 15), (2, 25)]
    assert result(runner) == undisturbed


def interrupted_at_save(run_dir: Path, every: Every, number: int, threads: int) -> None:
    """Run until a save was said for the ``number``-th time."""
    saves = 0

    def report(event: Event) -> None:
        nonlocal saves
        saves += isinstance(event, CheckpointSaved)
        if isinstance(event, CheckpointSaved) and saves == number:
            runner.interrupt("SIGTERM")

    runner = JobRunner(job_of(every), CheckpointManager(run_dir), report=report)
    runner.train(LocalSession(threads))


@pytest.mark.parametrize("threads", [1, 8])
def test_stopped_after_any_save_it_goes_on_at_the_next_batch(
    tmp_path: Path, undisturbed: Any, threads: int
) -> None:
    every = Every(epochs=None, batches=9)
    for number in range(1, 7):
        run_dir = tmp_path / f"run{number}"
        interrupted_at_save(run_dir, every, number, threads)
        assert result(train(run_dir, every, threads)) == undisturbed


def interrupted_at_batch(run_dir: Path, target: int) -> JobRunner:
    """Run until a signal comes within the ``target``-th batch."""
    calls = 0

    def counted(x: np.ndarray, model: dict[str, Any]) -> float:
        nonlocal calls
        calls += 1
        if calls == target:
            runner.interrupt("SIGTERM")
        return step(x, model)

    counted.__module__, counted.__qualname__ = step.__module__, step.__qualname__
    runner = JobRunner(job_of(Every(), step=counted), CheckpointManager(run_dir))
    runner.train(LocalSession(2))
    return runner


def test_a_signal_at_any_batch_saves_there(tmp_path: Path, undisturbed: Any) -> None:
    for target in sorted({1, 25, 26, *random.Random(7).sample(range(1, 50), 6)}):
        run_dir = tmp_path / f"run{target}"
        outcome = interrupted_at_batch(run_dir, target).outcome
        assert outcome is not None
        assert (outcome.outcome, outcome.exit_code) == ("interrupted", 143)
        epoch, batch = divmod(target - 1, 25)
        assert places(run_dir)[-1] == (epoch + 1, batch + 1)
        assert result(train(run_dir, Every())) == undisturbed


def test_save_soon_saves_at_the_next_place(tmp_path: Path, undisturbed: Any) -> None:
    calls = 0

    def asking(x: np.ndarray, model: dict[str, Any]) -> float:
        nonlocal calls
        calls += 1
        if calls == 7:
            runner.save_soon("SIGUSR1")
        return step(x, model)

    asking.__module__, asking.__qualname__ = step.__module__, step.__qualname__
    runner = JobRunner(job_of(Every(), step=asking), CheckpointManager(tmp_path / "run"))
    runner.train(LocalSession(2))
    assert places(tmp_path / "run") == [(0, 0), (1, 7), (1, 25), (2, 25)]
    assert result(runner) == undisturbed


def test_resume_inside_an_epoch_by_id(tmp_path: Path, undisturbed: Any) -> None:
    train(tmp_path / "run", Every(epochs=1, batches=10))
    for id in (5, 2, 1):
        runner = JobRunner(
            job_of(Every(epochs=1, batches=10)),
            CheckpointManager(tmp_path / "run"),
            request=Request(command="resume", id=id),
        )
        runner.train(LocalSession(2))
        assert result(runner) == undisturbed


def test_finished_tasks_of_the_epoch_are_not_run_again(tmp_path: Path) -> None:
    ran: list[str] = []

    def counting(model: dict[str, Any]) -> float:
        ran.append("early")
        return first(model)

    counting.__module__, counting.__qualname__ = first.__module__, first.__qualname__

    def report(event: Event) -> None:
        if isinstance(event, CheckpointSaved) and event.id == 1:
            runner.interrupt("SIGINT")

    job = job_of(Every(epochs=None, batches=10), epochs=1)
    job.epoch.tasks[0].fn = counting
    runner = JobRunner(job, CheckpointManager(tmp_path / "run"), report=report)
    runner.train(LocalSession(1))
    assert runner.outcome is not None
    assert runner.outcome.exit_code == 130
    again = job_of(Every(epochs=None, batches=10), epochs=1)
    again.epoch.tasks[0].fn = counting
    JobRunner(again, CheckpointManager(tmp_path / "run")).train(LocalSession(1))
    assert ran == ["early"]


class Handle:
    """Something that no checkpoint can hold."""


def open_handle() -> Handle:
    return Handle()


def use(handle: Handle, x: np.ndarray, model: dict[str, Any]) -> None:
    model["w"] += x.mean()


def test_scratch_that_cannot_be_saved_lets_the_cut_wait(tmp_path: Path) -> None:
    with Job("opaque", checkpoint=CheckpointPolicy(Every(epochs=None, batches=2))) as job:
        with job.setup:
            Task(load, out="rows")
        with job.init:
            Task(make, ["rng"], out="model")
        Task(open_handle, out="handle")
        Pipe({"x": "rows"}, batch=25, do=[Task(use, ["handle", "x"], update=["model"])])
        job.stop(epochs=2)
    runner = JobRunner(job, CheckpointManager(tmp_path / "run"))
    assert runner.train(LocalSession(1)) == 2
    assert [r.epoch for r in Catalog(tmp_path / "run").listed() if r.at_boundary] == [0, 1, 2]
    assert all(r.at_boundary for r in Catalog(tmp_path / "run").listed())


def test_walltime_is_looked_at_at_a_cut(tmp_path: Path, undisturbed: Any) -> None:
    job = job_of(Every(epochs=1, batches=10))
    job.stop(walltime=1e-9)
    runner = JobRunner(job, CheckpointManager(tmp_path / "run"))
    runner.train(LocalSession(2))
    assert runner.outcome is not None
    assert runner.outcome.outcome == "finished"
    assert "walltime" in runner.outcome.reason
    assert places(tmp_path / "run")[-1] == (1, 10)
    assert result(train(tmp_path / "run", Every(epochs=1, batches=10))) == undisturbed


def failing(x: np.ndarray, model: dict[str, Any]) -> float:
    raise ZeroDivisionError("in the middle")


def test_a_failing_task_ends_the_run_and_leaves_what_is_saved(tmp_path: Path) -> None:
    events: list[Event] = []
    job = job_of(Every(), step=failing)
    runner = JobRunner(job, CheckpointManager(tmp_path / "run"), report=events.append)
    with pytest.raises(TaskError, match="in the middle"):
        runner.train(LocalSession(2))
    ended = events[-1]
    assert isinstance(ended, RunEnded)
    assert (ended.outcome, ended.exit_code, ended.on_disk) == ("error", 1, 0)
    assert places(tmp_path / "run") == [(0, 0)]


def test_a_metric_that_is_none_is_said_once() -> None:
    """Not one that is not due, nor one that is None in a later epoch."""
    with Job("j") as job:
        with job.init:
            Task(lambda: 0, out="n", name="zero")
        Task(lambda n: n + 1, "n", out="n", name="count")
        Task(lambda: None, out="forgotten", name="forgets")
        Task(lambda: 1.0, out="seldom", name="seldom", every=2)
        Task(lambda n: None if n == 2 else 1.0, "n", out="later", name="later")
        job.metrics.update(forgotten="min", seldom="min", later="min")
        job.stop(epochs=3)
    events: list[Event] = []
    JobRunner(job, report=events.append).train(LocalSession(1))
    assert [e.message for e in events if isinstance(e, Warned)] == [
        "metric 'forgotten' has no value in epoch 1: it was None, or not written"
    ]


def test_between_two_epochs_no_task_is_the_current_one() -> None:
    """Else what a reporter prints would be logged as a print of the last task."""
    current: list[CurrentTask | None] = []

    def report(event: Event) -> None:
        if isinstance(event, EpochFinished):
            current.append(task_here())

    with Job("j") as job:
        Task(lambda: 1.0, out="loss", name="loss")
        job.stop(epochs=2)
    JobRunner(job, report=report).train(LocalSession(2))
    assert current == [None, None]


def test_a_job_that_cannot_be_is_refused_with_all_problems() -> None:
    with Job("wrong") as job:
        Task(step, ["nothing"], update=["model"])
    with pytest.raises(SpecError) as raised:
        JobRunner(job)
    assert len(raised.value.problems) >= 2


def test_a_second_runner_is_refused_while_the_first_runs(tmp_path: Path) -> None:
    def report(event: Event) -> None:
        if isinstance(event, CheckpointSaved) and event.id == 0:
            other = JobRunner(job_of(Every()), CheckpointManager(tmp_path / "run"))
            with pytest.raises(LockedError, match="held by"):
                other.train(LocalSession(1))

    train(tmp_path / "run", Every(), report=report)


def counting(name: str, inside: Callable[[], None]) -> Job:
    """A job of three epochs, each of which calls ``inside``."""

    def count(n: int) -> int:
        inside()
        return n + 1

    with Job(name) as job:
        with job.init:
            Task(lambda: 0, out="n", name="start")
        with job.epoch:
            Task(count, "n", out="n")
        job.stop(epochs=3)
    return job


def nothing() -> None:
    pass


def refused(start: Callable[[], int], kind: type[Exception], message: str) -> Callable[[], None]:
    def inside() -> None:
        with pytest.raises(kind, match=message):
            start()

    return inside


def test_what_one_train_uses_no_other_does(tmp_path: Path) -> None:
    """Two at once in one run wrote into each other's saves; in one session they hung."""
    session, manager = LocalSession(2), CheckpointManager(tmp_path / "r")
    again = JobRunner(counting("again", nothing))
    cases: list[tuple[Callable[[], int], type[Exception], str]] = [
        (lambda: runner.train(), UsageError, "this JobRunner is in train"),
        (lambda: again.train(session), UsageError, "this session runs another job"),
        (
            lambda: JobRunner(counting("outer", nothing), manager).train(),
            LockedError,
            "held by this CheckpointManager",
        ),
    ]
    for number, case in enumerate(cases):
        held = None if number == 0 else manager
        runner = JobRunner(counting("outer", refused(*case)), held)
        assert runner.train(session) == 3
        assert runner.blobs["n"] == 3
        manager = CheckpointManager(tmp_path / f"r{number}")
    assert again.train(session) == 3  # one after another they may


def test_interrupt_before_anything_has_run(tmp_path: Path) -> None:
    runner = JobRunner(job_of(Every()), CheckpointManager(tmp_path / "run"))
    runner.interrupt("SIGINT")
    assert runner.train(LocalSession(1)) == 0
    assert runner.outcome is not None
    assert (runner.outcome.exit_code, runner.outcome.on_disk) == (130, None)


def test_batches_are_not_counted_where_nothing_is_saved() -> None:
    runner = JobRunner(job_of(Every(batches=4)))
    assert runner.train(LocalSession(1)) == 2


def test_each_task_is_looked_at_once_for_a_whole_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: Counter[str] = Counter()

    def counted(job: Job, task: Task, node: str) -> Access:
        looks[task.name] += 1
        return access(job, task, node)

    monkeypatch.setattr(accesses, "access", counted)
    with Job("looks", metrics={"count": "max"}) as job:
        with job.init:
            Task(lambda: 0, out="count", name="begin")
        Task(lambda count: count + 1, in_="count", out="count", name="add")
        job.stop(epochs=2)
    JobRunner(job, CheckpointManager(tmp_path / "run")).train(LocalSession(1))
    assert looks == {"begin": 1, "add": 1}


def test_in_a_notebook_progress_is_shown_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def report(event: Event) -> None:
        seen.append(type(event).__name__)

    monkeypatch.setattr("jobrun.report.notebook.in_notebook", lambda: True)
    monkeypatch.setattr("jobrun.report.python.progress_report", lambda: report)
    with Job("j") as job:
        with job.init:
            Task(float, out="x")
        job.stop(epochs=1)
    JobRunner(job, CheckpointManager(tmp_path)).train()
    assert seen[0] == "RunStarted"
    assert seen[-1] == "RunEnded"


def append(epoch: int, out: str) -> None:
    with open(out, "a") as file:
        file.write(f"{epoch}\n")


def test_a_job_of_python_writes_into_its_run_and_resumes_with_accepted_changes(
    tmp_path: Path,
) -> None:
    def job(epochs: int, name: str) -> Job:
        with Job("frames") as made:
            Task(append, "epoch", {"out": "${run.dir}/" + name})
            made.stop(epochs=epochs)
        return made

    def train(made: Job, **options: Any) -> int:
        return JobRunner(made, CheckpointManager(tmp_path / "run"), **options).train()

    assert train(job(2, "a.txt")) == 2
    assert (tmp_path / "run/a.txt").read_text() == "1\n2\n"
    with pytest.raises(RunRefusedError, match=r"epoch\.append\.with\.out"):
        train(job(3, "b.txt"))
    assert train(job(3, "b.txt"), accept_changes=True) == 3
    assert (tmp_path / "run/b.txt").read_text() == "3\n"
