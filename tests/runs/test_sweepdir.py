"""Sweeps on disk: sweep.json, and the names of the directories of their runs."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.errors import DamagedError
from jobrun.runs.run_state import RunState
from jobrun.runs.rundir import RunDir
from jobrun.runs.sweepdir import LONGEST, Member, SweepDir, SweepState, members_of, sweep_of

MATRIX = {"lr": [0.1, math.inf], "act": ["relu", "[x]"]}


def names(*combinations: dict[str, Any]) -> list[str]:
    return [m.directory for m in members_of((), combinations)]


def state(*members: Member) -> SweepState:
    return SweepState("sum", MATRIX, members, "abc", "/code", "../..", "sum.yaml")


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"lr": 0.1, "hidden": 32}, "lr=0.1,hidden=32"),
        ({"lr": 1e-05, "x": -0.0, "y": math.inf}, "lr=1e-05,x=-0.0,y=inf"),
        ({"on": True, "off": False, "none": None}, "on=true,off=false,none=null"),
        ({"opt/lr": 1, "act": "ReLU"}, "opt.lr=1,act=ReLU"),
        ({"empty": ""}, "empty="),
        ({"file": "../a b"}, r"file=\.\._a_b@[0-9a-f]{8}"),
        ({"x": "é"}, r"x=_@[0-9a-f]{8}"),
    ],
)
def test_names_say_the_values(values: dict[str, Any], name: str) -> None:
    assert re.fullmatch(name.replace("+", r"\+"), names(values)[0])


def test_names_that_differ_in_case_or_in_type_alone_are_told_apart() -> None:
    found = names({"x": "relu"}, {"x": "ReLU"}, {"x": 1}, {"x": "1"}, {"x": 1.0}, {"x": True})
    assert found[0] == "x=relu"
    assert re.fullmatch(r"x=ReLU@[0-9a-f]{8}", found[1])
    assert (found[2], found[4], found[5]) == ("x=1", "x=1.0", "x=true")
    assert re.fullmatch(r"x=1@[0-9a-f]{8}", found[3])


def test_long_names_are_cut() -> None:
    found = names({"x": "a" * 300}, {"x": "a" * 299 + "b"})
    assert all(len(name) == LONGEST for name in found)
    assert len(set(found)) == 2


_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=20)
    | st.sampled_from(["a", "A", "1", "1.0", "true", "../x", "a=b,c=d"])
)
_values = st.fixed_dictionaries({"a": _scalars, "b/c": _scalars})


def _in_any_order(combination: dict[str, Any]) -> str:
    return repr(sorted(combination.items(), key=lambda item: item[0]))


@settings(max_examples=100, deadline=None)
@given(st.lists(_values, max_size=8, unique_by=_in_any_order), st.lists(_values, max_size=4))
def test_names_are_safe_one_each_and_stay(
    combinations: list[dict[str, Any]], more: list[dict[str, Any]]
) -> None:
    first = members_of((), combinations)
    folded = [m.directory.casefold() for m in first]
    assert len(set(folded)) == len(folded)
    for member in first:
        assert re.fullmatch(r"[A-Za-z0-9_.=,@+-]+", member.directory)
        assert not member.directory.startswith((".", "-"))
        assert len(member.directory) <= LONGEST
    stored = SweepState.from_json(json.loads(json.dumps(state(*first).to_json()))).members
    assert repr(stored) == repr(tuple(first))
    turned = [dict(reversed(c.items())) for c in combinations]
    again = members_of(stored, [*more, *turned])
    assert [m.directory for m in again[len(more) :]] == [m.directory for m in first]


def test_the_state_is_written_and_read(tmp_path: Path) -> None:
    sweep = SweepDir(tmp_path / "sum")
    assert not sweep.is_sweep()
    written = state(Member({"lr": math.inf, "act": "[x]"}, "a"))
    sweep.write(written)
    assert sweep.is_sweep()
    read = sweep.state()
    assert (read.matrix, read.members, read.digest) == (MATRIX, written.members, "abc")
    assert read.created == read.updated != ""
    sweep.write(read)
    assert sweep.state().created == read.created < sweep.state().updated
    assert [p.name for p in sweep.path.iterdir()] == ["sweep.json"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": 99}', '{"format": 1, "runs": 3}', "\xff"]
)
def test_a_sweep_json_that_is_none(text: str, tmp_path: Path) -> None:
    sweep = SweepDir(tmp_path)
    (tmp_path / "sweep.json").write_bytes(text.encode("latin-1"))
    RunDir(tmp_path / "x=1").write(RunState("x=1", "sum"))
    (tmp_path / "notes").mkdir()
    with pytest.raises(DamagedError, match=r"sweep\.json cannot be read"):
        sweep.state()
    assert [run.path.name for run in sweep.runs()] == ["x=1"]


def test_a_run_knows_its_sweep(tmp_path: Path) -> None:
    sweep = SweepDir(tmp_path / "sum")
    members = [Member({"x": x}, f"x={x}") for x in (2, 1, 3)]
    sweep.write(state(*members))
    for member in members[:2]:
        sweep.run(member).write(RunState(member.directory, "sum"))
    assert [run.name for run in sweep.runs()] == ["sum/x=2", "sum/x=1"]
    found = sweep_of(sweep.runs()[0])
    assert found is not None
    assert found.path == sweep.path
    assert sweep_of(RunDir(tmp_path / "other")) is None


def test_what_a_crash_left_is_cleaned_up(tmp_path: Path) -> None:
    (tmp_path / ".sweep.json.0123abcd").touch()
    assert SweepDir(tmp_path).home.clean() == [".sweep.json.0123abcd"]
