"""``map`` steps in worker processes: the bits of one thread, and an end in every case.

The steps are in ``tests/support/worker_steps.py``, where the workers find them by name.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import worker_steps as steps
from engine import Driver, same, within
from hypothesis import given, settings
from hypothesis import strategies as st
from process_ends import has_ended

from jobrun.core.events import TaskProgress, Warned
from jobrun.core.template import template
from jobrun.errors import BindError, DataError, SpecError, TaskError, ValueRefusedError, Where
from jobrun.model.job import Job, Node, Pipe, Task
from jobrun.model.options import Retries
from jobrun.session.base import Control
from jobrun.session.pipe import run as pipe_run
from jobrun.session.pipe.groups import Groups

Drive = Callable[..., Driver]
_drivers: list[Driver] = []


def drive(job: Job, *args: Any, **more: Any) -> Driver:
    """A driver whose session is closed after the test."""
    _drivers.append(Driver(job, *args, **more))
    return _drivers[-1]


def close_all() -> None:
    while _drivers:
        within(20, _drivers.pop().session.close)


def children() -> set[int]:
    """The processes that this one has started and that have not ended."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has just ended
            found.update(map(int, (task / "children").read_text().split()))
    return found


def memories() -> set[tuple[str, int]]:
    """The shared memory that this process has open; other tests may have left some."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            if "memfd:jobrun" in (name := os.readlink(entry)):
                found.add((name, entry.stat().st_ino))
    return found


def memory_is_left(before: set[tuple[str, int]]) -> bool:
    """Whether more shared memory is left after a while; threads that end may hold a batch."""
    for _ in range(100):
        if memories() <= before:
            return False
        gc.collect()
        time.sleep(0.02)
    return True


def wait_for(file: Path) -> str:
    for _ in range(3000):
        if file.exists():
            return file.read_text()
        time.sleep(0.01)
    raise AssertionError(f"{file} never came")


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before, memory = children(), memories()
    yield
    maps = Path("/proc/self/maps").read_text()
    assert "/dev/shm/jobrun" not in maps  # what has a name may be left
    close_all()
    assert not [t for t in threading.enumerate() if t.name.startswith("jobrun-ahead")]
    assert children() <= before
    assert not memory_is_left(memory)


def apply(w: Any, y: Any) -> float:
    """A ``do`` step whose result depends on the order of the batches."""
    w *= 0.9
    w += y.sum()
    return float(y.mean())


def add(z: Any, total: Any) -> None:
    total += z


def training(**pipe: Any) -> Job:
    job = Job("j", seed=4)
    with job.setup:
        Task(lambda: np.random.default_rng(1).random(23), out="data", name="load")
    with job.init:
        Task(lambda: np.zeros(3), out="w", name="begin")
        Task(lambda: 0.0, out="seen", name="none")
    with job.epoch:
        inputs = {"x": "x", "rng": "rng", "epoch": "epoch", "node": "node"}
        Pipe(
            {"x": "data"},
            map=[
                Task(steps.noisy, inputs, out="y", name="noisy"),
                Task("worker_steps:twice", "y", out="y", name="twice"),
            ],
            do=[Task(apply, {"y": "y"}, update={"w": "w"}, out="loss")],
            **{"batch": 3, "batches_per_epoch": 5, "shuffle": True, **pipe},
        )
        Task(lambda loss: loss, "loss", out="seen", name="keep")
    return job


def blobs(driver: Driver) -> tuple[Any, Any]:
    return driver.blob("w").copy(), driver.blob("seen")


EXPECTED = blobs(Driver(training(), 1).start().epochs(3))


# The bits of one thread.


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("processes", "ahead"), [(1, None), (1, 1), (2, None), (3, 2), (4, 100)], ids=str
)
def test_any_number_of_processes_gives_the_bits_of_one_thread(
    processes: int, ahead: int | None
) -> None:
    driver = drive(training(processes=processes, ahead=ahead)).start().epochs(3)
    assert all(map(same, blobs(driver), EXPECTED))


def test_processes_may_be_a_var_or_a_blob() -> None:
    job = training(processes="n")
    with job.init:
        Task(lambda: 2, out="n", name="count")
    assert all(map(same, blobs(drive(job).start().epochs(3)), EXPECTED))


@settings(deadline=None, max_examples=6)
@given(st.integers(1, 4), st.none() | st.integers(1, 6), st.lists(st.integers(0, 6), max_size=6))
def test_cut_anywhere_it_goes_on_with_the_very_next_batch(
    processes: int, ahead: int | None, cuts: list[int]
) -> None:
    driver = drive(training(processes=processes, ahead=ahead)).start()
    for _ in range(3):
        done = False
        while not done:
            asked = iter([False] * cuts.pop() if cuts else [])
            endless = not cuts
            done = driver.epoch(lambda asked=asked, on=endless: not next(asked, on))
        driver.session.end_epoch()
    assert all(map(same, blobs(driver), EXPECTED))
    close_all()


def test_workers_are_kept_from_one_epoch_to_the_next() -> None:
    seen: list[set[int]] = [set()]
    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(20), out="a", name="load")
    with job.epoch:
        do = [Task(lambda p: seen[-1].add(p), "p", name="see")]
        Pipe({"x": "a"}, map=[Task(steps.pid, "x", out="p")], do=do, processes=2)
    driver = drive(job).start()
    for _ in range(3):
        driver.epochs(1)
        seen.append(set())
    assert len(set.union(*seen)) == 2
    assert os.getpid() not in set.union(*seen)


def test_under_check_the_steps_run_here() -> None:
    driver = drive(training(processes=2), check_inputs=True).start()
    before = children()
    driver.epochs(3)
    assert children() == before
    assert all(map(same, blobs(driver), EXPECTED))


def test_nodes_have_workers_of_their_own() -> None:
    def job(**pipe: Any) -> Job:
        job = Job("j", seed=2, vars={"k": 1.0}, nodes={"a": {"text": "ä"}, "b": {"text": "ö"}})
        with Node("*"):
            with job.setup:
                Task(lambda: np.arange(6.0), out="data", name="load")
            with job.epoch:
                Pipe(
                    {"x": "data"},
                    map=[
                        Task(steps.noisy, {"x": "x", "rng": "rng", "epoch": "k"}, out="y"),
                        Task(steps.split, {"x": "y", "text": "text"}, out="tree"),
                    ],
                    do=[Task(lambda t: t, "tree", out="last", name="keep")],
                    batch=2,
                    **pipe,
                )
        return job

    one, two = drive(job()).start(), drive(job(processes=1)).start()
    assert one.epoch()
    assert two.epoch()
    for node in "ab":
        assert same(two.blob(f"{node}:last"), one.blob(f"{node}:last"))
    assert two.blob("a:last")["deep"]["name"] == "ä"


# Several batches in one message.


@pytest.fixture(params=[2, 7, 16])
def group(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many batches go to a worker together, whatever time they take."""

    class Fixed(Groups):
        def __init__(self) -> None:
            self._wanted = request.param

        def took(self, batches: int, seconds: float, size: int) -> None:
            assert batches <= request.param

    monkeypatch.setattr(pipe_run, "Groups", Fixed)
    return int(request.param)


