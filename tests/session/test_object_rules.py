"""What is said of opaque objects and what is refused: they have no copy and no checkpoint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine import Driver

from jobrun.core.events import GroupStarted, Warned
from jobrun.errors import TaskError, Where
from jobrun.model.job import Job, Node, Pipe, Task

WHERE = Where("job.yaml", 5, 3)


class Net:
    """An object that holds state."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> None:
        self.steps += 1


def step(net: Net) -> None:
    net.step()


def warned(driver: Driver) -> list[str]:
    return [e.message for e in driver.events if isinstance(e, Warned)]


# Objects of ``setup``.


@pytest.mark.parametrize("threads", [1, 4])
def test_an_object_of_setup_that_epochs_use_is_said_once_before_the_first_epoch(
    threads: int,
) -> None:
    job = Job("j")
    with job.setup:
        Task(Net, out="net", name="make", marks={"out:net": WHERE})
        Task(Net, out="unused", name="another")
        Task(step, "unused", name="use")
    with job.epoch:
        Task(step, "net", name="train")
        Task(step, "net", name="look")
    with job.exit:
        Task(step, "unused", name="last")
    driver = Driver(job, threads).start().epochs(3)
    driver.run("exit")
    (said,) = warned(driver)
    assert said == (
        f"job.yaml:5:3: 'net' of 'setup' is an object of type {Net.__module__}.Net, which 'train' "
        "and 'look' of 'epoch' use: changes to it in an epoch are in no checkpoint, and lost on a "
        "resume; name it under 'state' if its content is to be saved; else what changes belongs in "
        "arrays, numbers and dicts of those: write them in 'init' and 'update' them in 'epoch'"
    )
    kinds = [e for e in driver.events if isinstance(e, Warned | GroupStarted)]
    assert [type(e) for e in kinds[2:4]] == [Warned, GroupStarted]
    assert getattr(kinds[3], "group", "") == "epoch"


def test_two_names_of_one_object_are_said_together_and_parts_of_trees_are_found() -> None:
    def make() -> dict[str, Any]:
        net = Net()
        return {"a": net, "b": [net, 1.0]}

    job = Job("j")
    with job.setup:
        Task(make, out="tree", name="make")
    with job.epoch:
        Task(lambda part: step(part[0]), "tree/b", name="train")
    (said,) = warned(Driver(job).start().epochs(1))
    assert said.startswith("'tree/a' and 'tree/b/0' of 'setup' is an object of type")
    assert "which 'train' of 'epoch' uses" in said


def test_the_like_of_all_nodes_is_said_together() -> None:
    job = Job("j", nodes=["a", "b"])
    with job.setup, Node("*"):
        Task(Net, out="net", name="make")
    with job.epoch, Node("*"):
        Task(step, "net", name="train")
    (said,) = warned(Driver(job).start().epochs(1))
    assert said.startswith("'net' of 'setup' on a, b is an object of type")


@pytest.mark.parametrize("value", [b"text", 1j, len, Net, range(3), Where("f", 1, 1).__eq__])
def test_what_cannot_change_is_not_said(value: Any) -> None:
    job = Job("j")
    with job.setup:
        Task(lambda: value, out="x", name="make")
    with job.epoch:
        Task(lambda x: None, "x", name="use")
    said = warned(Driver(job).start().epochs(1))
    assert bool(said) == isinstance(getattr(value, "__self__", None), Where)


def test_a_step_of_a_pipe_uses_objects_too() -> None:
    job = Job("j")
    with job.setup:
        Task(Net, out="net", name="make")
        Task(lambda: [1.0, 2.0], out="rows", name="rows")
    with job.setup:
        Task(lambda rows: np.array(rows), "rows", out="x", name="array")
    with job.epoch:
        use = Task(lambda net, x: step(net), ["net", "x"], name="use")
        Pipe({"x": "x"}, do=[use], name="train")
    (said,) = warned(Driver(job).start().epochs(1))
    assert "which 'train' of 'epoch' uses" in said


