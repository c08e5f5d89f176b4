"""``matrix``: its combinations, what ``--set`` picks of them, and the spec of each."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from jobrun.analysis.facts import job_facts
from jobrun.analysis.identity import digest
from jobrun.errors import SpecError
from jobrun.jobspec.matrix import Matrix
from jobrun.jobspec.resolve import Spec, dump_resolved, load, with_values
from jobrun.jobspec.validate import job_of, validate_spec

SPEC = """\
vars: {lr: 0.1, n: 3, on: true, act: relu, any: null, other: 1}
matrix: %s
epoch:
  - {call: "j:f", in: {lr, n}, out: x}
stop: {epochs: n}
"""


def spec(tmp_path: Path, matrix: str, *sets: str, text: str = SPEC) -> Spec:
    path = tmp_path / "a.yaml"
    path.write_text(text % matrix)
    return load(path, sets)


def matrix(tmp_path: Path, values: str, *sets: str, text: str = SPEC) -> Matrix:
    found = spec(tmp_path, values, *sets, text=text).matrix
    assert found is not None
    return found


def test_the_last_var_changes_fastest(tmp_path: Path) -> None:
    found = matrix(tmp_path, "{n: [1, 2], lr: [0.1, 0.2]}")
    assert [tuple(c.items()) for c in found.combinations()] == [
        (("n", n), ("lr", lr)) for n in (1, 2) for lr in (0.1, 0.2)
    ]


def test_values_have_the_types_of_their_vars(tmp_path: Path) -> None:
    lists = matrix(
        tmp_path, "{lr: [1, .inf], n: [4.0], on: [false], act: [no], any: [1, 1.0, null, '1']}"
    ).lists
    assert repr(lists["lr"]) == "[1.0, inf]"
    assert repr(lists["n"]) == "[4]"
    assert (lists["on"], lists["act"]) == ([False], ["no"])
    assert repr(lists["any"]) == "[1, 1.0, None, '1']"


@pytest.mark.parametrize(
    ("sets", "wanted", "all_n"),
    [
        ([], [1, 2], [1, 2]),
        (["n=2"], [2], [1, 2]),
        (["vars.n=1"], [1], [1, 2]),
        (["n=1", "n=2"], [2], [1, 2]),
        (["n=7"], [7], [1, 2, 7]),
        (["other=7"], [1, 2], [1, 2]),
    ],
)
def test_set_picks_a_value_or_adds_it(
    sets: list[str], wanted: list[int], all_n: list[int], tmp_path: Path
) -> None:
    loaded = spec(tmp_path, "{n: [1, 2], lr: [0.1, 0.2]}", *sets)
    found = loaded.matrix
    assert found is not None
    assert found.wanted() == [{"n": n, "lr": lr} for n in wanted for lr in (0.1, 0.2)]
    assert found.count == 2 * len(wanted)
    assert loaded.tree["matrix"] == {"n": all_n, "lr": [0.1, 0.2]}


def test_a_part_of_the_matrix_can_be_set(tmp_path: Path) -> None:
    assert matrix(tmp_path, "{n: [1, 2]}", "matrix.n.0=5").lists == {"n": [5, 2]}
    with pytest.raises(SpecError, match=r"'n': expected a list of values, got 5; write \[5\]"):
        spec(tmp_path, "{n: [1, 2]}", "matrix.n=5")


def test_a_value_that_the_type_of_its_var_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"'lr' is a float, and 1000.*more than a float can hold"):
        spec(tmp_path, f"{{lr: [1{'0' * 400}]}}")


def test_the_spec_of_a_combination_is_that_of_set(tmp_path: Path) -> None:
    loaded = spec(tmp_path, "{n: [1, 2], lr: [5, 0.2]}")
    one = with_values(loaded, {"n": 2, "lr": 5.0})
    assert one.matrix is None
    text = SPEC.replace("matrix: %s\n", "")
    single = spec(tmp_path, "", "n=2", "lr=5", text=text + "%s")
    assert one.tree == single.tree
    assert dump_resolved(one) == dump_resolved(single)
    facts = [job_facts(job_of(s)) for s in (one, single)]
    assert facts[0] == facts[1]
    assert digest(facts[0]) == digest(facts[1])
    assert loaded.tree["vars"]["n"] == 3, "the whole is as it was"


def test_the_resolved_spec_is_the_same_sweep(tmp_path: Path) -> None:
    first = spec(tmp_path, "{n: [1, 2], lr: [.inf, 0.2], act: ['1', 'no']}", "lr=0.5")
    copy = tmp_path / "copy.yaml"
    copy.write_text(dump_resolved(first))
    second = load(copy)
    assert second.matrix is not None
    assert first.matrix is not None
    assert second.matrix.lists == first.matrix.lists


def test_every_value_is_checked(tmp_path: Path) -> None:
    values = [*range(1, 60), 0]
    path = tmp_path / "a.yaml"
    path.write_text(SPEC % f"{{lr: [0.1, 0.2], n: {values}, other: [1, 2]}}")
    with pytest.raises(SpecError, match=r"stop\.epochs: expected .* got 0 \(the var 'n'\)"):
        validate_spec(path)
    path.write_text(SPEC % f"{{lr: [0.1, 0.2], n: {values[:-1]}, other: [1, 2]}}")
    assert validate_spec(path).vars["n"] == 1


def test_covering_holds_all_of_a_few_and_each_value_of_many() -> None:
    lists: dict[str, Any] = {"a": [1, 2, 3], "b": [True, 1, 1.0], "c": list(range(40))}
    few = Matrix({k: lists[k] for k in "ab"})
    assert few.covering() == few.combinations()
    many = Matrix(lists, {"b": True})
    assert many.count == math.prod((3, 1, 40))
    found = many.covering()
    assert len(found) == 40
    assert {c["a"] for c in found} == {1, 2, 3}
    assert {c["c"] for c in found} == set(range(40))
    assert all(c["b"] is True for c in found)


def test_without_a_matrix_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text((SPEC % "{n: [1]}").replace("matrix: {n: [1]}\n", ""))
    loaded = load(path)
    assert loaded.matrix is None
    assert job_of(loaded).vars["n"] == 3


def test_a_problem_points_at_the_value(tmp_path: Path) -> None:
    text = SPEC.replace("{epochs: n}", "{patience: {x: n}, epochs: 3}\nmetrics: {x: min}")
    path = tmp_path / "a.yaml"
    path.write_text(text % "{n: [1, -5]}")
    with pytest.raises(SpecError) as caught:
        validate_spec(path)
    assert "-5" in str(caught.value)


SEEDS = """\
seed: 1
matrix: %s
epoch:
  - {call: "j:f", in: rng, out: x}