@pytest.mark.parametrize(("processes", "ahead"), [(1, None), (2, 1), (2, None), (3, 70)], ids=str)
def test_groups_of_any_size_give_the_bits_of_one_thread(
    processes: int, ahead: int | None, group: int
) -> None:
    driver = drive(training(processes=processes, ahead=ahead)).start()
    for _ in range(3):
        for at in (1, 3):
            asked = iter([False] * at)
            assert not driver.epoch(lambda asked=asked: not next(asked, False))
        driver.epochs(1)
    assert all(map(same, blobs(driver), EXPECTED))


def test_a_step_that_fails_within_a_group_fails_after_all_batches_before_it(group: int) -> None:
    applied: list[int] = []
    with pytest.raises(TaskError, match="'pipe/bad' of group 'epoch' in batch 10 failed: ValueErr"):
        observed(
            [Task(steps.fails, "x", {"at": 9}, out="x", name="bad")],
            Task(lambda x: applied.append(int(x[0])), "x", name="see"),
        )
    assert applied == list(range(9))


def test_a_column_of_a_group_that_cannot_be_sent_is_an_error_of_its_batch(group: int) -> None:
    applied: list[int] = []
    said = "task 'pipe/thing' of group 'epoch' in batch 10 failed: column 'o' is "
    with pytest.raises(TaskError, match=said):
        observed(
            [Task(steps.opaque_from, "x", {"at": 9}, out="o", name="thing")],
            Task(lambda x, o: applied.append(int(x[0])), ["x", "o"], name="see"),
        )
    assert applied == list(range(9))


