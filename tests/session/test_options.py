"""Retries, timeouts, and blobs of other runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine import Driver, same, within

from jobrun.checkpoint.manager import CheckpointManager
from jobrun.core.events import Warned
from jobrun.errors import SpecError, TaskError
from jobrun.model.job import Job, Node, Pipe, Task
from jobrun.model.options import Load, Retries
from jobrun.model.shell import Shell
from jobrun.session.base import Control, Places

# Retries.


def failing(times: int, then: Callable[..., Any]) -> Callable[..., Any]:
    """A function that does its work and fails so many times, before it does not fail."""
    left = [times]

    def work(*args: Any) -> Any:
        result = then(*args)
        left[0] -= 1
        if left[0] >= 0:
            raise ConnectionError(f"{left[0]} left")
        return result

    return work


def warned(driver: Driver) -> list[str]:
    return [e.message for e in driver.events if isinstance(e, Warned)]


@pytest.mark.parametrize("fails", [0, 1, 3])
def test_a_call_that_fails_is_made_again(fails: int) -> None:
    job = Job("j")
    with job.epoch:
        Task(failing(fails, lambda: 5), out="x", name="work", retries=3)
    driver = Driver(job)
    assert driver.epoch()
    assert driver.blob("x") == 5
    assert warned(driver) == [
        f"task 'work' of group 'epoch' failed: ConnectionError: {fails - n - 1} left; "
        f"try {n + 2} of 4"
        for n in range(fails)
    ]


def test_after_the_last_try_it_is_the_error_of_that() -> None:
    job = Job("j")
    with job.epoch:
        Task(failing(9, lambda: 5), out="x", name="work", retries=2)
    with pytest.raises(TaskError, match="ConnectionError: 6 left"):
        Driver(job).epoch()


@pytest.mark.parametrize("fails", [0, 1, 2])
@pytest.mark.parametrize("tree", [False, True])
def test_an_update_is_tried_again_on_a_fresh_copy(fails: int, tree: bool) -> None:
    def grow(w: Any) -> None:
        (w["a"] if tree else w)[...] += 1

    job = Job("j")
    with job.init:
        Task(lambda: {"a": np.zeros(3)} if tree else np.zeros(3), out="w", name="begin")
    with job.epoch:
        Task(failing(fails, grow), update="w", name="work", retries=2)
    driver = Driver(job).start().epochs(1)
    assert same(driver.blob("w/a" if tree else "w"), np.ones(3))


def test_a_stored_value_outlives_all_tries() -> None:
    def spoil(w: Any) -> None:
        w[...] = np.nan
        raise ValueError("no")

    job = Job("j")
    with job.init:
        Task(lambda: np.zeros(3), out="w", name="begin")
    with job.epoch:
        Task(spoil, update="w", retries=1)
    driver = Driver(job).start()
    seen: list[Any] = []

    def report(event: object) -> None:
        if isinstance(event, Warned):
            seen.append(driver.blob("w").copy())

    with pytest.raises(TaskError):
        driver.run("epoch", Control(report=report))
    assert same(seen, [np.zeros(3)])


def test_each_try_draws_the_same_random_numbers() -> None:
    drawn: list[float] = []

    def draw(rng: Any, table: Any) -> float:
        drawn.append(rng.random())
        table.append(1)
        assert len(table) == 2
        if len(drawn) == 3:  # the try that counts
            table.pop()
        return drawn[-1]

    job = Job("j", vars={"table": [0]})
    with job.epoch:
        Task(failing(2, draw), ["rng", "table"], out="x", name="draw", retries=2)
    Driver(job).epoch()
    assert len(drawn) == 3
    assert len(set(drawn)) == 1


def test_copies_over_nodes_try_again_with_what_was_gathered() -> None:
    """Though another copy has already written what they read."""
    tries = {"a": 0, "b": 0}
    drawn: dict[str, set[float]] = {"a": set(), "b": set()}

    def mean(values: list[float], node: str, rng: Any) -> float:
        tries[node] += 1
        drawn[node].add(rng.random())
        values.append(0.0)
        if node == "b" and tries[node] < 3:
            raise ValueError("no")
        values.pop()  # a try that counts leaves what it was given as it was
        return sum(values) / len(values)

    job = Job("j", nodes={"a": {}, "b": {}})
    with job.init:
        Task(lambda: 1.0, out="w", name="one", node="a")
        Task(lambda: 3.0, out="w", name="three", node="b")
    with job.epoch, Node("*"):
        Task(mean, ["*:w", "node", "rng"], out="w", retries=2)
    driver = Driver(job, 1).start().epochs(1)
    assert (driver.blob("a:w"), driver.blob("b:w")) == (2.0, 2.0)
    assert tries == {"a": 1, "b": 3}
    assert len(drawn["b"]) == 1


@pytest.mark.parametrize("threads", [1, 3])
def test_steps_of_a_pipe_are_tried_again_on_the_same_batch(threads: int) -> None:
    lock, seen = threading.Lock(), set()

    def once(kind: str, x: Any) -> None:
        with lock:
            if (kind, x[0]) not in seen:
                seen.add((kind, x[0]))
                raise ConnectionError("no")

    def prepare(x: Any) -> Any:
        once("map", x)
        return x + 1

    def step(x: Any, w: Any) -> None:
        w += x
        once("do", x)

    job = Job("j")
    with job.init:
        Task(lambda: np.arange(6.0), out="data", name="load")
        Task(lambda: np.zeros(1), out="w", name="begin")
    with job.epoch:
        Pipe(
            {"x": "data"},
            map=[Task(prepare, "x", out="x", retries=1)],
            do=[Task(step, "x", update="w", retries=1)],
            threads=threads,
        )
    driver = Driver(job).start().epochs(1)
    assert driver.blob("w").tolist() == [21]
    assert len(warned(driver)) == 12
    assert any("task 'pipe/prepare'" in m for m in warned(driver))


def test_a_check_that_fails_is_not_tried_again() -> None:
    def write(x: Any) -> None:
        import ctypes

        ctypes.memset(x.__array_interface__["data"][0], 1, 1)

    job = Job("j")
    with job.init:
        Task(lambda: np.zeros(4), out="data", name="load")
    with job.epoch:
        Task(write, "data", retries=5)
    driver = Driver(job, check_inputs=True).start()
    with pytest.raises(TaskError, match="changed one of its inputs"):
        driver.epoch()
    assert not warned(driver)


def test_an_interrupt_ends_the_wait_for_the_next_try() -> None:
    waiting = threading.Event()
    job = Job("j")
    with job.epoch:
        Task(failing(1, lambda: 5), out="x", name="work", retries=Retries(1, 1000.0))
    driver = Driver(job)
    control = Control(
        cut=waiting.is_set, interrupted=waiting.is_set, report=lambda event: _set(event, waiting)
    )
    reached = within(20, lambda: driver.run("epoch", control))
    assert reached.tasks == ()


def _set(event: object, waiting: threading.Event) -> None:
    if isinstance(event, Warned):
        assert event.message.endswith("try 2 of 2 in 1000 s")
        waiting.set()


def test_an_interrupt_between_the_tries_of_a_batch_lets_the_batch_end() -> None:
    waiting = threading.Event()
    job = Job("j")
    with job.init:
        Task(lambda: np.arange(6.0), out="data", name="load")
        Task(lambda: np.zeros(1), out="w", name="begin")
    with job.epoch:
        step = Task(failing(1, np.add), "x", update="w", retries=Retries(1, 1000.0), name="step")
        step.fn = failing(1, lambda x, w: w.__iadd__(x) is None or None)
        Pipe({"x": "data"}, do=[step])
    driver = Driver(job).start()
    control = Control(
        cut=waiting.is_set, interrupted=waiting.is_set, report=lambda event: _set(event, waiting)
    )
    reached = within(20, lambda: driver.run("epoch", control))
    assert reached.pipes["pipe"].batches == 1


def test_pauses_grow_by_the_backoff() -> None:
    retries = Retries(3, 2.0, 1.5)
    assert [retries.pause(n) for n in (1, 2, 3)] == [2.0, 3.0, 4.5]


@pytest.mark.parametrize(
    "retries", [0, -1, True, Retries(1, -1.0), Retries(1, 1.0, 0.5), Retries(1, float("nan"))]
)
def test_retries_that_cannot_be(retries: Any) -> None:
    with pytest.raises(SpecError, match="retries"):
        Task(print, retries=retries)


# Timeouts.


@pytest.mark.parametrize("timeout", [0, -1.0, float("inf"), float("nan")])
def test_timeouts_that_cannot_be(timeout: float) -> None:
    with pytest.raises(SpecError, match="timeout"):
        Task(print, timeout=timeout)


def test_a_function_that_takes_too_long_ends_the_run_without_it() -> None:
    go_on, ended = threading.Event(), threading.Event()

    def slow() -> int:
        assert go_on.wait(30)
        ended.set()
        return 5

    job = Job("j")
    with job.init:
        Task(lambda: 0, out="x", name="begin")
    with job.epoch:
        Task(slow, out="x", timeout=0.05, retries=3)
    driver = Driver(job, 2).start()
    with pytest.raises(TaskError) as caught:
        within(20, driver.epoch)
    assert not ended.is_set()
    text = "task 'slow' of group 'epoch' failed: it exceeded its timeout of 0.05 s"
    assert caught.value.message == text
    assert "a thread cannot be killed" in caught.value.hint
    go_on.set()
    assert ended.wait(20)
    assert driver.blob("x") == 0  # what comes too late is not taken


def test_a_function_within_its_time_is_not_disturbed() -> None:
    job = Job("j")
    with job.epoch:
        Task(lambda: 5, out="x", name="quick", timeout=60)
    driver = Driver(job).epochs(3)
    assert driver.session.names() == []
    driver.epoch()
    assert driver.blob("x") == 5
    for timer in [t for t in threading.enumerate() if isinstance(t, threading.Timer)]:
        timer.join(20)  # they were called off, long before their time
        assert not timer.is_alive()


def test_a_program_that_takes_too_long_is_ended_and_may_be_tried_again(tmp_path: Path) -> None:
    text = (
        "[[ -e $JOBRUN_SPEC_DIR/go ]] || { touch $JOBRUN_SPEC_DIR/go; sleep 1000; }; echo 1 > a.txt"
    )
    job = Job("j")
    with job.epoch:
        Task(Shell(script=text), out={"a.txt": "a"}, timeout=0.5, retries=1)
    driver = Driver(job, spec_dir=tmp_path)
    driver.epoch()
    assert driver.blob("a") == 1.0
    (message,) = warned(driver)
    assert "the script exceeded its timeout of 0.5 s, and was stopped" in message


# Blobs of other runs.


@pytest.fixture
def run(tmp_path: Path) -> Path:
    manager = CheckpointManager(tmp_path / "other")
    for epoch in (0, 1, 2):
        blobs = {"w": np.full(3, float(epoch)), "model": {"a": np.arange(2), "n": epoch}}
        manager.save(epoch, {"main": blobs})
    return tmp_path / "other"


def loaded(load: Load, out: Any, folder: Path) -> Driver:
    job = Job("j")
    with job.init:
        Task(load, out=out)
    return Driver(job, spec_dir=folder).start()


def test_blobs_of_the_newest_checkpoint_or_of_one_that_is_named(run: Path, tmp_path: Path) -> None:
    for load, epoch in (
        (Load("other"), 2),
        (Load("other", epoch=1), 1),
        (Load("other", id=0), 0),
        (Load(str(run / "checkpoint_1")), 1),
    ):
        driver = loaded(load, {"w": "start", "model": None}, tmp_path)
        assert same(driver.blob("start"), np.full(3, float(epoch)))
        assert same(driver.blob("model"), {"a": np.arange(2), "n": epoch})


def test_they_are_written_by_the_next_checkpoint(run: Path, tmp_path: Path) -> None:
    driver = loaded(Load("other"), {"w": "w"}, tmp_path)
    token = driver.session.snapshot()
    assert token is not None
    assert token.blobs["main"]["w"].version == -1


@pytest.mark.parametrize(
    ("load", "out", "message"),
    [
        (Load("nothing"), {"w": "w"}, "there is no checkpoint"),
        (Load("other", epoch=7), {"w": "w"}, "7"),
        (Load("other"), {"v": "v"}, "there is no blob 'v'"),
    ],
)
def test_what_is_not_there(run: Path, tmp_path: Path, load: Load, out: Any, message: str) -> None:
    with pytest.raises(TaskError, match=f"task 'load' of group 'init' failed: .*{message}"):
        loaded(load, out, tmp_path)


def test_a_damaged_blob_is_not_loaded(run: Path, tmp_path: Path) -> None:
    for chunk in (run / "checkpoint_2/main/w").iterdir():
        if chunk.name != "zarr.json":
            chunk.write_bytes(b"\0" * chunk.stat().st_size)
    with pytest.raises(TaskError, match="checkpoint_2"):
        loaded(Load("other", epoch=2), {"w": "w"}, tmp_path)


def test_texts_of_the_run_are_filled_in(run: Path, tmp_path: Path) -> None:
    from jobrun.core.template import template

    job = Job("j")
    with job.init:
        Task(Load(template("${run.dir}/../other")), out={"w": "w"})
    driver = Driver(job)
    (tmp_path / "run").mkdir()
    driver.session.open(job, Places(tmp_path, tmp_path / "run"))
    driver.start()
    assert driver.blob("w").tolist() == [2, 2, 2]


@pytest.mark.parametrize("given", [{"out": "w"}, {}, {"out": {"w": "w"}, "in_": "x"}])
def test_a_load_has_a_mapping_as_out_and_is_given_nothing(given: Any) -> None:
    with pytest.raises(SpecError, match="load"):
        Task(Load("other"), **given)
