"""Warnings of strings that look as if another value was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.checks import warnings
from jobrun.jobspec.validate import validate_spec

SPEC = """\
vars: {{rate: {value}}}
init: [{{call: "m:f", in: {{rate}}, out: x}}]
epoch:
  - call: m:g
    in: x
    with: {{rate: {value}}}
    out: y
  - pipe: {{file: a.csv, batch: 3}}
    map: [{{call: "m:h", in: {{z}}, with: {{rate: {value}}}, out: z}}]
    do: [{{call: "m:h", in: {{z, x}}, with: {{rates: [{value}, 1]}}, out: x}}]
stop: {{epochs: 3}}
"""


def found(folder: Path, value: str) -> list[str]:
    """The warnings of a spec that has ``value`` as a var and under each ``with``."""
    path = folder / "a.yaml"
    path.write_text(SPEC.format(value=value))
    problems = warnings(JobAnalysis(validate_spec(path)))
    return [f"{p.where.line}: {p.message}; {p.hint}" for p in problems if p.where is not None]


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("yes", "write true"),
        ("OFF", "write false"),
        ("None", "write null"),
        ("1_000", "write 1000"),
        ("nan", "write .nan"),
        ("-Inf", "write -.inf"),
        ("Infinity", "write .inf"),
        ("0b101", "write 5"),
        ("1/3", "write the result: nothing is computed here"),
        ("2 ** 10", "write the result: nothing is computed here"),
    ],
)
def test_a_string_that_looks_like_another_value(tmp_path: Path, value: str, hint: str) -> None:
    end = f"is the string {value!r}; {hint}, or quote it if a string is meant"
    names = ["1: 'rate'", "6: 'rate'", "9: 'rate'", "10: 'rates'"]
    assert found(tmp_path, value) == [f"{name} {end}" for name in names]


@pytest.mark.parametrize("value", ["'no'", '"1/3"', "none of these", "a/b", "2024-01-02", "y", "x"])
def test_a_string_that_is_meant(tmp_path: Path, value: str) -> None:
    assert found(tmp_path, value) == []


def test_strings_at_any_depth_are_looked_at(tmp_path: Path) -> None:
    assert found(tmp_path, "{a: [{b: no}]}")[0] == (
        "1: 'rate' is the string 'no'; write false, or quote it if a string is meant"
    )


def test_the_name_of_a_var_under_with(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        'vars: {n: 3, k: n}\ninit: [{call: "m:f", with: {size: n, name: "n"}, out: x}]\n'
        'epoch: [{call: "m:g", in: x, out: x}]\nstop: {epochs: 3}\n'
    )
    assert [(p.message, p.hint) for p in warnings(JobAnalysis(validate_spec(path)))] == [
        (
            "'size' is the string 'n'",
            "the var is given by in: {size: n}, or quote it if a string is meant",
        )
    ]


def test_tuples_and_commas(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        'vars:\n  shape: (3, 4)\n  rate: 1,5\ninit: [{call: "m:f", in: [shape, rate], out: x}]\n'
        'epoch: [{call: "m:g", in: x, out: x}]\nstop: {epochs: 3}\n'
    )
    assert [p.hint for p in warnings(JobAnalysis(validate_spec(path)))] == [
        "a list: [3, 4], or quote it if a string is meant",
        "write 1.5, or a list: [1, 5], or quote it if a string is meant",
    ]