def test_a_worker_that_dies_within_a_group_is_an_error_of_that_batch(group: int) -> None:
    applied: list[int] = []
    with pytest.raises(TaskError, match=r"'pipe/dies' .* batch 10 failed: .* killed by SIGKILL"):
        observed(
            [
                Task(steps.same, "x", out="x", name="same"),
                Task(steps.dies, "x", {"at": 9, "how": "SIGKILL"}, out="x", name="dies"),
            ],
            Task(lambda x: applied.append(int(x[0])), "x", name="see"),
        )
    assert applied == list(range(9))


@pytest.mark.parametrize("how", ["raise", "SIGKILL", "exit", "sleep"])
def test_a_call_within_a_group_is_made_again(how: str, group: int, tmp_path: Path) -> None:
    """On its own batch a try is lost, on the others of the group none."""
    literals = {"file": str(tmp_path / "tried"), "how": how}
    seen: list[float] = []
    driver = observed(
        [
            Task(steps.same, "x", out="x", name="same", retries=1),
            Task(steps.once, "x", literals, out="x", retries=1, timeout=0.5),
        ],
        Task(lambda x: seen.append(float(x[0])), "x", name="see"),
    )
    assert seen == list(range(20))
    warned = [e.message for e in driver.events if isinstance(e, Warned)]
    assert [w[:51] for w in warned] == ["task 'pipe/once' of group 'epoch' in batch 4 failed"]
    assert warned[0].endswith("; try 2 of 2")


# Columns of all kinds.


def observed(map: list[Task], do: Task, data: Any = None, epochs: int = 1, **pipe: Any) -> Driver:
    """Runs a pipe over ``x`` and ``y``, numbers from 0 up and ten times that."""
    job = Job("j", seed=1, vars=pipe.pop("vars", {}))
    rows = np.arange(20.0)
    with job.setup:
        Task(lambda: (rows if data is None else data, rows * 10), out=["a", "b"], name="load")
    with job.epoch:
        Pipe({"x": "a", "y": "b"}, map=map, do=[do], **{"processes": 2, **pipe})
    return drive(job).start().epochs(epochs)


def columns_of(map: Callable[[], list[Task]], names: list[str], **pipe: Any) -> None:
    """The columns that a ``do`` step sees of a worker are those that it sees of a thread."""
    seen: dict[str, list[Any]] = {"here": [], "there": []}
    for key, processes in (("here", None), ("there", 1)):
        see = Task(lambda *c, key=key: seen[key].append(list(c)), names, name="see")
        observed(map(), see, processes=processes, **pipe)
    assert same(seen["there"], seen["here"])
    assert len(seen["here"]) > 1


def test_trees_scalars_and_texts() -> None:
    columns_of(lambda: [Task(steps.split, "x", out="tree")], ["tree", "x", "y"], batch=3)


def test_parts_of_trees() -> None:
    def map_steps() -> list[Task]:
        split = Task(steps.split, "x", out="tree", name="split")
        twice = Task(steps.twice, "tree/deep/high", out="z", name="twice")
        return [split, twice]

    columns_of(map_steps, ["tree/low", "tree/list/0", "z"])


def test_values_that_cannot_be_saved() -> None:
    names = ["p", "q", "r"]
    columns_of(lambda: [Task(steps.other, "x", out=names)], names, batch=3)


def test_steps_that_change_columns_in_place() -> None:
    """The columns that a step before has put out are the batch's own too."""

    def map_steps() -> list[Task]:
        return [
            *(Task(steps.adds_in_place, "x", out="x", name=name) for name in ("one", "two")),
            Task(steps.adds_in_place, "x", out="z", name="three"),
            Task(steps.doubles_in_place, "z", name="four"),
        ]

    columns_of(map_steps, ["x", "z"], batch=3)
    seen: list[Any] = []
    observed(map_steps(), Task(lambda x, z: seen.extend([x[0], z[0]]), ["x", "z"], name="see"))
    assert seen[:2] == [3.0, 6.0]


