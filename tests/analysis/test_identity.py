"""What differs between two jobs, and to which row of the table it belongs."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun.analysis.facts import job_facts
from jobrun.analysis.identity import Change, compare, digest
from jobrun.jobspec.build import built
from jobrun.jobspec.resolve import load
from jobrun.model.job import Job, Pipe, Task
from jobrun.model.policy import CheckpointPolicy, Every, Keep

SPECS = Path(__file__).parents[2] / "specs"
SPEC = """\
name: sum
seed: 1
vars: {lr: 0.1, n: 3, deep: {a: [1, 2]}}
setup:
  - {call: job:load, with: {file: "${spec.dir}/x", k: 1}, out: rows}
init:
  - {call: job:start, out: total}
epoch:
  - name: train
    pipe: {from: {x: rows}, batch: 2, passes: 3, batches_per_epoch: 4, threads: 2}
    map: [{call: job:scale, in: x, out: x}]
    do: [{call: job:step, in: {x, lr}, update: {total}, out: loss}]
    reduce: {loss: last}
  - {call: job:watch, in: {total}, out: seen, every: 2}
  - {shell: relax a.txt, in: {a.txt: total}, timeout: 60}
  - {load: {run: other, epoch: 2, blobs: w}}
  - {shell: {script: "cat b.txt", files: {b.txt: int64}}, name: cat, in: {b.txt: total}}
