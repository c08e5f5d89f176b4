"""Reading, restoring and copying live objects: memory, and what adapters do wrong."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from engine import Driver
from live import Counter, CounterAdapter, Net, build

from jobrun.core.events import Warned
from jobrun.errors import BindError, TaskError
from jobrun.model.job import Job, Pipe, Task
from jobrun.values.borrowing import BUFFERS


class Big(Net):
    """A network with a matrix that is worth a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.w = np.ones((300, 300))


def use(*objects: Any) -> None:
    """A task that is given live objects."""


def job_of(make: Callable[[], Any], adapter: Any = None, **options: Any) -> Job:
    job = Job("j", state={"thing": adapter}, **options)
    with job.setup:
        Task(make, out="thing", name="make")
    with job.epoch:
        Task(use, "thing", name="use")
    return job


def test_the_copies_of_a_save_are_in_memory_of_the_one_before() -> None:
    driver = Driver(job_of(Big)).start().epochs(1)
    size = driver.session.blob("thing").w.nbytes
    BUFFERS.release()
    for _ in range(3):
        taken = driver.session.snapshot()
        assert taken is not None
        assert BUFFERS.free == 0
        taken.release()
        del taken
        assert BUFFERS.free == size
    driver.session.close()


class Tied(Net):
    """Large arrays: one at two places, one in a dict at two places, and one that is small."""

    def __init__(self) -> None:
        super().__init__()
        self.w = np.ones((300, 300))
        self.inner = {"m": np.ones((400, 300)), "b": np.ones(4)}

    def state_dict(self) -> dict[str, Any]:
        return {"w": self.w, "head": {"w": self.w.view()}, "m": [self.inner], "n": self.inner}


def test_a_save_copies_each_array_once_and_takes_no_new_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver(job_of(Tied)).start().epochs(1)
    copied: list[int] = []
    copy = BUFFERS.copy

    def counted(array: Any) -> Any:
        copied.append(array.nbytes)
        return copy(array)

    def save() -> None:
        taken = driver.session.snapshot()
        assert taken is not None
        taken.release()

    sizes = [driver.session.blob("thing").w.nbytes, 400 * 300 * 8]
    BUFFERS.release()
    save()
    monkeypatch.setattr(BUFFERS, "copy", counted)
    tracemalloc.start()
    try:
        for _ in range(3):
            copied.clear()
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            save()
            assert sorted(copied) == [32, *sizes]
            assert tracemalloc.get_traced_memory()[1] - before < min(sizes) // 4
    finally:
        tracemalloc.stop()
        driver.session.close()


class Failing(CounterAdapter):
    """An adapter with one method that fails, or gives what cannot be saved."""

    def __init__(self, method: str) -> None:
        self.method = method

    def state(self, obj: Any) -> Any:
        if self.method == "state":
            raise KeyError("n")
        return {"n": object()} if self.method == "plain" else {"n": obj.n}

    def restore(self, obj: Any, state: Any) -> Any:
        raise RuntimeError("does not fit")

    def copy(self, obj: Any) -> Any:
        raise TypeError("no copies")


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("state", "the state of 'thing' cannot be read (adapter 'tests.Counter'): KeyError: 'n'"),
        ("plain", "the state of 'thing' cannot be read (adapter 'tests.Counter'): blob 'thing/n'"),
    ],
)
def test_a_state_that_cannot_be_read_names_blob_and_adapter(method: str, text: str) -> None:
    driver = Driver(job_of(Counter, Failing(method))).start()
    with pytest.raises(TaskError) as caught:
        driver.session.snapshot()
    assert text in caught.value.message


def test_a_state_that_cannot_be_restored_names_blob_and_adapter() -> None:
    def fail(thing: Any) -> None:
        raise ValueError("first")

    job = job_of(Counter, Failing("restore"))
    with job.epoch:
        Task(fail, "thing", name="fail", retries=1)
    driver = Driver(job).start()
    with pytest.raises(TaskError, match=r"cannot be restored .*: RuntimeError: does not fit"):
        driver.epochs(1)
    assert driver.session.snapshot() is None


def test_a_copy_that_fails_names_the_adapter() -> None:
    job = job_of(Counter, Failing("copy"))
    driver = Driver(job).start()
    live = driver.session._stores.live  # type: ignore[attr-defined]
    with pytest.raises(TaskError) as caught:
        live.copies([("main", "thing")], {})
    assert "'best:thing' cannot be copied: TypeError: no copies" in str(caught.value)
    assert "adapter 'tests.Counter'" in str(caught.value)


class Incomplete:
    """No adapter: it cannot restore."""

    name = "incomplete"
    version = 1

    def state(self, obj: Any) -> Any:
        return {}


class Demanding(CounterAdapter):
    """Cannot be made without arguments."""

    def __init__(self, given: int) -> None:
        raise AssertionError(given)