def test_steps_that_drop_rows() -> None:
    columns_of(lambda: [Task(steps.odd, ["x", "y"], out=["x", "y"])], ["x", "y"], batch=3)


def test_rows_of_a_column_that_no_do_step_reads() -> None:
    """It leaves the worker for its length alone."""
    steps_of = lambda: [Task(steps.odd, ["x", "y"], out=["x", "kept"])]  # noqa: E731
    columns_of(steps_of, ["x"], batch=1, rows="kept")


def test_a_batch_of_which_nothing_is_left_is_not_applied() -> None:
    columns_of(lambda: [Task(steps.odd, ["x", "y"], out=["x", "y"])], ["x", "y"], batch=1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "data",
    [
        np.array([f"{i:03d}" for i in range(20)]),
        np.array([b"%d" % i for i in range(20)]),
        np.arange(20).astype("M8[s]"),
        np.arange(40, dtype=">f4").reshape(20, 2),
        np.zeros(20, [("a", "<i4"), ("b", "<f8", (2,))]),
    ],
    ids=lambda a: str(a.dtype),
)
def test_columns_of_any_dtype(data: Any) -> None:
    columns_of(lambda: [Task(steps.same, "x", out="z")], ["x", "z"], data=data, batch=4)


@pytest.mark.parametrize("keep", [False, True])
def test_large_arrays_are_those_of_their_batch_however_long_they_are_kept(keep: bool) -> None:
    seen: list[Any] = []
    observed(
        [Task(steps.large, "x", {"cells": 100_000}, out="z")],
        Task(lambda z: seen.append(z if keep else z.copy()), "z", name="see"),
        epochs=3,
    )
    assert [int(z[0]) for z in seen] == [*range(20)] * 3
    assert all((z == z[0]).all() for z in seen)


def test_a_large_column_may_become_a_blob_that_lasts() -> None:
    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(8.0), out="a", name="load")
    with job.init:
        Task(lambda: np.zeros(100_000), out="sum", name="zero")
    with job.epoch:
        Pipe(
            {"x": "a"},
            map=[Task(steps.large, "x", {"cells": 100_000}, out="z")],
            do=[
                Task(lambda z: z, "z", out="last", name="keep"),
                Task(add, ["z"], update="sum"),
            ],
            processes=2,
        )
        Task(lambda last: last, "last", out="held", name="hold")
    driver = drive(job).start().epochs(2)
    assert (driver.blob("sum") == 2 * 28.0).all()
    assert not driver.blob("sum").flags.writeable


def test_a_step_may_keep_what_it_was_given() -> None:
    seen: list[float] = []
    data = np.repeat(np.arange(20.0), 4000).reshape(20, 4000)
    do = Task(seen.append, "s", name="see")
    observed([Task(steps.keeps, "x", out="s")], do, data=data, processes=1)
    assert seen == [4000.0 * i * (i + 1) / 2 for i in range(20)]


def test_literals_and_vars_are_as_they_are_here() -> None:
    seen: list[Any] = []
    literal = {"at": 99, "text": template("${node} ${env.HOME}")}
    do = Task(seen.append, "x", name="see")
    observed([Task(steps.fails, "x", literal, out="x")], do)
    assert len(seen) == 20


# Faults: every step, several numbers of processes, several states of the window.


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("processes", "ahead"), [(1, 1), (4, 30)], ids=str)
@pytest.mark.parametrize("who", ["first", "second", "do"])
@pytest.mark.parametrize("at", [0, 7])
def test_a_failing_step_ends_the_pipe_with_the_error_of_one_thread(
    processes: int, ahead: int, who: str, at: int
) -> None:
    applied: list[int] = []

    def do(x: Any) -> None:
        if who == "do":
            steps.fails(x, at)
        applied.append(int(x[0]))

    map = [
        Task(steps.fails, "x", {"at": at if who == n else 99}, out="x", name=n)
        for n in ("first", "second")
    ]
    with pytest.raises(TaskError) as caught:
        observed(map, Task(do, "x", name="do"), processes=processes, ahead=ahead)
    said = f"task 'pipe/{who}' of group 'epoch' in batch {at + 1} failed: ValueError: no {at}.0"
    assert caught.value.message == said
    assert 'raise ValueError(f"{text} {x[0]}")' in caught.value.trace
    assert "jobrun/session" not in caught.value.trace
    assert applied == list(range(at))


