"""When a save is due, what happens while it is in flight, and what if it fails."""

from __future__ import annotations

import errno
import os
import threading
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun import CheckpointManager, Job, JobRunner, LocalSession, Pipe, Task, load_blobs
from jobrun.checkpoint import trash
from jobrun.checkpoint.catalog import Catalog
from jobrun.core.events import (
    CheckpointFailed,
    CheckpointSaved,
    CheckpointsRemoved,
    EpochFinished,
    Event,
    JobrunWarning,
    RunEnded,
    SaveStarted,
    Warned,
)
from jobrun.engine import saver
from jobrun.engine.save_schedule import SaveSchedule
from jobrun.errors import SaveError, TaskError
from jobrun.model.policy import CheckpointPolicy, Compress, Every, Keep
from jobrun.storage.fs import Fs


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("jobrun.engine.save_schedule.time.monotonic", clock.monotonic)
    return clock


def due(**every: Any) -> SaveSchedule:
    return SaveSchedule(CheckpointPolicy(Every(**every)))


class TestDue:
    def test_first_state_is_always_due(self) -> None:
        assert due(epochs=100).after(0)

    def test_epochs_count_from_the_last_save(self) -> None:
        found = due(epochs=3)
        found.saved(0)
        assert [found.after(e) for e in (1, 2, 3, 4)] == [False, False, True, True]
        found.saved(4)
        assert [found.after(e) for e in (5, 6, 7)] == [False, False, True]

    def test_batches_count_over_the_borders_of_epochs(self) -> None:
        found = due(epochs=None, batches=3)
        found.saved(0)
        found.begin()
        found.applied(2)
        assert (found.batches_left(), found.after(1)) == (1, False)
        found.begin()
        found.applied(1)
        assert found.after(2)
        found.saved(2)
        found.begin()
        assert (found.batches_left(), found.after(3)) == (3, False)

    def test_batches_are_those_one_behind_another(self) -> None:
        """Two pipes that run at once: each counts from the beginning of the run."""
        found = due(epochs=None, batches=5)
        found.saved(0)
        found.begin()
        for applied in (1, 1, 2, 3, 2, 3):
            found.applied(applied)
        assert found.batches_left() == 2

    def test_a_save_after_batches_falls_where_the_session_holds(self) -> None:
        found = due(epochs=None, batches=1)
        found.saved(0)
        found.begin()
        found.applied(1)
        assert not found.inside()
        assert found.after(1)

    def test_seconds_count_over_the_borders_of_epochs(self, clock: Clock) -> None:
        found = due(epochs=None, seconds=10.0)
        found.saved(0)
        clock.now += 9
        assert not found.inside()
        assert not found.after(5)
        clock.now += 1
        assert found.inside()

    def test_min_gap_is_a_lower_bound(self, clock: Clock) -> None:
        found = due(epochs=1, batches=1, min_gap=5.0)
        found.saved(0)
        found.applied(1)
        assert found.batches_left() is None
        assert not found.inside()
        assert not found.after(1)
        clock.now += 5
        assert found.inside()
        assert found.after(1)

    def test_nothing_is_due_before_something_has_happened(self, clock: Clock) -> None:
        found = due(seconds=1)
        found.saved(2)
        clock.now += 2
        found.requested = True
        found.hold()
        assert not found.inside()
        assert not found.requested
        found.applied(1)
        assert found.inside()
        found.hold()
        assert found.after(3)
        assert found.inside()

    def test_asked_for_is_due_at_once(self) -> None:
        found = due(epochs=50)
        found.saved(0)
        found.requested = True
        assert found.inside()
        found.saved(0)
        assert not found.inside()

    def test_postponed_waits_for_the_end_of_the_epoch(self) -> None:
        found = due(epochs=50, batches=1)
        found.saved(0)
        found.applied(1)
        found.postpone()
        assert not found.inside()
        assert found.after(1)


def start() -> np.ndarray:
    return np.zeros(1 << 14)


def add(total: np.ndarray) -> None:
    total += 1


def job_of(epochs: int = 4, **policy: Any) -> Job:
    with Job("adds", checkpoint=CheckpointPolicy(**policy)) as job:
        with job.init:
            Task(start, out="total")
        Task(add, update="total")
        job.stop(epochs=epochs)
    return job


