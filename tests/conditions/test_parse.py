"""Conditions as written to conditions that can be asked: for jobs made in Python and for specs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from jobrun.conditions.kinds.blob_true import BlobTrue
from jobrun.conditions.kinds.data_finished import DataFinished
from jobrun.conditions.kinds.epochs import Epochs
from jobrun.conditions.kinds.not_finite import NotFinite
from jobrun.conditions.kinds.patience import Patience
from jobrun.conditions.kinds.walltime import Walltime
from jobrun.conditions.kinds.when import When
from jobrun.conditions.parse import build, problems
from jobrun.errors import SpecError
from jobrun.model.job import Job, Pipe, Task


def made(
    stop: dict[str, Any] | None = None,
    fail: dict[str, Any] | None = None,
    *,
    passes: Any = 2,
    nodes: Any = None,
    **job_options: Any,
) -> Job:
    metrics = {"loss": "min", "accuracy": "max", "plain": None}
    options = {
        "metrics": metrics,
        "vars": {"n": 3, "text": "x", "eps": 0.5, "long": "1h"},
        **job_options,
    }
    job = Job("test", nodes=nodes, **options)
    node = None if nodes is None else "*"
    with job:
        Task("m:f", out=["loss", "accuracy", "plain", "model"], node=node)
        Pipe({"x": "model"}, passes=passes, do=[Task("m:g", "x")], name="read", node=node)
        Pipe({"x": "model"}, do=[Task("m:g", "x")], name="endless", node=node)
    job.stop(**({"data_finished": "read"} if passes else {}), **(stop or {}))
    job.fail(**(fail or {}))
    return job


def only(job: Job) -> Any:
    found = [c for c, _ in build(job) if not isinstance(c, DataFinished)]
    assert len(found) == 1
    return found[0]


def message(job: Job, known: Collection[str] | None = None) -> str:
    with pytest.raises(SpecError) as caught:
        build(job, known)
    assert list(caught.value.problems) == problems(job, known)
    return str(caught.value)


@pytest.mark.parametrize(
    ("stop", "condition"),
    [
        ({"epochs": 3}, Epochs(3)),
        ({"epochs": "n"}, Epochs(3)),
        ({"blob": "plain"}, BlobTrue("plain")),
        ({"blob": "model/done"}, BlobTrue("model/done")),
        ({"not_finite": "loss"}, NotFinite("loss")),
        ({"walltime": 90}, Walltime(90.0)),
        ({"walltime": "15m"}, Walltime(900.0)),
        ({"walltime": "n"}, Walltime(3.0)),
        ({"walltime": "long"}, Walltime(3600.0)),
        ({"walltime": "slurm"}, Walltime(None)),
        ({"patience": {"loss": 5}}, Patience("loss", 5, "min")),
        ({"patience": {"accuracy": "n"}}, Patience("accuracy", 3, "max")),
        (
            {"patience": {"loss": {"epochs": 5, "min_delta": "eps", "start": 10}}},
            Patience("loss", 5, "min", 0.5, 10),
        ),
    ],
)
def test_conditions_as_written(stop: dict[str, Any], condition: Any) -> None:
    assert only(made(stop)) == condition


def test_when_takes_its_vars_along() -> None:
    condition = only(made({"when": "loss < eps and epoch >= n"}))
    assert isinstance(condition, When)
    assert condition.constants == {"eps": 0.5, "n": 3}
    assert condition.names == ("loss",)


def test_sections_and_order_are_kept() -> None:
    job = made({"epochs": 3, "when": "loss < 1"}, {"not_finite": "loss"})
    assert [(c.kind, fails) for c, fails in build(job)] == [
        ("data_finished", False),
        ("epochs", False),
        ("when", False),
        ("not_finite", True),
    ]


def test_two_metrics_in_one_patience() -> None:
    job = made({"patience": {"loss": 2, "accuracy": 3}})
    assert [c for c, _ in build(job)][1:] == [
        Patience("loss", 2, "min"),
        Patience("accuracy", 3, "max"),
    ]


def test_data_finished_has_the_passes_of_its_pipe() -> None:
    assert build(made())[0] == (DataFinished("read", 2), False)
    assert build(made(passes="n"))[0] == (DataFinished("read", 3), False)


@pytest.mark.parametrize(
    ("stop", "part"),
    [
        ({"epochs": 0}, "stop.epochs: expected a number of epochs from 1 up, got 0"),
        ({"epochs": True}, "got true"),
        ({"epochs": 2.0}, "got 2.0"),
        ({"epochs": "m"}, "there is no var 'm'"),
        ({"epochs": "text"}, "got 'x' (the var 'text')"),
        ({"epohcs": 3}, "unknown condition 'epohcs'; did you mean 'epochs'?"),
        ({"walltime": "soon"}, "expected a time (90s, 15m, 2h, or a number of seconds)"),
        ({"walltime": 0}, "got 0"),
        ({"walltime": float("inf")}, "got inf"),
        ({"walltime": 10**400}, "stop.walltime"),
        ({"blob": "plane"}, "no task writes a blob 'plane'; did you mean 'plain'?"),
        ({"blob": "n"}, "it is a var, which never changes"),
        ({"blob": 3}, "expected the name of a blob, got 3"),
        ({"not_finite": ["loss"]}, "expected one metric"),
        ({"data_finished": "raed"}, "no pipe 'raed'; did you mean 'read'?"),
        ({"data_finished": "endless"}, "can never be true"),
        ({"when": 3}, "expected an expression"),
        ({"when": "los < 1"}, "'los' is neither a blob nor a var; did you mean 'loss'?"),
        ({"when": "loss < text"}, "var 'text' is not a number"),
        ({"when": "loss <"}, "not an expression"),
        ({"patience": 3}, "expected {metric: epochs}, got 3; patience: {loss: 3}"),
        ({"patience": {}}, "expected {metric: epochs}"),
        ({"patience": {"los": 3}}, "no task writes a blob 'los'; did you mean 'loss'?"),
        ({"patience": {"model": 3}}, "'model' is not among the metrics"),
        ({"patience": {"plain": 3}}, "has no direction"),
        ({"patience": {"loss": {"start": 3}}}, "'epochs' is missing"),
        ({"patience": {"loss": {"epochs": 3, "delta": 1}}}, "did you mean 'min_delta'"),
        ({"patience": {"loss": {"epochs": 3, "min_delta": -1}}}, "from 0 up, got -1"),
        ({"patience": {"loss": {"epochs": 3, "min_delta": float("nan")}}}, "got nan"),
    ],
)
def test_what_cannot_be(stop: dict[str, Any], part: str) -> None:
    stop = dict(stop)
    job = made({k: v for k, v in stop.items() if k != "data_finished"})
    if "data_finished" in stop:
        job.stop(data_finished=stop["data_finished"])
    assert part in message(job)


def test_all_problems_come_at_once() -> None:
    job = made({"epochs": 0, "when": "los < 1", "walltime": "x"}, {"not_finite": "y"})
    assert len(message(job).splitlines()) == 4


def test_no_stop_condition() -> None:
    job = Job("test")
    with job:
        Task("m:f", out="loss")
    assert "no stop condition: the job would never end" in message(job)
    job.fail(not_finite="loss")
    assert "no stop condition" in message(job)
    job.stop(never=True)
    assert [c for c, _ in build(job)] == [NotFinite("loss")]
    job.stop(epochs=3)
    assert "'never' together with other stop conditions" in message(job)


def test_passes_need_data_finished() -> None:
    job = made(passes=None)
    assert "no stop condition" in message(job)
    with job:
        Pipe({"x": "model"}, passes=1, do=[Task("m:g", "x")], name="once")
    job.stop(epochs=3)
    assert "pipe 'once' has 'passes', but nothing ends the job after them" in message(job)
    job.fail(data_finished="once")
    assert len(build(job)) == 2


def test_passes_of_other_groups_end_nothing() -> None:
    job = made()
    with job.exit:
        Pipe({"x": "model"}, passes=1, do=[Task("m:g", "x")])
    assert len(build(job)) == 1


def test_passes_must_be_known_before_the_run() -> None:
    assert "'passes' of pipe 'read' to be a number from 1 up; there is no var 'model'" in message(
        made(passes="model")
    )


def test_a_condition_names_its_node() -> None:
    nodes = {"a": {"own": 1}, "b": {"own": 2}}
    metrics = {"loss": "min"}
    job = made({"when": "loss < 1"}, nodes=nodes, metrics=metrics)
    assert 'a condition names the node: blob("a:loss")' in message(job)
    job = made({"patience": {"loss": 3}}, nodes=nodes, metrics=metrics)
    assert "a condition names the node: a:loss" in message(job)
    job = made({"patience": {"b:loss": 3}, "blob": "a:model"}, nodes=nodes, metrics=metrics)
    assert [c for c, _ in build(job)][1:] == [Patience("b:loss", 3), BlobTrue("a:model")]
    job = made({"epochs": "own"}, nodes=nodes, metrics=metrics)
    assert "var 'own' differs by node" in message(job)
    job = made({"when": "own < 1"}, nodes=nodes, metrics=metrics)
    assert "var 'own' differs by node" in message(job)


def test_two_meanings_of_elapsed() -> None:
    job = made({"when": "elapsed > 3"}, vars={"elapsed": 3})
    assert "'elapsed' has two meanings here" in message(job)


def test_known_blobs_may_be_given() -> None:
    job = made({"blob": "else"})
    assert build(job, {"else", "loss"})
    assert "no task writes" in message(job)