def test_the_error_has_the_place_of_the_step() -> None:
    where = Where("job.yaml", 4, 5)
    with pytest.raises(TaskError) as caught:
        observed(
            [Task(steps.fails, "x", {"at": 2}, out="x", where=where)],
            Task(lambda x: None, "x", name="see"),
        )
    assert caught.value.where == where


@pytest.mark.sampled(3)
@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize(
    ("how", "said", "hint"),
    [
        ("SIGKILL", "was killed by SIGKILL", "memory runs out"),
        ("SIGSEGV", "was killed by SIGSEGV", ""),
        ("exit", "ended with exit code 3", ""),
    ],
)
def test_a_worker_that_dies_is_an_error_that_says_how(
    processes: int, how: str, said: str, hint: str
) -> None:
    applied: list[int] = []
    with pytest.raises(TaskError) as caught:
        observed(
            [
                Task(steps.same, "x", out="x", name="same"),
                Task(steps.dies, "x", {"at": 5, "how": how}, out="x", name="dies"),
            ],
            Task(lambda x: applied.append(int(x[0])), "x", name="see"),
            processes=processes,
        )
    text = f"task 'pipe/dies' of group 'epoch' in batch 6 failed: its worker process {said}"
    assert caught.value.message == text
    assert hint in caught.value.hint
    assert "last words" in caught.value.trace
    assert applied == list(range(5))
    if how == "SIGSEGV":
        assert "worker_steps.py" in caught.value.trace  # where it was


def test_a_step_that_takes_longer_than_its_timeout_is_ended_with_its_worker(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pid"
    where = Where("job.yaml", 7, 3)
    step = Task(
        steps.slow,
        "x",
        {"at": 3, "file": str(file)},
        out="x",
        timeout=0.3,
        marks={"timeout": where},
    )
    with pytest.raises(TaskError) as caught:
        observed([step], Task(lambda x: None, "x", name="see"))
    assert caught.value.message == (
        "task 'pipe/slow' of group 'epoch' in batch 4 failed: it exceeded its timeout "
        "of 0.3 s, and was stopped"
    )
    assert caught.value.where == where
    assert has_ended(int(file.read_text()))


def test_the_time_between_batches_is_none_of_a_step() -> None:
    step = Task(steps.same, "x", out="x", timeout=0.2)
    do = Task(lambda x: time.sleep(0.5 if x[0] == 1 else 0), "x", name="slow")
    observed([step], do, processes=1)


@pytest.mark.parametrize("how", ["raise", "SIGKILL", "exit", "sleep"])
def test_a_call_that_fails_in_any_way_is_made_again(how: str, tmp_path: Path) -> None:
    seen: list[float] = []
    driver = observed(
        [
            Task(
                steps.once,
                "x",
                {"file": str(tmp_path / "tried"), "how": how},
                out="x",
                retries=Retries(2, 0.01),
                timeout=0.5,
            )
        ],
        Task(lambda x: seen.append(float(x[0])), "x", name="see"),
    )
    assert seen == list(range(20))
    warned = [e.message for e in driver.events if isinstance(e, Warned)]
    assert len(warned) == 1
    assert warned[0].startswith("task 'pipe/once' of group 'epoch' in batch 4 failed: ")
    assert warned[0].endswith("; try 2 of 3 in 0.01 s")


@pytest.mark.parametrize("how", ["raise", "SIGKILL"])
def test_it_is_made_no_more_often_than_retries_say(how: str) -> None:
    literals = {"at": 3, "how": how} if how != "raise" else {"at": 3}
    function = steps.dies if how != "raise" else steps.fails
    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(5), out="a", name="load")
    with job.epoch:
        map = [Task(function, "x", literals, out="x", name="bad", retries=2)]
        Pipe({"x": "a"}, map=map, do=[Task(lambda x: None, "x", name="see")], processes=1)
    driver = drive(job).start()
    with pytest.raises(TaskError, match=r"'pipe/bad' .* in batch 4 failed"):
        driver.epoch()
    warned = [e.message for e in driver.events if isinstance(e, Warned)]
    assert [w.rpartition("; ")[2] for w in warned] == ["try 2 of 3", "try 3 of 3"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("ahead", [1, 20])
def test_an_interrupt_ends_a_slow_step_at_once_and_the_run_goes_on_later(
    processes: int, ahead: int, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    applied: list[int] = []
    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(30), out="a", name="load")
    with job.epoch:
        Pipe(
            {"x": "a"},
            map=[
                Task(
                    steps.once,
                    "x",
                    {"file": str(file), "how": "sleep"},
                    out="x",
                )
            ],
            do=[Task(lambda x: applied.append(int(x[0])), "x", name="see")],
            processes=processes,
            ahead=ahead,
        )
    driver = drive(job).start()

    def interrupted() -> bool:
        return file.exists() and len(applied) == 3

    start = time.monotonic()
    control = Control(cut=interrupted, interrupted=interrupted, report=driver.events.append)
    driver.position = driver.run("epoch", control)
    assert time.monotonic() - start < 60
    assert applied == [0, 1, 2]
    assert driver.position.pipes["pipe"].batches == 3
    assert driver.position.readers["pipe"].row == 3
    assert driver.epoch()
    assert applied == list(range(30))


def test_a_failing_task_ends_a_pipe_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"

    def fail() -> None:
        wait_for(file)
        raise ValueError("no")

    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(10), out="a", name="load")
    with job.epoch:
        map = [Task(steps.slow, "x", {"at": 2, "file": str(file)}, out="x")]
        Pipe({"x": "a"}, map=map, do=[Task(lambda x: None, "x", name="see")], processes=2)
        Task(fail)
    with pytest.raises(TaskError, match=r"task 'fail' .* ValueError: no"):
        drive(job, 2).start().epoch()
    assert has_ended(int(file.read_text()))


