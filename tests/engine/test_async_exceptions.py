"""Exceptions that a task raises asynchronously in jobrun's own code, by ``SetAsyncExc``.

A thread that the task starts watches another one, and raises the exception there while its
innermost frame is not the task's: as the timer of a timeout library that comes too late.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

from jobrun import CheckpointManager, Job, JobRunner, LocalSession, Task, load_blobs
from jobrun.core.async_exceptions import asynchronous_error
from jobrun.core.events import CheckpointFailed, Event
from jobrun.errors import JobrunError, TaskError
from jobrun.model.policy import CheckpointPolicy

EPOCHS = 20
WORKERS = ("jobrun-0", "jobrun-1")
Wanted = Callable[[threading.Thread, str], bool]


@pytest.fixture(autouse=True)
def fine_switches() -> Iterator[None]:
    """Let the watching thread see the others at nearly every instruction."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


class TooLateError(Exception):
    """The exception of a timeout library."""


def module_of(frame: FrameType) -> str:
    """Return the module whose code a frame executes."""
    return str(frame.f_globals.get("__name__", ""))


def in_test(frame: FrameType) -> bool:
    """Return whether code of this module, a task say, runs; pytest calls the main thread's."""
    above: FrameType | None = frame
    while above is not None and module_of(above) != "jobrun.session.scheduler":
        if module_of(above) == __name__:
            return True
        above = above.f_back
    return False


class Injector:
    """Raises ``kind`` once, in a thread for which ``wanted(thread, innermost module)`` is true."""

    def __init__(self, wanted: Wanted, kind: type[BaseException]) -> None:
        self._wanted = wanted
        self._kind = kind
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self._over = False
        self.threads: list[str] = []

    def start(self) -> None:
        self._watching.start()

    def stop(self) -> None:
        """Raise nothing any more, say in the next run, whose threads have the same names."""
        self._over = True
        if self._watching.ident is not None:
            self._watching.join()

    def _watch(self) -> None:
        end = time.monotonic() + 10
        while time.monotonic() < end and not self.threads and not self._over:
            frames = sys._current_frames()
            for thread in threading.enumerate():
                frame = frames.get(thread.ident or 0)
                if frame and not in_test(frame) and self._wanted(thread, module_of(frame)):
                    self._raise(thread)
                    break

    def _raise(self, thread: threading.Thread) -> None:
        ident, kind = ctypes.c_ulong(thread.ident or 0), ctypes.py_object(self._kind)
        if ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, kind) == 1:
            self.threads.append(thread.name)


def job_of(injector: Injector | None) -> Job:
    def start() -> dict[str, object]:
        return {"total": 0, "w": np.zeros(1 << 18)}

    def add_one(state: dict[str, object]) -> None:
        state["total"] += 1  # type: ignore[operator]
        state["w"] += 1  # type: ignore[operator]
        if state["total"] == 2 and injector is not None:
            injector.start()
            time.sleep(0.3)  # the main loop waits, and the other worker has nothing to do

    job = Job("late", checkpoint=CheckpointPolicy())
    with job:
        with job.init:
            Task(start, out="state")
        with job.epoch:
            Task(add_one, update="state")
        job.stop(epochs=EPOCHS)
    return job


def is_main(thread: threading.Thread, module: str) -> bool:
    return thread is threading.main_thread()


def is_worker(thread: threading.Thread, module: str) -> bool:
    """The worker that ran the task, once it is in jobrun's code again."""
    return thread.name in WORKERS and module.startswith("jobrun.")


def is_idle(thread: threading.Thread, module: str) -> bool:
    """A worker that waits for a task."""
    return thread.name in WORKERS and module == "threading"


def is_save(thread: threading.Thread, module: str) -> bool:
    """The thread that saves."""
    return thread.name.startswith("jobrun-save") and module.startswith("jobrun.")


def is_writer(thread: threading.Thread, module: str) -> bool:
    """A thread that writes files, which has no name of its own."""
    return thread.name.startswith("ThreadPool") and module.startswith("jobrun.")


def run(run_dir: Path, injector: Injector | None, events: list[Event]) -> JobRunner:
    return JobRunner(job_of(injector), CheckpointManager(run_dir), report=events.append)


