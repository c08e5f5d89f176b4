"""The benchmarks run and say what they measured; how fast anything is, is not tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench import spec_jobs
from tests.bench.__main__ import BENCHES, main
from tests.bench.durable import Store
from tests.bench.graphs import Shape, drive, shapes, sorter_of
from tests.bench.harness import Case, Contestant, Measured, Scale, Wanted, faster, measure
from tests.bench.report import seconds, table, verdict
from tests.bench.stores import STORES, equal, same

long = pytest.mark.skipif(not os.environ.get("JOBRUN_LONG"), reason="JOBRUN_LONG is not set")
Quick = tuple[str, dict[str, Any], Path]
ROOT = Path(__file__).parents[2]


def case(*contestants: Contestant, rounds: int = 3, **more: Any) -> Case:
    """A case of ten pieces, with "a" as reference and floor."""
    return Case("work", contestants, "a", "a", 10, "piece", rounds, **{"warm": False, **more})


# The whole command, in small.


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Quick:
    """The text and the JSON of benches in their quick sizes, and the directory they used.

    Some of them; all under JOBRUN_LONG, since those that start processes or wait take a minute.
    """
    folder = tmp_path_factory.mktemp("bench")
    benches = [] if os.environ.get("JOBRUN_LONG") else ["plans", "pipes", "save", "large_jobs"]
    command = [sys.executable, "-m", "tests.bench", *benches, "--quick", "--rounds", "1"]
    done = subprocess.run(
        [*command, "--dir", str(folder / "disk"), "--json", str(folder / "out.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "out.json").read_text()), folder / "disk"


def test_every_contestant_of_every_case_is_measured(quick: Quick) -> None:
    text, measured, _ = quick
    for found in measured["cases"]:
        assert found["reference"] in found["seconds"]
        assert found["floor"] in found["seconds"]
        assert any(name.startswith(("jobrun", "import jobrun")) for name in found["seconds"])
        assert not any(name.startswith("jobrun") for name in found["missing"])
        assert all(len(s) == 1 and s[0] > 0 for s in found["seconds"].values())
        assert f"\n{found['case']}: " in text
        for name, modules in found["missing"].items():
            assert name not in found["seconds"]
            assert f"({name}: not installed: {', '.join(modules)})" in text


@long
def test_all_kinds_of_work_are_there(quick: Quick) -> None:
    names = [found["case"] for found in quick[1]["cases"]]
    for kind in ("independent", "chain", "layers", "save, large", "save, small", "save, scalars"):
        assert any(kind in name for name in names), kind
    for kind in ("load, large", "load, small", "load, scalars", "start-up", "pipe, update"):
        assert any(kind in name for name in names), kind
    for kind in ("load, one of", "load, 1 MiB of", "same 5 % changed", "another 5 % changed"):
        assert any(kind in name for name in names), kind
    for kind in ("epoch, JAX MLP", "epoch, torch CNN", "epoch, GPT", "epoch, XGBoost"):
        assert any(kind in name for name in names), kind
    for kind in ("the call that saves", "after a save, functional", "after a save, in place"):
        assert any(kind in name for name in names), kind


@long
def test_wanted_numbers_stand_beside_the_measured(quick: Quick) -> None:
    text, measured, _ = quick
    wanted = [w for found in measured["cases"] for w in found["wanted"]]
    assert all(entry["what"] in text for entry in wanted)
    values = [entry["value"] for entry in wanted if entry["value"] is not None]
    assert len(values) >= 20
    assert all(f" {value:.2f}" in text for value in values)


def test_the_machine_is_described(quick: Quick) -> None:
    text, measured, _ = quick
    for fact in ("python", "numpy", "cores", "file system"):
        assert measured["machine"][fact] in text


def test_nothing_is_left_on_the_disk(quick: Quick) -> None:
    assert list(quick[2].iterdir()) == []


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("epoch, XGBoost", "xgboost"),
        ("epoch, JAX MLP", "optax"),
        pytest.param("epoch, torch CNN", "torch", marks=long),
        pytest.param("epoch, GPT", "torch", marks=long),
    ],
)
def test_an_epoch_of_a_spec_is_measured_beside_its_loop(
    name: str, module: str, tmp_path: Path
) -> None:
    pytest.importorskip(module)
    case = next(case for case in spec_jobs.cases(Scale(quick=True)) if case.name == name)
    seconds = measure(case, tmp_path, 1).seconds
    assert set(seconds) == {spec_jobs.LOOP, spec_jobs.OURS}
    assert all(found[0] > 0 for found in seconds.values())


def test_unknown_benches_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leave:
        main(["tasks", "takss"])
    assert leave.value.code == 2
    assert f"no bench takss; there are {', '.join(BENCHES)}" in capsys.readouterr().err


# The harness.


def test_all_take_part_in_every_round_in_changing_order(tmp_path: Path) -> None:
    ran: list[str] = []

    def run(name: str) -> Contestant:
        def once(directory: Path) -> float:
            ran.append(name)
            return 1.0

        return Contestant(name, once)

    measure(case(run("a"), run("b"), run("c"), rounds=20), tmp_path)
    rounds = [ran[i : i + 3] for i in range(0, 60, 3)]
    assert all(sorted(r) == ["a", "b", "c"] for r in rounds)
    assert len({tuple(r) for r in rounds}) == 6


def test_each_repetition_on_disk_has_a_fresh_directory_that_stays(tmp_path: Path) -> None:
    def run(directory: Path) -> float:
        assert list(directory.iterdir()) == []
        (directory / "file").touch()
        return 1.0

    measure(case(Contestant("a", run), Contestant("b", run), disk=1), tmp_path / "case")
    assert len(list((tmp_path / "case").glob("*/file"))) == 6


def test_what_was_written_is_deleted_between_rounds_once_the_room_is_used_up(
    tmp_path: Path,
) -> None:
    there: list[int] = []

    def run(directory: Path) -> float:
        (directory / "file").touch()
        there.append(len(list(tmp_path.glob("case/*/file"))))
        return 1.0

    measure(
        case(Contestant("a", run), Contestant("b", run), disk=10, rounds=5),
        tmp_path / "case",
        room=40,
    )
    assert there == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]


def test_warming_up_does_not_count(tmp_path: Path) -> None:
    times = iter([9.0, 1.0, 2.0])
    found = measure(
        case(Contestant("a", lambda directory: next(times)), warm=True, rounds=2), tmp_path
    )
    assert found.seconds == {"a": [1.0, 2.0]}


def test_slow_ones_take_part_in_fewer_rounds(tmp_path: Path) -> None:
    found = measure(
        case(Contestant("a", lambda d: 1.0), Contestant("b", lambda d: 3.0, at_most=1)), tmp_path
    )
    assert {n: len(s) for n, s in found.seconds.items()} == {"a": 3, "b": 1}
    assert found.ratio("b", "a") == 3.0


def test_who_needs_what_is_not_installed_is_named_and_left_out(tmp_path: Path) -> None:
    absent = Contestant("b", lambda d: 1.0, ("json", "no_such_module", "no_such.module"))
    found = measure(case(Contestant("a", lambda d: 1.0), absent), tmp_path)
    assert found.missing == {"b": ["no_such_module", "no_such.module"]}
    assert "(b: not installed: no_such_module, no_such.module)" in table(found)


def test_ratios_are_taken_within_rounds() -> None:
    found = Measured(case(), {"a": [1.0, 10.0, 2.0], "b": [2.0, 20.0, 10.0]})
    assert found.ratio("b", "a") == 2.0  # of the medians it would be 5
    assert found.median("b") == 10.0
    assert found.micros("a") == pytest.approx(2e5)


def test_faster_is_the_other_ones_time_over_the_own() -> None:
    found = Measured(case(), {"a": [1.0, 2.0], "b": [3.0, 6.0]})
    wanted = faster("work", "a", "b", 2.0)
    assert wanted.value(found) == 3.0
    assert wanted.reached(3.0)
    assert not wanted.reached(1.9)


def test_the_verdict_says_what_is_reached_and_what_was_not_measured() -> None:
    wanted = [
        Wanted("low", lambda m: m.median("a"), 1.0),
        Wanted("high", lambda m: m.median("a"), 2.0, at_least=True),
        Wanted("lost", lambda m: m.median("c"), 1.0),
    ]
    lines = verdict([Measured(case(wanted=wanted), {"a": [1.0]})]).splitlines()
    assert [line.split() for line in lines] == [
        ["wanted", "measured"],
        ["low", "<=", "1", "1.00", "yes"],
        ["high", ">=", "2", "1.00", "NO"],
        ["lost", "<=", "1", "not", "measured"],
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(12.345, "12.35 s"), (0.0123, "12.30 ms"), (4.56e-6, "4.56 µs")]
)
def test_seconds_are_for_people(value: float, text: str) -> None:
    assert seconds(value) == text


# What is kept and loaded again.


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.name)
def test_every_store_gives_back_what_was_saved(store: Store, tmp_path: Path) -> None:
    missing = Contestant(store.name, lambda d: 1.0, store.needs).missing
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    blobs = {
        "a": np.arange(24, dtype=np.float32).reshape(8, 3),
        "b": np.array(2.5),
        "c": np.arange(5),
    }
    store.save(tmp_path, store.prepare(blobs))
    assert equal(store.load(tmp_path, blobs), blobs)
    if store.load_one is not None:
        assert same(store.load_one(tmp_path, "c", blobs), blobs["c"])
    if store.load_rows is not None:
        assert same(store.load_rows(tmp_path, "a", blobs, slice(3, 6)), blobs["a"][3:6])


def test_what_differs_in_a_bit_a_dtype_or_a_shape_is_not_the_same() -> None:
    wanted = np.array([1.0, 2.0])
    assert same([1.0, 2.0], wanted)
    for other in (np.array([1.0, 2.5]), wanted.astype(np.float32), wanted.reshape(2, 1)):
        assert not same(other, wanted)
    assert not equal({"a": wanted}, {"b": wanted})


# The contestants that are our own code.


@pytest.mark.parametrize("shape", shapes(Scale(quick=True)), ids=lambda shape: shape.name)
def test_the_pool_runs_every_task_once_after_those_before_it(shape: Shape) -> None:
    ran: list[int] = []
    with ThreadPoolExecutor(2) as pool:
        drive(sorter_of(shape), pool, ran.append)
    place = {number: i for i, number in enumerate(ran)}
    assert sorted(ran) == list(range(len(shape.before)))
    assert all(place[b] < place[i] for i, before in enumerate(shape.before) for b in before)


def test_the_pool_ends_with_the_first_error() -> None:
    def task(number: int) -> None:
        if number == 3:
            raise ZeroDivisionError

    shape = Shape("chain", [[i - 1] if i else [] for i in range(10)])
    with ThreadPoolExecutor(2) as pool, pytest.raises(ZeroDivisionError):
        drive(sorter_of(shape), pool, task)