def test_a_failing_do_step_does_not_wait_for_slow_steps(tmp_path: Path) -> None:
    file = tmp_path / "pid"

    def fail(x: Any) -> None:
        wait_for(file)
        raise ValueError("no")

    with pytest.raises(TaskError, match=r"pipe/fail' .* in batch 1 failed: ValueError: no"):
        observed(
            [Task(steps.slow, "x", {"at": 2, "file": str(file)}, out="x")],
            Task(fail, "x"),
        )
    assert has_ended(int(file.read_text()))


def test_after_a_failure_the_session_can_run_again(tmp_path: Path) -> None:
    file = tmp_path / "tried"
    job = Job("j")
    seen: list[int] = []
    with job.setup:
        Task(lambda: np.arange(8), out="a", name="load")
    with job.epoch:
        map = [Task(steps.once, "x", {"file": str(file), "how": "SIGKILL"}, out="x")]
        do = [Task(lambda x: seen.append(int(x[0])), "x", name="see")]
        Pipe({"x": "a"}, map=map, do=do, processes=2)
    driver = drive(job).start()
    with pytest.raises(TaskError, match="SIGKILL"):
        driver.epoch()
    assert driver.epoch()
    assert seen == [0, 1, 2, *range(8)]


def test_closing_the_session_ends_workers_that_never_would(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(3), out="a", name="load")
    with job.epoch:
        map = [Task(steps.endless, "x", {"file": str(file)}, out="x")]
        Pipe({"x": "a"}, map=map, do=[Task(lambda x: None, "x", name="see")], processes=1)
    driver = drive(job).start()
    thread = threading.Thread(target=lambda: driver.session.run(*_epoch(driver)), daemon=True)
    thread.start()
    while not (found := list(tmp_path.glob("pid.*"))):
        time.sleep(0.01)
    within(20, driver.session.close)
    assert has_ended(int(found[0].suffix[1:]))
    thread.join(20)
    assert not thread.is_alive()


def _epoch(driver: Driver) -> tuple[Any, Any, Control]:
    return driver.plans["epoch"], driver.position, Control()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", ["process", "memory"])
def test_where_the_system_has_no_more_it_is_an_error(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: Any, **more: Any) -> Any:
        raise OSError(24, "Too many open files")

    place = "process.subprocess.Popen" if what == "process" else "channel.anonymous_file"
    monkeypatch.setattr(f"jobrun.session.workers.{place}", fails)
    step = Task(steps.same, "x", out="x")
    data = np.zeros((20, 10_000))
    with pytest.raises(
        TaskError, match=r"no resources for its worker processes: .*Too many"
    ) as caught:
        observed([step], Task(lambda x: None, "x", name="see"), data=data)
    assert "fewer 'processes'" in caught.value.hint