stop: {epochs: 3}
"""


@pytest.mark.parametrize("text", [SEEDS, SEEDS.replace("seed: 1\n", "")])
def test_seed_is_that_of_the_job(text: str, tmp_path: Path) -> None:
    loaded = spec(tmp_path, "{seed: [1, 2]}", text=text)
    one = with_values(loaded, {"seed": 2})
    single = spec(tmp_path, "", "seed=2", text=text.replace("matrix: %s\n", "") + "%s")
    assert one.tree == single.tree
    assert job_of(one).seed == job_of(single).seed == 2
    assert job_facts(job_of(one)) == job_facts(job_of(single))
    assert matrix(tmp_path, "{seed: [1, 2]}", "seed=5", text=text).wanted() == [{"seed": 5}]


def test_a_var_called_seed_is_a_var(tmp_path: Path) -> None:
    text = "vars: {seed: 3}\n" + SEEDS.replace("in: rng", "in: [rng, seed]")
    one = with_values(spec(tmp_path, "{seed: [4]}", text=text), {"seed": 4})
    assert (job_of(one).seed, job_of(one).vars) == (1, {"seed": 4})


@pytest.mark.parametrize("value", ["-1", str(2**63), "1.0", "true", "null", "x"])
def test_what_is_no_seed_is_refused_at_its_place(value: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"'seed' is a whole number from 0 up, and .* is not") as e:
        spec(tmp_path, f"{{seed: [7, {value}]}}", text=SEEDS)
    assert "a.yaml:2:20" in str(e.value)