class Failing(Fs):
    """Fails every operation on checkpoints with these ids."""

    def __init__(self, *ids: int) -> None:
        self.ids = ids

    def at(self, op: str, path: str) -> None:
        if op == "write" and any(f".checkpoint_{id}.partial" in path for id in self.ids):
            raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def fail_saves(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(*ids: int) -> None:
        fs = Failing(*ids)
        from jobrun.checkpoint import part

        def write(directory: Any, parts: Any, **more: Any) -> Any:
            return part.write_parts(directory, parts, **{**more, "fs": fs})

        monkeypatch.setattr("jobrun.checkpoint.part_source.write_parts", write)

    return make


@pytest.mark.parametrize("background", [True, False])
class TestFailures:
    def test_a_failed_save_is_said_and_the_next_is_tried_in_full(
        self, tmp_path: Path, fail_saves: Any, background: bool
    ) -> None:
        fail_saves(2)
        events: list[Event] = []
        manager = CheckpointManager(tmp_path / "run")
        job = job_of(background=background)
        runner = JobRunner(job, manager, report=events.append)
        assert runner.train(LocalSession(1)) == 4
        failed = [e for e in events if isinstance(e, CheckpointFailed)]
        assert [(e.id, e.epoch) for e in failed] == [(2, 2)]
        assert "No space left" in failed[0].message
        assert [r.epoch for r in manager.catalog.listed()] == [0, 1, 3, 4]
        assert runner.outcome is not None
        assert runner.outcome.exit_code == 0
        assert (runner.outcome.saved, runner.outcome.failed_saves) == (4, 1)
        assert not [p for p in (tmp_path / "run").iterdir() if p.name.startswith(".checkpoint")]

    def test_the_last_state_that_is_not_on_disk_is_exit_code_6(
        self, tmp_path: Path, fail_saves: Any, background: bool
    ) -> None:
        fail_saves(4)
        runner = JobRunner(job_of(background=background), CheckpointManager(tmp_path / "run"))
        with pytest.warns(JobrunWarning, match=r"checkpoint 4 was not saved: .*No space left"):
            assert runner.train(LocalSession(1)) == 4
        assert runner.outcome is not None
        assert (runner.outcome.exit_code, runner.outcome.on_disk) == (6, 3)

    def test_no_checkpoint_at_all_ends_the_run(
        self, tmp_path: Path, fail_saves: Any, background: bool
    ) -> None:
        fail_saves(0)
        runner = JobRunner(job_of(background=background), CheckpointManager(tmp_path / "run"))
        with pytest.raises(SaveError, match="No space left"):
            runner.train(LocalSession(1))
        assert runner.outcome is not None
        assert runner.outcome.exit_code == 6

    def test_on_error_fail_ends_the_run_at_once(
        self, tmp_path: Path, fail_saves: Any, background: bool
    ) -> None:
        fail_saves(2)
        job = job_of(epochs=50, background=background, on_error="fail")
        runner = JobRunner(job, CheckpointManager(tmp_path / "run"))
        with pytest.raises(SaveError):
            runner.train(LocalSession(1))
        assert runner.outcome is not None
        assert runner.outcome.ran <= 4
        assert runner.outcome.on_disk == 1


def test_the_run_goes_on_while_a_save_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The save of epoch 1 is held back until epoch 2 has run: it still holds epoch 1."""
    from jobrun.checkpoint import part

    second = threading.Event()

    def write(directory: Any, parts: Any, **more: Any) -> Any:
        if more["id"] == 1:
            assert second.wait(30)
        return part.write_parts(directory, parts, **more)

    monkeypatch.setattr("jobrun.checkpoint.part_source.write_parts", write)

    def report(event: Event) -> None:
        if isinstance(event, EpochFinished) and event.epoch == 2:
            second.set()

    manager = CheckpointManager(tmp_path / "run")
    JobRunner(job_of(epochs=3), manager, report=report).train(LocalSession(1))
    values = [manager.load(epoch=e).blobs["main"]["total"][0] for e in range(4)]
    assert values == [0, 1, 2, 3]


def test_the_wait_for_the_save_before_and_the_snapshot_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Save 1 ends only once save 2 waits for it, for 100 seconds; a snapshot takes 10."""
    now, waited = [0.0], threading.Event()
    wait = saver.wait_for

    class Slow(LocalSession):
        def snapshot(self, *how: Any) -> Any:
            now[0] += 10
            return super().snapshot(*how)

    def waiting(*how: Any) -> Any:
        if started == [0, 1] and not waited.is_set():
            now[0] += 100
            waited.set()
        return wait(*how)

    def report(event: Event) -> None:
        if isinstance(event, SaveStarted):
            started.append(event.id)
        if isinstance(event, CheckpointSaved):
            saved.append(event)

    started, saved = list[int](), list[CheckpointSaved]()
    monkeypatch.setattr(saver, "wait_for", waiting)
    monkeypatch.setattr(saver.time, "perf_counter", lambda: now[0])
    manager = CheckpointManager(tmp_path / "run", fs=SlowRename(waited, 0))
    JobRunner(job_of(), manager, report=report).train(Slow(1))
    assert [e.phases["wait"] for e in saved] == [0, 0, 100, 0, 0]
    assert [e.phases["snapshot"] for e in saved] == [10] * 5
    assert [e.stall for e in saved] == [10, 110, 10, 10, 10]


class Late(Fs):
    """Nothing of a save is written before something was done in the epoch after it."""

    def __init__(self, epochs: int) -> None:
        self.done = [threading.Event() for _ in range(epochs)]

    def at(self, op: str, path: str) -> None:
        epoch = int(path.partition(".checkpoint_")[2].partition(".")[0] or len(self.done))
        if op == "mkdir" and epoch < len(self.done):
            assert self.done[epoch].wait(30)


kept: list[np.ndarray] = []
"""What tasks keep to change by it what they returned."""


def make(epoch: int) -> dict[str, Any]:
    plain, base, row = np.full(9, epoch), np.full(9, epoch), np.full(1, epoch, [("n", "i8")])
    frozen, raw = base[:4], bytearray([epoch] * 8)
    frozen.setflags(write=False)
    value = {
        "plain": plain,
        "fortran": np.full((2, 3), epoch, order="F"),
        "frozen": frozen,
        "view": base[4:],
        "point": np.array(epoch),
        "buffer": np.frombuffer(raw, np.uint8),
        "scalar": row[0],
        "list": [np.full(3, epoch), {"leaf": np.full(3, epoch)}],
    }
    kept.extend([plain, base, row, value["fortran"], value["point"], value["list"][0]])
    kept.extend([np.frombuffer(raw, np.uint8), value["list"][1]["leaf"][1:]])
    return value


def add_and_keep(total: np.ndarray) -> None:
    total += 1
    kept.append(total)


def numbers(value: Any) -> set[int]:
    """All numbers in an array or scalar."""
    array = np.asarray(value).reshape(-1)
    return set((array["n"] if array.dtype.names else array).tolist())


def test_what_a_task_keeps_of_what_it_returned_does_not_reach_a_checkpoint(tmp_path: Path) -> None:
    """It is written into before the save has begun."""
    epochs = 3
    fs = Late(epochs)

    def spoil(epoch: int) -> None:
        try:
            for array in kept:
                array[...] = 100
        finally:
            kept.clear()
            fs.done[epoch - 1].set()

    with Job("kept", checkpoint=CheckpointPolicy()) as job:
        with job.init:
            Task(make, with_={"epoch": 0}, out="made")
            Task(start, out="total")
        Task(spoil, ["epoch"], name="spoil")
        Task(make, ["epoch"], out="made", after=["spoil"])
        Task(add_and_keep, update="total", after=["spoil"])
        job.stop(epochs=epochs)
    JobRunner(job, CheckpointManager(tmp_path / "run", fs=fs)).train(LocalSession(1))
    kept.clear()
    for epoch in range(epochs + 1):
        found = load_blobs(tmp_path / "run", epoch=epoch)
        assert [numbers(value) for value in found.values()] == [{epoch}] * 10, epoch


class Ending(LocalSession):
    """In epoch 2 the run ends with ``error``, as the session tells; ``over`` is set then."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(1)
        self.error = error
        self.over = threading.Event()

    def run(self, plan: Any, position: Any, control: Any) -> Any:
        if plan.group == "epoch" and position.epochs == 1:
            self.over.set()
            raise self.error
        return super().run(plan, position, control)


class SlowRename(Fs):
    """Checkpoint 1 gets its name only once ``over`` is set, if it does at all."""

    def __init__(self, over: threading.Event, code: int) -> None:
        self.over, self.code = over, code

    def at(self, op: str, path: str) -> None:
        if op == "rename" and path.endswith("checkpoint_1"):
            assert self.over.wait(30)
            if self.code:
                raise OSError(self.code, os.strerror(self.code))


ENDINGS = [(TaskError("task 'add' failed"), 1), (KeyboardInterrupt(), 130), (RuntimeError("?"), 1)]


@pytest.mark.parametrize(("error", "exit_code"), ENDINGS, ids=["task", "Ctrl-C", "bug"])
@pytest.mark.parametrize("how", ["well", "warn", "fail"])
def test_a_run_that_fails_waits_for_the_save_and_says_how_it_ended(
    tmp_path: Path, error: BaseException, exit_code: int, how: str
) -> None:
    """The save of epoch 1 ends, well or not, after epoch 2 has failed."""
    session, events = Ending(error), list[Event]()
    fs = SlowRename(session.over, 0 if how == "well" else errno.ENOSPC)
    job = job_of(on_error="fail" if how == "fail" else "warn")
    runner = JobRunner(job, CheckpointManager(tmp_path / "run", fs=fs), report=events.append)
    with pytest.raises(type(error)) as caught:
        runner.train(session)
    assert caught.value is error
    saved = [0, 1] if how == "well" else [0]
    assert [e.id for e in events if isinstance(e, CheckpointSaved)] == saved
    said = [e.message for e in events if isinstance(e, CheckpointFailed | Warned)]
    assert len(said) == (how != "well")
    assert all("checkpoint 1 was not saved: rename of " in text for text in said)
    on_disk = [r.id for r in CheckpointManager(tmp_path / "run").catalog.listed()]
    assert on_disk == saved
    outcome = events[-1]
    assert outcome is runner.outcome
    assert isinstance(outcome, RunEnded)
    assert (outcome.exit_code, outcome.on_disk) == (exit_code, saved[-1])
    assert outcome.checkpoint == str(tmp_path / f"run/checkpoint_{saved[-1]}")


def test_who_does_not_wait_for_the_save_is_told_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, and again while the save is waited for."""
    session, events = Ending(KeyboardInterrupt()), list[Event]()
    wait = saver.wait_for

    def interrupted(*how: Any) -> Any:
        if session.over.is_set():
            raise KeyboardInterrupt
        return wait(*how)

    monkeypatch.setattr(saver, "wait_for", interrupted)
    manager = CheckpointManager(tmp_path / "run", fs=SlowRename(session.over, 0))
    with pytest.raises(KeyboardInterrupt):
        JobRunner(job_of(), manager, report=events.append).train(session)
    assert isinstance(events[-1], RunEnded)
    assert (events[-1].outcome, events[-1].on_disk) == ("interrupted", 0)
    assert [r.id for r in manager.catalog.listed()] == [0, 1]


def test_a_save_whose_waiting_ctrl_c_has_ended_is_waited_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, wait, looks = list[Event](), saver.wait_for, count()
    started: list[int] = []

    def interrupted(*how: Any) -> Any:
        started[:] = [e.id for e in events if isinstance(e, SaveStarted)]
        if started[-1] == 1 and next(looks) == 0:
            raise KeyboardInterrupt
        return wait(*how)

    monkeypatch.setattr(saver, "wait_for", interrupted)
    manager = CheckpointManager(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        JobRunner(job_of(background=False), manager, report=events.append).train(LocalSession(1))
    assert [e.id for e in events if isinstance(e, CheckpointSaved)] == [0, 1]
    assert isinstance(events[-1], RunEnded)
    assert (events[-1].outcome, events[-1].on_disk) == ("interrupted", 1)


def test_saves_are_said_once_each_and_none_is_left_when_train_returns(tmp_path: Path) -> None:
    events: list[Event] = []
    runner = JobRunner(job_of(epochs=5), CheckpointManager(tmp_path / "run"), report=events.append)
    runner.train(LocalSession(2))
    assert [e.epoch for e in events if isinstance(e, CheckpointSaved)] == [0, 1, 2, 3, 4, 5]
    assert isinstance(events[-1], RunEnded)
    assert not [t for t in threading.enumerate() if t.name.startswith("jobrun-save")]


def rows() -> np.ndarray:
    return np.arange(6.0)


def zero() -> float:
    return 0.0


def add_rows(x: np.ndarray, total: float) -> float:
    return total + float(np.sum(x))


@pytest.mark.parametrize("piped", [True, False])
def test_a_save_that_is_due_all_the_time_does_not_stop_the_run(tmp_path: Path, piped: bool) -> None:
    """Between two saves something happens, however long a save takes."""
    with Job("busy") as job:
        with job.setup:
            Task(rows, out="x")
        with job.init:
            Task(zero, out="total")
        if piped:
            add = Task(add_rows, in_=["x", "total"], out="total")
            Pipe(from_={"x": "x"}, batch=1, do=[add], name="train")
        else:
            Task(add_rows, in_=["x", "total"], out="total")
        job.stop(epochs=2)
    job.checkpoint = CheckpointPolicy(every=Every(epochs=None, seconds=0.0))
    runner = JobRunner(job, CheckpointManager(tmp_path))
    run = threading.Thread(target=runner.train, args=(LocalSession(1),), daemon=True)
    run.start()
    run.join(60)
    assert not run.is_alive()
    assert runner.blobs["total"] == 30.0
    assert len(CheckpointManager(tmp_path).catalog.ids()) >= (12 if piped else 2)


def test_keep_last_one_never_leaves_less_than_one_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = CheckpointManager(tmp_path / "run")
    seen: list[int] = []
    from jobrun.checkpoint import trash as module

    drop = module.drop

    def watched(run_dir: Any, id: int, fs: Any) -> str:
        seen.append(len(manager.catalog.listed()))
        return drop(run_dir, id, fs)

    monkeypatch.setattr(module, "drop", watched)
    JobRunner(job_of(epochs=6, keep=Keep(last=1)), manager).train(LocalSession(1))
    assert [r.epoch for r in manager.catalog.listed()] == [6]
    assert seen
    assert min(seen) >= 2


@pytest.mark.parametrize("failing", [True, False])
def test_each_removal_that_was_postponed_is_reported_also_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: bool
) -> None:
    monkeypatch.setattr(trash, "_POSTPONED", 0.5)

    def add_up_to(total: int) -> int:
        if failing and total == 11:  # all eleven epochs are saved
            raise ValueError("too many")
        return total + 1

    with Job("counts", checkpoint=CheckpointPolicy(keep=Keep(last=4))) as job:
        with job.init:
            Task(int, out="total")
        Task(add_up_to, "total", out="total")
        job.stop(epochs=12 if failing else 11)
    events: list[Event] = []
    runner = JobRunner(job, CheckpointManager(tmp_path), report=events.append)
    try:
        assert runner.train(LocalSession(1)) == 11
        assert not failing
    except TaskError:
        assert failing
    removed = [e.ids for e in events if isinstance(e, CheckpointsRemoved)]
    assert len(removed) > 1
    assert sum(removed, ()) == tuple(range(8))
    assert Catalog(tmp_path).ids() == [8, 9, 10, 11]


def test_a_policy_compresses_and_the_manager_forgets_it(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path / "run")
    with Job("packed", checkpoint=CheckpointPolicy(compress=(Compress("zstd", blobs="w"),))) as job:
        with job.init:
            Task(np.zeros, with_={"shape": 10_000}, out="w")
            Task(np.zeros, with_={"shape": 10_000}, out="v")
        Task(np.add, ["w", "v"], out="w")
        job.stop(epochs=2)
    JobRunner(job, manager).train(LocalSession(1))
    assert manager.rules.compress == ()
    for record in manager.catalog.listed():
        node = manager.catalog.path(record.id) / "main"
        sizes = [(node / name / "0").stat().st_size for name in ("w", "v")]
        assert sizes[0] < 1000 < 80_000 < sizes[1]
    assert JobRunner(job, manager).train(LocalSession(1)) == 2


def test_a_run_that_has_ended_has_deleted_what_it_dropped_and_left_no_thread(
    tmp_path: Path,
) -> None:
    before = set(threading.enumerate())
    manager = CheckpointManager(tmp_path / "run")
    JobRunner(job_of(epochs=6, keep=Keep(last=1)), manager).train(LocalSession(1))
    assert sorted(p.name for p in (tmp_path / "run").glob("*checkpoint*")) == ["checkpoint_6"]
    for thread in set(threading.enumerate()) - before:
        thread.join(30)  # told to end, it may take a moment
        assert not thread.is_alive(), thread.name


def test_what_cannot_be_deleted_is_a_warning_at_the_end_at_the_latest(tmp_path: Path) -> None:
    class Stubborn(Fs):
        def at(self, op: str, path: str) -> None:
            if op == "rmtree":
                raise OSError(errno.EACCES, "Permission denied")

    events: list[Event] = []
    manager = CheckpointManager(tmp_path / "run", fs=Stubborn())
    job = job_of(epochs=2, keep=Keep(last=1))
    JobRunner(job, manager, report=events.append).train(LocalSession(1))
    said = [e.message for e in events if isinstance(e, Warned)]
    assert len(said) == 2
    assert all("rmtree of " in text and "Permission denied (EACCES)" in text for text in said)
    ended = next(e for e in events if isinstance(e, RunEnded))
    assert ended.exit_code == 0