metrics: {loss: min}
stop: {data_finished: train, epochs: 9}
fail: {not_finite: loss}
checkpoint: {every: 1, keep: {last: 3}}
"""


def facts(tmp_path: Path, text: str = SPEC) -> dict[str, Any]:
    path = tmp_path / "sum.yaml"
    path.write_text(text)
    found = job_facts(built(load(path)).made)
    return dict(json.loads(json.dumps(found)))  # as it comes back from run.json


@pytest.mark.parametrize(
    ("old", "new", "row", "line"),
    [
        ("epochs: 9", "epochs: 12", "free", "stop.epochs: 9 -> 12"),
        (", epochs: 9", "", "free", "stop.epochs: removed, was 9"),
        ("epochs: 9", "epochs: 9, walltime: 2h", "free", "stop.walltime: added, 2h"),
        ("not_finite: loss", "not_finite: total", "free", "fail.not_finite: loss -> total"),
        ("batches_per_epoch: 4", "batches_per_epoch: 5", "free", None),
        ("passes: 3", "passes: 4", "free", "epoch.train.pipe.passes: 3 -> 4"),
        (", threads: 2", "", "free", "epoch.train.pipe.threads: removed, was 2"),
        ("threads: 2", "threads: 2, ahead: 9", "free", "epoch.train.pipe.ahead: added, 9"),
        (", threads: 2", ", processes: 2", "free", None),
        ("threads: 2", "processes: 4", "free", None),
        ("out: x}]", "out: x, timeout: 9}]", "free", "epoch.train.map.scale.timeout: added, 9.0"),
        ("last: 3", "last: 5", "free", "checkpoint.keep.last: 3 -> 5"),
        ("{every: 1, keep: {last: 3}}", "false", "free", None),
        ("loss: min", "loss: max", "free", "metrics.loss: min -> max"),
        ("name: sum", "name: total", "free", "name: sum -> total"),
        ("batch: 2", "batch: 4", "accept", "epoch.train.pipe.batch: 2 -> 4"),
        ("batch: 2", "batch: 2, shuffle: true", "job", "epoch.train.pipe.shuffle: added, true"),
        ("batch: 2", "batch: 2, rows: x", "job", "epoch.train.pipe.rows: added, x"),
        ("batch: 2", "batch: 2, shard: 0/2", "accept", "epoch.train.pipe.shard: added, 0/2"),
        ("batch: 2", "batch: 2, shuffle: {buffer: 9}", "job", None),
        ("from: {x: rows}", "file: d.csv, types: {x: int}", "job", None),
        ("from: {x: rows}", "concat: [{from: {x: rows}}, {from: {x: rows}}]", "job", None),
        ("from: {x: rows}", "call: job:rows, in: {n}, with: {k: 1}, from: [x]", "job", None),
        ("from: {x: rows}", "from: {x: total}", "job", "epoch.train.pipe.from.x: rows -> total"),
        ("lr: 0.1", "lr: 0.05", "job", "vars.lr: 0.1 -> 0.05"),
        ("n: 3", "n: 3.0", "job", "vars.n: 3 -> 3.0"),
        ("a: [1, 2]", "a: [1, 3]", "job", "vars.deep.a: [1, 2] -> [1, 3]"),
        ("seed: 1", "seed: 2", "job", "seed: 1 -> 2"),
        ("k: 1", "k: true", "job", "setup.load.with.k: 1 -> true"),
        ("call: job:start", "call: job:begin", "job", None),
        ("every: 2", "every: 3", "job", "epoch.watch.every: 2 -> 3"),
        (
            "relax a.txt",
            "relax -f a.txt",
            "job",
            "epoch.relax.shell: relax a.txt -> relax -f a.txt",
        ),
        ("timeout: 60", "timeout: 1m30s", "free", "epoch.relax.timeout: 60.0 -> 90.0"),
        ("timeout: 60", "timeout: 60, retries: 2", "free", None),
        (
            "in: {total}, out: seen",
            "in: {total}, out: seen, thread: same",
            "free",
            "epoch.watch.thread: added, same",
        ),
        ("call: job:scale,", "call: job:scale, retries: 2,", "free", None),
        ("epoch: 2, blobs", "epoch: 3, blobs", "job", "epoch.load.load.epoch: 2 -> 3"),
        ("cat b.txt", "tac b.txt", "job", "epoch.cat.shell.script: cat b.txt -> tac b.txt"),
        ("b.txt: int64", "b.txt: int32", "job", None),
        ("loss: last", "loss: sum", "job", "epoch.train.reduce.loss: last -> sum"),
        ("in: {x, lr}", "in: {x, rate: lr}", "job", None),
        ("last: 3}", "last: 3}, include: [seen]", "job", 'checkpoint.include: added, ["seen"]'),
        ("name: sum", "name: sum\nnodes: {main: {}}", "job", 'nodes: added, {"main": {}}'),
        (
            "name: sum",
            "name: sum\nstate: [rows]",
            "job",
            "state.rows: added, the adapter of its type",
        ),
        ("seed: 1", "seed: 1\nconstant: [rows]", "free", 'constant: added, ["rows"]'),
    ],
)
def test_each_change_has_its_row(
    tmp_path: Path, old: str, new: str, row: str, line: str | None
) -> None:
    assert old in SPEC
    before, after = facts(tmp_path), facts(tmp_path, SPEC.replace(old, new))
    diff = compare(before, after)
    assert diff
    assert {c.row for c in diff.changes} == {row}
    assert (digest(before) == digest(after)) == (row == "free")
    lines = diff.free if row == "free" else diff.job
    assert len(lines) == len(diff.changes)
    if line is not None:
        assert lines == (line,)


def test_another_adapter_can_never_be_accepted(tmp_path: Path) -> None:
    with_state = "name: sum\nstate: {rows: code:A}"
    before = facts(tmp_path, SPEC.replace("name: sum", with_state))
    after = facts(tmp_path, SPEC.replace("name: sum", with_state.replace("code:A", "code:B")))
    diff = compare(before, after)
    assert diff.never == diff.job == ("state.rows: code:A -> code:B",)


def test_nothing_changed(tmp_path: Path) -> None:
    assert not compare(facts(tmp_path), facts(tmp_path))


def test_the_order_of_tasks_counts_and_that_of_keys_does_not(tmp_path: Path) -> None:
    swapped = SPEC.replace("lr: 0.1, n: 3", "n: 3, lr: 0.1")
    assert not compare(facts(tmp_path), facts(tmp_path, swapped))
    first, second = "  - {call: job:load", "  - {call: job:other, out: y}\n  - {call: job:load"
    two = facts(tmp_path, SPEC.replace(first, second))
    added = compare(facts(tmp_path), two)
    assert added.job == ("setup.other: added, job:other",)
    turned = {**two, "setup": two["setup"][::-1]}
    assert compare(two, turned).changes == (
        Change("setup.order", "other, load", "load, other", "job"),
    )
    assert digest(two) != digest(turned)


def test_how_a_source_is_brought_back_to_its_place_is_free(tmp_path: Path) -> None:
    called = SPEC.replace("from: {x: rows}", "call: job:rows, from: [x]")
    by_state = called.replace("from: [x]", "from: [x], resume: state")
    before, after = facts(tmp_path, called), facts(tmp_path, by_state)
    (change,) = compare(before, after).changes
    assert change == Change("epoch.train.pipe.resume", "", "state", "free")
    assert digest(before) == digest(after)


def test_a_moved_spec_is_the_same_job(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert not compare(facts(tmp_path / "a"), facts(tmp_path / "b"))


def test_keys_at_their_default_are_not_facts(tmp_path: Path) -> None:
    explicit = SPEC.replace("batch: 2", "batch: 2, shuffle: false, drop_last: false")
    assert not compare(facts(tmp_path), facts(tmp_path, explicit))


def test_two_conditions_of_one_kind(tmp_path: Path) -> None:
    two = SPEC.replace(
        "stop: {data_finished: train, epochs: 9}",
        "stop: [{data_finished: train}, {when: loss < 1}, {when: loss < 2}]",
    )
    diff = compare(facts(tmp_path, two), facts(tmp_path, two.replace("loss < 2", "loss < 3")))
    assert diff.free == ("stop.when 2: loss < 2 -> loss < 3",)


def python_job(**changes: Any) -> Job:
    given = {"constant": 1.0, "fn": add_one, "lr": 0.1, **changes}
    with Job("sum", seed=7, vars={"lr": given["lr"]}) as job:
        with job.init:
            Task(make_total, with_={"start": given["constant"]}, out="total")
        Task(given["fn"], update="total")
        Pipe({"x": "total"}, do=[Task(add_one, "x", out="loss")])
        job.stop(epochs=3)
    return job


def make_total(start: Any) -> Any:
    return start


def add_one(total: Any) -> None:
    total += 1


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"fn": make_total}, "epoch"),
        ({"lr": 0.2}, "vars.lr"),
        ({"constant": 1}, "init.make_total.with.start"),
        ({"constant": math.nan}, "init.make_total.with.start"),
        ({"constant": np.float64(1.0)}, "init.make_total.with.start"),
        ({"constant": np.zeros(3)}, "init.make_total.with.start"),
        ({"constant": {"a": (1, 2)}}, "init.make_total.with.start"),
        ({"constant": add_one}, "init.make_total.with.start"),
    ],
)
def test_facts_of_a_job_made_in_python(changes: dict[str, Any], path: str) -> None:
    one, other = job_facts(python_job()), job_facts(python_job(**changes))
    assert json.loads(json.dumps(one, allow_nan=False)) == one
    diff = compare(one, json.loads(json.dumps(other, allow_nan=False)))
    assert diff.job
    assert diff.changes[0].path.startswith(path)
    assert not compare(other, job_facts(python_job(**changes)))


@dataclass
class Options:
    """Constants of a task, together."""

    rate: float
    inner: Any = None


class Kind(Enum):
    """An enumeration."""

    ONE = 1
    TWO = 2


LOOP = Options(1.0)
LOOP.inner = [LOOP]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Options(0.1), Options(0.2)),
        (Options(0.1, [Options(1.0)]), Options(0.1, [Options(2.0)])),
        ({1, 2}, {1, 3}),
        (frozenset({"a"}), frozenset({"b"})),
        (datetime(2026, 1, 1), datetime(2026, 1, 2)),
        (Path("a"), Path("b")),
        (Fraction(1, 3), Fraction(2, 3)),
        (Decimal("0.1"), Decimal("0.2")),
        (Kind.ONE, Kind.TWO),
        (range(3), range(4)),
        (partial(make_total, 1), partial(make_total, 2)),
    ],
)
def test_constants_made_in_python_are_compared_by_their_content(old: Any, new: Any) -> None:
    """Of these the type alone was compared: a run resumed with another value, and said nothing."""
    one, other = (json.loads(json.dumps(job_facts(python_job(constant=v)))) for v in (old, new))
    assert compare(one, other).job
    assert not compare(one, job_facts(python_job(constant=old)))
    assert json.loads(json.dumps(job_facts(python_job(constant=LOOP))))


def scaled(total: Any, by: Any) -> None:
    total *= by


def test_what_a_partial_has_bound_is_part_of_the_job() -> None:
    """Any two partials were one function, functools:partial."""
    one = job_facts(python_job(fn=partial(scaled, by=2.0)))
    again = job_facts(python_job(fn=partial(scaled, by=2.0)))
    assert not compare(one, again)
    for fn, path in (
        (partial(scaled, by=3.0), "epoch.partial.bound.by"),
        (partial(add_one), "epoch.partial.call"),
    ):
        diff = compare(one, job_facts(python_job(fn=fn)))
        assert diff.job
        assert diff.changes[0].path == path


def test_arrays_are_compared_by_their_content() -> None:
    one = job_facts(python_job(constant=np.arange(4.0)))
    assert not compare(one, job_facts(python_job(constant=np.arange(4.0))))
    assert compare(one, job_facts(python_job(constant=np.arange(4.0)[::-1])))
    assert compare(one, job_facts(python_job(constant=np.arange(4.0, dtype=np.float32))))


def test_policy_of_a_job_made_in_python_is_free_to_change() -> None:
    one, other = python_job(), python_job()
    other.checkpoint = CheckpointPolicy(Every(3), Keep(last=2), on_error="fail")
    diff = compare(job_facts(one), job_facts(other))
    assert diff.job == ()
    assert diff.free == (
        "checkpoint.every.epochs: 1 -> 3",
        'checkpoint.keep: all -> {"last": 2}',
        "checkpoint.on_error: warn -> fail",
    )


@pytest.mark.parametrize("spec", sorted(SPECS.glob("*.yaml")), ids=lambda p: p.stem)
def test_facts_of_the_specs_are_json(spec: Path) -> None:
    found = job_facts(built(load(spec)).made)
    back = json.loads(json.dumps(found, allow_nan=False))
    assert not compare(found, back)
    assert digest(found) == digest(back)


def test_groups_that_may_change() -> None:
    old = {"vars": {"n": 1}, "exit": [{"name": "tell", "call": "a:b"}]}
    new = {"vars": {"n": 2}, "exit": [{"name": "tell", "call": "a:c"}]}
    diff = compare(old, new)
    assert diff.job == ("vars.n: 1 -> 2", "exit.tell.call: a:b -> a:c")
    freed = diff.freed(["download", "exit"])
    assert (freed.job, freed.free) == (("vars.n: 1 -> 2",), ("exit.tell.call: a:b -> a:c",))


def test_of_long_texts_what_differs_is_shown(tmp_path: Path) -> None:
    long = "set of parameters: alpha=1 beta=2 gamma=3 delta=4 epsilon=5 zeta=6 eta=7 theta=8"
    spec = SPEC.replace("cat b.txt", f"{long}\\ncat b.txt >c.txt\\n")
    old = facts(tmp_path, spec)
    (change,) = compare(old, facts(tmp_path, spec.replace(">c", ">d"))).changes
    assert str(change) == (
        "epoch.cat.shell.script: …=6 eta=7 theta=8\\ncat b.txt >c.txt\\n"
        " -> …=6 eta=7 theta=8\\ncat b.txt >d.txt\\n"
    )
    (change,) = compare(old, facts(tmp_path, spec.replace(">c.txt\\n", ">c.txt\\nls"))).changes
    assert (change.old[-8:], change.new[-10:]) == (">c.txt\\n", ">c.txt\\nls")
    (change,) = compare(old, facts(tmp_path, spec.replace("set of", "a set of"))).changes
    assert (change.old[:6], change.new[:8]) == ("set of", "a set of")
    assert len(change.old) == len(change.new) == 80


def test_floats_that_an_earlier_version_spelt_differently_are_no_difference() -> None:
    assert not compare({"vars": {"x": {"float": "inf"}}}, {"vars": {"x": {"float": "Infinity"}}})