# What cannot be.


def test_processes_without_map_steps_are_refused() -> None:
    where = Where("job.yaml", 3, 9)
    with pytest.raises(SpecError, match="'processes' runs 'map' steps, and there are none") as c:
        Pipe("x", do=[Task(print, "x")], processes=2, marks={"processes": where})
    assert c.value.problems[0].where == where
    with pytest.raises(SpecError, match="on 'threads' or in 'processes', not both"):
        Pipe("x", map=[Task(print, "x")], do=[Task(print, "x")], processes=2, threads=2)


def test_no_process_is_an_error() -> None:
    with pytest.raises(DataError, match="processes is 0, but must be 1 or more"):
        drive(training(processes=0)).start().epoch()


def local() -> Callable[[Any], Any]:
    def inside(x: Any) -> Any:
        return x

    return inside


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: x, "it is defined as a lambda"),
        (local(), "it is defined inside a function"),
        (partial(steps.fails, at=3), "an object of type partial has no module and name"),
    ],
)
def test_functions_without_a_name_are_refused_before_anything_runs(function: Any, why: str) -> None:
    where = Where("job.yaml", 4, 5)
    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(3), out="a", name="load")
    with job.epoch:
        map = [Task(function, "x", out="x", name="f", where=where)]
        Pipe({"x": "a"}, map=map, do=[Task(print, "x")], processes=2)
    with pytest.raises(BindError, match=re.escape(why)) as caught:
        Driver(job)
    assert caught.value.where == where
    assert caught.value.exit_code == 4


def test_a_function_that_only_this_process_has_is_an_error_with_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = type(sys)("only_here")
    module.same = steps.same  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "only_here", module)
    where = Where("job.yaml", 4, 5)
    with pytest.raises(BindError) as caught:
        observed(
            [Task("only_here:same", "x", out="x", where=where)],
            Task(lambda x: None, "x", name="see"),
        )
    said = "a worker process cannot run only_here:same: there is no module 'only_here'"
    assert caught.value.message == said
    assert caught.value.where == where


def test_a_batch_goes_to_another_worker_if_no_step_of_it_was_begun() -> None:
    seen: list[int] = []
    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(20), out="a", name="load")
    with job.epoch:
        do = [Task(lambda p: seen.append(p), "p", name="see")]
        Pipe({"x": "a"}, map=[Task(steps.pid, "x", out="p")], do=do, processes=2)
    driver = drive(job).start()
    for _ in range(3):
        driver.epochs(1)
        lost = {*seen[-20:]}
        for worker in lost:  # which wait for the next epoch
            os.kill(worker, signal.SIGKILL)
    driver.epochs(1)
    assert len(seen) == 80
    assert not lost & {*seen[-20:]}
    warned = [e.message for e in driver.events if isinstance(e, Warned)]
    text = "a worker process of pipe 'pipe' was killed by SIGKILL before it began a step of batch "
    assert warned
    assert all(w.startswith(text) and w.endswith(", which another is given") for w in warned)


def test_any_number_of_workers_may_be_killed_while_they_are_idle() -> None:
    """One that has done batches before says nothing of the batch that it is given next."""
    count, seen = [6], set()
    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(20), out="a", name="load")
    with job.epoch:
        Task(lambda: count[0], out="n", name="count")
        do = [Task(lambda p: seen.add(p), "p", name="see")]
        Pipe({"x": "a"}, map=[Task(steps.late_pid, "x", out="p")], do=do, processes="n")
    driver = drive(job).start().epochs(1)
    assert len(seen) == 6
    for worker in seen:
        os.kill(worker, signal.SIGKILL)
    count[0] = 1
    driver.epochs(1)
    assert len(seen) == 7


def test_workers_that_are_killed_again_and_again_before_a_step_are_an_error(
    tmp_path: Path, monkeypatch: Any
) -> None:
    here = f"import os, signal\nif os.getpid() != {os.getpid()}:\n"
    dies = "    os.kill(os.getpid(), signal.SIGKILL)\ndef same(x): return x\n"
    (tmp_path / "kills_it.py").write_text(here + dies)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(TaskError, match="was killed by SIGKILL before it began a step"):
        observed([Task("kills_it:same", "x", out="x")], Task(lambda x: None, "x", name="see"))