def interrupted_run(
    tmp_path: Path, wanted: Wanted, kind: type[BaseException]
) -> tuple[JobRunner, BaseException]:
    """Return the runner of a run in ``tmp_path / "run"``, and what ``train`` raised.

    The exception may come when the last epoch is over, or while a task gets its arguments, whose
    error it then is: another run is begun.
    """
    for attempt in range(16):
        injector = Injector(wanted, kind)
        runner = run(tmp_path / f"run-{attempt}", injector, [])
        try:
            assert runner.train(LocalSession(threads=2)) == EPOCHS
        except (TaskError, KeyboardInterrupt) as error:
            if "task 'add_one'" not in str(error):
                (tmp_path / f"run-{attempt}").rename(tmp_path / "run")
                return runner, error
        finally:
            injector.stop()
    pytest.fail("no run was interrupted")


@pytest.mark.parametrize("wanted", [is_main, is_worker])
@pytest.mark.parametrize("kind", [TooLateError, TimeoutError, SystemExit])
def test_in_the_loop_it_is_named_for_what_it_is(
    wanted: Wanted, kind: type[BaseException], tmp_path: Path
) -> None:
    runner, raised = interrupted_run(tmp_path, wanted, kind)
    assert isinstance(raised, TaskError)
    assert f"{kind.__name__} was raised asynchronously" in raised.message
    assert raised.exit_code == 1
    assert "PyThreadState_SetAsyncExc" in raised.hint
    assert runner.outcome is not None
    assert (runner.outcome.outcome, runner.outcome.exit_code) == ("error", 1)
    assert runner.outcome.on_disk in range(EPOCHS)
    assert run(tmp_path / "run", None, []).train(LocalSession(threads=2)) == EPOCHS
    assert load_blobs(tmp_path / "run", "state/total")["state/total"] == EPOCHS


def test_a_worker_that_waits_takes_it_or_never_runs_again(tmp_path: Path) -> None:
    injector = Injector(is_idle, TooLateError)
    runner, message = run(tmp_path / "run", injector, []), ""
    try:
        assert runner.train(LocalSession(threads=2)) == EPOCHS
    except TaskError as error:
        message = error.message
    assert message == "" or "TooLateError was raised asynchronously" in message
    assert injector.threads
    assert run(tmp_path / "run", None, []).train(LocalSession(threads=2)) == EPOCHS
    assert load_blobs(tmp_path / "run", "state/total")["state/total"] == EPOCHS


@pytest.mark.parametrize("wanted", [is_save, is_writer])
def test_in_a_save_it_is_a_save_that_failed(wanted: Wanted, tmp_path: Path) -> None:
    injector, events = Injector(wanted, TooLateError), []
    assert run(tmp_path / "run", injector, events).train(LocalSession(threads=2)) == EPOCHS
    assert injector.threads
    failed = [event for event in events if isinstance(event, CheckpointFailed)]
    assert [("TooLateError was raised asynchronously" in f.message) for f in failed] == [True]
    assert load_blobs(tmp_path / "run", "state/total")["state/total"] == EPOCHS


def test_a_keyboard_interrupt_leaves_with_130(tmp_path: Path) -> None:
    runner, raised = interrupted_run(tmp_path, is_worker, KeyboardInterrupt)
    assert isinstance(raised, KeyboardInterrupt)
    assert runner.outcome is not None
    assert (runner.outcome.outcome, runner.outcome.exit_code) == ("interrupted", 130)
    assert "KeyboardInterrupt was raised asynchronously" in runner.outcome.reason


def caught(source: str, path: Path) -> BaseException:
    """Return what a line raises that stands in a module of jobrun."""
    path.write_text(source)
    try:
        exec(compile(source, str(path), "exec"), {"__name__": "jobrun.x"})
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    "source",
    ["raise ValueError", "raise OSError('x')", "next(iter(()))", "{}['x']", "1 / 0", "assert 0"],
)
def test_a_bug_stays_a_bug(source: str, tmp_path: Path) -> None:
    assert asynchronous_error(caught(source, tmp_path / "x.py")) is None


def test_an_error_of_jobrun_stays_what_it_is() -> None:
    assert asynchronous_error(JobrunError("x")) is None
