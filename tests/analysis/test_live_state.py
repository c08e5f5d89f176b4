"""``state`` and ``constant`` in the analysis of a job: what persists, the order, and the errors."""

from __future__ import annotations

from typing import Any

import pytest

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.checks import check, warnings
from jobrun.analysis.graph import make_plan
from jobrun.analysis.persistence import persistent
from jobrun.model.job import Job, Node, Pipe, Task
from jobrun.model.options import Load
from jobrun.model.policy import CheckpointPolicy, Compress


def fn(*args: Any, **kwargs: Any) -> None:
    """What tasks of these tests call."""


def trainer(**options: Any) -> Job:
    """A network, its optimizer and another network, of which the epoch trains the first."""
    job = Job("j", **{"state": ["net", "opt", "other"], **options})
    with job.setup:
        Task(fn, out=["net", "opt"], name="build")
        Task(fn, out="other", name="build_other")
        Task(fn, out="data", name="read")
    with job.init:
        Task(fn, out="n", name="start")
    with job.epoch:
        Pipe({"x": "data"}, do=[Task(fn, "x", update=["net", "opt"], out="loss")], name="train")
    return job


def texts(job: Job) -> list[str]:
    return [f"{p.message}; {p.hint}" for p in check(job)]


def waits(job: Job, group: str = "epoch") -> dict[str, set[str]]:
    """Which tasks each task waits for."""
    plan = make_plan(job, job.groups[group])
    found: dict[str, set[str]] = {u.key: set() for u in plan.units}
    for number, after in enumerate(plan.successors):
        for other in after:
            found[plan.units[other].key].add(plan.units[number].key)
    return found


def test_state_persists_and_epochs_may_update_it() -> None:
    job = trainer()
    assert texts(job) == []
    assert persistent(JobAnalysis(job)) == {"main": ("net", "opt", "other", "n")}


def test_patterns_of_checkpoints_may_mean_it() -> None:
    rules = [Compress("zstd", 3, blobs) for blobs in ("other", "rng.numpy", "net/*")]
    job = trainer(
        state=["net", "opt", "other", "rng.numpy"], checkpoint=CheckpointPolicy(compress=rules)
    )
    assert [str(p) for p in warnings(JobAnalysis(job))] == []


def test_generators_persist_on_each_node() -> None:
    job = Job("j", state=["rng.numpy", "rng.python"], nodes=["a", "b"])
    with job.init, Node("*"):
        Task(fn, out="n")
    assert texts(job) == []
    names = ("rng.python", "rng.numpy", "n")
    assert persistent(JobAnalysis(job)) == {"a": names, "b": names}


def test_an_object_of_the_best_checkpoint_is_copied_while_nobody_changes_its_own() -> None:
    job = trainer(metrics={"loss": "min"})
    with job.exit:
        Task(fn, update="opt", name="tune")
        Task(fn, "best:net", name="copy")
        Task(fn, "best:n", name="look")
        Task(fn, "net", name="use")
    assert texts(job) == []
    expected = {"tune": set(), "copy": {"tune"}, "look": set(), "use": {"copy"}}
    assert waits(job, "exit") == expected


def test_init_and_epoch_may_replace_it() -> None:
    job = trainer()
    with job.init:
        Task(fn, "net", out="net", name="load")
    with job.epoch:
        Task(fn, "other", out="other", name="replace")
    assert texts(job) == []


def test_readers_of_one_object_run_one_after_another() -> None:
    job = trainer()
    with job.epoch:
        Task(fn, "net", out="a", name="first")
        Task(fn, "net", out="b", name="second")
        Task(fn, "other", out="c", name="third")
        Task(fn, "n", out="d", name="free")
    assert waits(job) == {
        "train": set(),
        "first": {"train"},
        "second": {"first", "train"},
        "third": set(),
        "free": set(),
    }


def test_linked_objects_are_ordered_as_one() -> None:
    job = trainer()
    with job.epoch:
        Task(fn, "opt", out="rate", name="watch")
        Task(fn, "net", out="norm", name="measure")
    assert waits(job)["measure"] == {"train", "watch"}


def test_a_call_that_only_reads_two_objects_links_nothing() -> None:
    job = trainer()
    with job.exit:
        Task(fn, ["net", "other"], out="mean", name="ensemble")
    live = JobAnalysis(job).live
    assert live.linked([("main", "net")]) == [("main", "net"), ("main", "opt")]