@pytest.mark.parametrize("threads", [1, 4])
def test_an_update_of_an_object_of_setup_by_another_name_is_refused_before_it_is_made(
    threads: int,
) -> None:
    nets: list[Net] = []

    def make() -> Net:
        nets.append(Net())
        return nets[-1]

    job = Job("j")
    with job.setup:
        Task(make, out="net", name="make")
    with job.epoch:
        Task(lambda net: net, "net", out="alias", name="same")
        Task(step, update="alias", name="train", marks={"update:alias": WHERE})
    driver = Driver(job, threads).start()
    with pytest.raises(TaskError, match="task 'train' of group 'epoch' updates 'alias'") as caught:
        driver.epoch()
    assert "which is the object that 'setup' made as 'net'" in caught.value.message
    assert caught.value.where == WHERE
    assert "'init'" in caught.value.hint
    assert [net.steps for net in nets] == [0]


def test_an_object_of_the_epoch_may_be_updated() -> None:
    job = Job("j")
    with job.epoch:
        Task(Net, out="net", name="make")
        Task(step, update="net", name="train")
        Task(lambda net: net.steps, "net", out="steps", name="count")
    driver = Driver(job).start()
    driver.epoch()
    assert driver.blob("steps") == 1
    assert warned(driver) == []


# Retries.


class Flaky:
    """Fails at the first call, after it has changed what it was given."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, net: Net) -> None:
        self.calls += 1
        net.step()
        if self.calls == 1:
            raise OSError("once")


@pytest.mark.parametrize("group", ["setup", "epoch"])
def test_retries_of_a_task_that_is_given_an_object_are_said_once_before_the_call(
    group: str,
) -> None:
    job = Job("j")
    with job.groups[group]:
        Task(Net, out="net", name="make")
    with job.epoch:
        Task(Flaky(), "net", name="flaky", retries=2, marks={"in:net": WHERE})
        Task(lambda net: net.steps, "net", out="steps", name="count")
    driver = Driver(job).start()
    driver.epochs(2)
    text = (
        "job.yaml:5:3: task 'flaky' of group 'epoch' has retries and reads 'net', an object "
        "that cannot be copied: a retry sees the changes of the failed try"
    )
    said = warned(driver)
    assert said.count(text) == 1
    tries = [n for n, line in enumerate(said) if "try 2 of 3" in line]
    assert len(tries) == 1
    assert said.index(text) < tries[0]


def test_retries_of_a_task_that_updates_an_object_are_refused() -> None:
    """``retries`` promise what is updated as it was."""
    flaky = Flaky()
    job = Job("j")
    with job.epoch:
        Task(Net, out="net", name="make")
        Task(flaky, update="net", name="flaky", retries=2, marks={"update:net": WHERE})
    with pytest.raises(TaskError, match="has retries and updates 'net', an object that") as caught:
        Driver(job).start().epoch()
    assert flaky.calls == 0
    assert caught.value.where == WHERE
    assert "without 'retries'" in caught.value.hint


def test_retries_of_a_step_of_a_pipe_are_said() -> None:
    job = Job("j")
    with job.setup:
        Task(Net, out="net", name="make")
        Task(lambda: np.zeros(2), out="x", name="rows")
    with job.epoch:
        use = Task(lambda net, x: step(net), ["net", "x"], name="use", retries=1)
        Pipe({"x": "x"}, do=[use], name="train")
    said = warned(Driver(job).start().epochs(1))
    assert sum("task 'train/use' of group 'epoch' has retries" in line for line in said) == 1


def test_retries_without_objects_are_not_said() -> None:
    job = Job("j")
    with job.init:
        Task(lambda: 1.0, out="w", name="begin")
    with job.epoch:
        Task(lambda w: w + 1, "w", out="w", name="more", retries=3)
    assert warned(Driver(job).start().epochs(2)) == []