@pytest.mark.parametrize(
    ("adapter", "text"),
    [
        (Incomplete, "is not an adapter of live objects"),
        (Demanding, "cannot be created without arguments"),
        ("live:Missing", "'live' has no 'Missing'"),
        ("live:Net", "is not an adapter of live objects"),
    ],
)
def test_what_is_no_adapter_is_found_before_anything_runs(adapter: Any, text: str) -> None:
    with pytest.raises(BindError, match=text):
        Driver(job_of(Counter, adapter))


def test_a_call_that_took_too_long_leaves_a_state_that_is_never_saved() -> None:
    job = job_of(Counter, CounterAdapter())
    with job.epoch:
        Task(lambda thing: time.sleep(0.5), "thing", name="slow", timeout=0.05)
    driver = Driver(job).start()
    with pytest.raises(TaskError, match="exceeded its timeout"):
        driver.epochs(1)
    assert driver.session.snapshot() is None


def test_what_is_given_and_returned_is_the_object_itself() -> None:
    seen: list[Any] = []

    def replace(thing: Any) -> Any:
        seen.append(thing)
        return Net()

    job = job_of(Net)
    with job.epoch:
        Task(replace, "thing", out="thing", name="replace")
        Task(seen.append, update="thing", name="see")
    driver = Driver(job).start().epochs(1)
    assert seen[1] is driver.session.blob("thing")
    assert seen[0] is not seen[1]


def test_one_of_several_outputs_is_a_live_object() -> None:
    def both(net: Any) -> dict[str, Any]:
        return {"n": 3, "net": net, "w": net.w}

    job = Job("j", state=["net"], constant=["opt"])
    with job.setup:
        Task(build, out=["net", "opt"])
    with job.epoch:
        Task(both, "net", out={"w": "w", "net": "net", "n": "n"}, name="both")
    with job.exit:
        Task(use, ["w", "n"], name="use")
    driver = Driver(job).start()
    net = driver.session.blob("net")
    driver.epochs(1)
    assert driver.session.blob("net") is net
    net.w += 1  # what was put out of it is a blob of its own
    assert driver.session.blob("w").max() == 1
    assert driver.session.blob("n") == 3


class Dice:
    """An object that draws from numpy's global generator."""

    def __init__(self) -> None:
        self.thrown = 0


class DiceState:
    name, version = "test.Dice", 1

    def state(self, obj: Dice) -> Any:
        return {"thrown": obj.thrown}

    def restore(self, obj: Dice, state: Any) -> Dice:
        obj.thrown = state["thrown"]
        return obj

    def copy(self, obj: Dice) -> Dice:
        return self.restore(Dice(), self.state(obj))

    def draws_from(self, obj: Dice) -> tuple[str, str]:
        return "rng.numpy", "it has no seed"


@pytest.mark.parametrize("saved", [False, True])
def test_a_global_generator_that_is_not_saved_is_a_warning(saved: bool) -> None:
    job = Job("j", state={"dice": DiceState(), **({"rng.numpy": None} if saved else {})})
    with job.setup:
        Task(Dice, out="dice")
    with job.epoch:
        Task(lambda dice: None, update="dice")
    driver = Driver(job, 1).start()
    said = [e.message for e in driver.events if isinstance(e, Warned)]
    assert [("rng.numpy" in m and "'dice'" in m and "it has no seed" in m) for m in said] == (
        [] if saved else [True]
    )


class Anew(CounterAdapter):
    """Restores by a new object in the place of the old one."""

    def restore(self, obj: Any, state: Any) -> Any:
        return super().restore(Counter(), state)


def _counted(step: Task) -> list[int]:
    """Return what a later step of a pipe sees of ``thing``, which ``step`` counts up, by batch."""
    seen: list[int] = []
    job = Job("j", state={"thing": Anew()})
    with job.setup:
        Task(lambda: (Counter(), np.arange(4)), out=["thing", "x"], name="make")
    with job.epoch:
        see = Task(lambda thing: seen.append(thing.n), "thing", name="see")
        Pipe({"x": "x"}, batch=1, do=[step, see], name="pipe")
    Driver(job).start().epochs(1)
    return seen


def test_a_step_sees_the_object_that_a_retry_has_put_in_place_of_another() -> None:
    fails = [False, False, True, False, False]

    def count(x: Any, thing: Any) -> None:
        thing.n += 1
        if fails.pop(0):
            raise OSError

    assert _counted(Task(count, "x", update="thing", retries=1, name="count")) == [1, 2, 3, 4]


def test_a_step_sees_the_object_that_a_step_before_it_puts_out() -> None:
    def count(thing: Any) -> Any:
        new = Counter()
        new.n = thing.n + 1
        return new

    assert _counted(Task(count, "thing", out="thing", name="count")) == [1, 2, 3, 4]