def test_a_call_that_changes_one_of_two_objects_links_them() -> None:
    job = trainer()
    with job.init:
        Task(fn, "other", update="opt", name="add_group")
    live = JobAnalysis(job).live
    assert len(live.linked([("main", "net")])) == 3


def test_generators_order_all_tasks_of_a_node() -> None:
    job = Job("j", state=["rng.numpy"], nodes=["a", "b"])
    with job.epoch:
        for name in ("a", "b"):
            Task(fn, out="x", name=f"first_{name}", node=name)
            Task(fn, out="y", name=f"second_{name}", node=name)
    assert waits(job) == {
        "a:first_a": set(),
        "a:second_a": {"a:first_a"},
        "b:first_b": set(),
        "b:second_b": {"b:first_b"},
    }


def _unknown() -> Job:
    return trainer(state=["nett", "net", "opt"])


def _unknown_generator() -> Job:
    return trainer(state=["rng.nump", "net", "opt"])


def _unknown_constant() -> Job:
    return trainer(constant=["dat"])


def _both() -> Job:
    return trainer(constant=["net"])


def _adapter_of_a_generator() -> Job:
    return trainer(state={"net": None, "opt": None, "rng.numpy": "code:Adapter"})


def _part() -> Job:
    job = trainer()
    with job.epoch:
        Task(fn, "net/weights", out="w", name="read_part")
    return job


def _written_part() -> Job:
    job = trainer()
    with job.epoch:
        Task(fn, out="net/weights", name="write_part")
    return job


def _source() -> Job:
    job = trainer()
    with job.epoch:
        Pipe({"y": "net"}, do=[Task(fn, "y")], name="odd")
    return job


def _called_source() -> Job:
    job = trainer()
    with job.epoch:
        Pipe(["y"], call=fn, in_="net", do=[Task(fn, "y")], name="odd")
    return job


def _loaded() -> Job:
    job = trainer()
    with job.init:
        Task(Load("runs/other"), out={"model": "net"}, name="load")
    return job


def _timeout_and_retries() -> Job:
    job = trainer()
    with job.epoch:
        Task(fn, "net", out="a", name="slow", timeout=9, retries=2)
    return job


def _generator_as_blob() -> Job:
    job = trainer(state=["net", "opt", "rng.numpy"])
    with job.epoch:
        Task(fn, out="rng.numpy", name="odd")
    return job


def _written_constant() -> Job:
    job = trainer(constant=["data"])
    with job.epoch:
        Task(fn, update="data", name="change")
    return job


def _other_node() -> Job:
    job = Job("j", nodes=["a", "b"], state=["net"])
    with job.setup, Node("a"):
        Task(fn, out="net", name="build")
    with job.epoch:
        Task(fn, "a:net", out="x", name="use", node="b")
    return job


def _all_nodes() -> Job:
    job = Job("j", nodes=["a", "b"], state=["net"])
    with job.setup, Node("*"):
        Task(fn, out="net", name="build")
    with job.epoch:
        Task(fn, "*:net", out="x", name="use", node="b")
    return job


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (_unknown, "'state' names 'nett', which no task of 'setup' writes; did you mean 'net'?"),
        (_unknown_generator, "did you mean 'rng.numpy'?"),
        (
            _unknown_constant,
            "'constant' names 'dat', which no task of 'setup' writes; did you mean 'data'?",
        ),
        (_both, "'net' is under 'state' and 'constant' at once"),
        (_adapter_of_a_generator, "'rng.numpy' under 'state' takes no adapter"),
        (_part, "task 'read_part' names 'net/weights', but 'net' is under 'state' and is one"),
        (_written_part, "task 'write_part' names 'net/weights', but 'net' is under 'state'"),
        (_source, "pipe 'odd' reads from 'net', which is under 'state'"),
        (_called_source, "pipe 'odd' reads from 'net', which is under 'state'"),
        (_loaded, "task 'load' replaces 'net', which is an object under"),
        (_timeout_and_retries, "task 'slow' has 'timeout' and 'retries' and uses 'net'"),
        (_generator_as_blob, "task 'odd' names 'rng.numpy', a generator under 'state'"),
        (_written_constant, "task 'change' updates 'data', which belongs to 'setup'"),
        (_other_node, "task 'use' on node 'b' uses 'net' of node 'a', which is under 'state'"),
        (_all_nodes, "task 'use' on node 'b' uses 'net' of node 'a', which is under 'state'"),
    ],
)
def test_each_error_is_found_before_anything_runs(make: Any, text: str) -> None:
    found = texts(make())
    assert any(text in line for line in found), found