def test_a_worker_that_dies_is_seen_though_a_fork_of_it_prints_on() -> None:
    map = [Task(steps.leaves_a_printer, "x", out="x", name="leaves")]
    with pytest.raises(TaskError, match="its worker process was killed by SIGKILL"):
        within(10, lambda: observed(map, Task(lambda x: None, "x", name="see"), processes=1))


def test_a_module_that_ends_its_worker_is_an_error(tmp_path: Path, monkeypatch: Any) -> None:
    here = f"import os\nif os.getpid() != {os.getpid()}:\n    print('bye', flush=True)\n"
    (tmp_path / "ends_it.py").write_text(here + "    os._exit(5)\ndef same(x): return x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(TaskError, match="ended with exit code 5 before it began a step") as caught:
        observed(
            [Task("ends_it:same", "x", out="x")],
            Task(lambda x: None, "x", name="see"),
        )
    assert "bye" in caught.value.trace


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("what", "literals", "vars"),
    [
        ("the literal 'text' is a date", {"text": date(2000, 1, 1)}, {}),
        ("the var 'when' is a date", {}, {"when": date(2000, 1, 1)}),
    ],
)
def test_what_cannot_be_sent_there_is_refused(what: str, literals: Any, vars: Any) -> None:
    names = {"x": "x", **({"text": "when"} if vars else {})}
    with pytest.raises(BindError, match=f"{what}, which cannot be sent to a worker process"):
        observed(
            [Task(steps.split, names, literals, out="t")],
            Task(lambda t: None, "t", name="see"),
            vars=vars,
        )


def test_an_object_may_go_from_step_to_step_but_not_out() -> None:
    step = Task(steps.opaque, "x", out="o")
    observed([step, Task(len, "o", out="n")], Task(lambda n: None, "n", name="see"))
    text = "task 'pipe/opaque' of group 'epoch' in batch 1 failed: column 'o' is "
    with pytest.raises(TaskError, match=text):
        observed([Task(steps.opaque, "x", out="o")], Task(lambda o: None, "o", name="see"))


def test_what_is_refused_here_is_refused_there() -> None:
    with pytest.raises(ValueRefusedError, match="a masked array cannot be a blob"):
        observed([Task(steps.masked, "x", out="z")], Task(lambda z: None, "z", name="see"))


# What they say, and signals.


def test_what_they_print_is_printed_here(capsys: pytest.CaptureFixture[str]) -> None:
    driver = observed([Task(steps.prints, "x", out="x")], Task(print, "x"), processes=1, ahead=1)
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert [line for line in lines if line.startswith("row")] == [f"row {i}.0" for i in range(20)]
    assert lines.count("raw") == 20
    assert printed.err.splitlines() == [f"err {i}.0" for i in range(20)]
    assert lines.index("row 7.0") < lines.index("[7.]")
    assert not [e for e in driver.events if isinstance(e, TaskProgress)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU, signal.SIGUSR2]
)
def test_signals_for_the_whole_run_leave_workers_alone(
    number: signal.Signals, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pid"
    seen: list[float] = []

    def interrupt() -> None:
        os.killpg(int(wait_for(file)), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    observed(
        [Task(steps.slow, "x", {"at": 2, "seconds": 0.5, "file": str(file)}, out="x")],
        Task(lambda x: seen.append(float(x[0])), "x", name="see"),
    )
    thread.join()
    assert seen == list(range(20))
    close_all()
    assert capsys.readouterr() == ("", "")


def test_a_worker_ends_with_its_process_though_a_fork_of_that_lives_on() -> None:
    """Which holds copies of all descriptors by which the worker could notice."""
    code = """
import os, signal, time
from jobrun.session.workers.process import WorkerProcess
worker = WorkerProcess([None])
fork = os.fork()
if fork == 0:
    time.sleep(1000)
print(worker._process.pid, fork, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    worker, fork = map(int, owner.stdout.readline().split())
    try:
        owner.wait(30)
        assert has_ended(worker)
        assert not has_ended(fork, 2)
    finally:
        os.kill(fork, signal.SIGKILL)
        owner.stdout.close()
