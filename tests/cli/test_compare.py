"""``jobrun compare``: in what runs differ."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun import CheckpointManager

Call = Callable[..., Any]


@pytest.fixture
def three(call: Call, write: Call, folder: Path, once: Call) -> Path:
    """Three runs: another step, then other code and fewer epochs too."""

    @once
    def make() -> None:
        write()
        call("train", "sum.yaml")
        call("train", "sum.yaml", "--fresh", "--set", "step=5")
        write(("return 1 / total", "return 2 / total"))
        call("train", "sum.yaml", "--fresh", "--epochs", "2")

    return folder / "runs"


TABLE = """\
 sum sum-2 sum-3
state finished finished finished
epochs 3 3 2 ↓
time TIME TIME TIME
checkpoints 4 4 3
spec
 vars.step 2 5 2
 stop.epochs 3 3 2
metrics
 loss 0.009434 0.0086957 ↓ 0.019231 ↑
 best 0.009434 (epoch 3) 0.0086957 (epoch 3) ↓ * 0.019231 (epoch 2) ↑
code
 steps.py CODE CODE OTHER
the same: libraries
"""


def squeezed(text: str) -> str:
    """One space between cells, and digests replaced."""
    lines = []
    for line in text.splitlines():
        if "steps.py" in line:
            first, second, third = line.split()[1:]
            assert first == second != third
            line = " steps.py CODE CODE OTHER"
        lines.append(re.sub(" +", " ", line))
    return "\n".join(lines) + "\n"


@pytest.mark.usefixtures("three")
def test_a_table(call: Call, normalised: Call) -> None:
    result = call("compare", "sum", "sum-2", "sum-3")
    assert (result.code, result.err) == (0, "")
    assert squeezed(normalised(result.out)) == TABLE


@pytest.mark.usefixtures("three")
def test_as_json(call: Call) -> None:
    found = json.loads(call("compare", "sum", "sum-2", "sum-3", "--json").out)
    assert [run["name"] for run in found["runs"]] == ["sum", "sum-2", "sum-3"]
    assert found["spec"] == [
        {"name": "vars.step", "values": ["2", "5", "2"]},
        {"name": "stop.epochs", "values": ["3", "3", "2"]},
    ]
    loss = found["metrics"]["loss"]
    assert loss["direction"] == "min"
    assert loss["last"] == pytest.approx([1 / 106, 1 / 115, 2 / 104])
    assert [best["epoch"] for best in loss["best"]] == [3, 3, 2]
    assert loss["winners"] == [1]
    (code,) = found["code"]
    assert code["name"] == "steps.py"
    assert code["values"][0] == code["values"][1] != code["values"][2]
    assert found["versions"] == []


@pytest.mark.usefixtures("three")
def test_a_run_and_itself(call: Call, normalised: Call) -> None:
    out = call("compare", "sum", "runs/sum").out
    assert out.endswith("the same: spec, code, libraries\n")
    assert "*" not in out
    assert "↑" not in out


@pytest.mark.usefixtures("three")
def test_words_for_runs_and_plain_arrows(jobrun: Call) -> None:
    result = jobrun("compare", "sum", "@best", LC_ALL="C")
    assert result.out.isascii()
    assert "0.0086957 (epoch 3) v *" in result.out
    assert result.out.splitlines()[0].split() == ["sum", "sum-2"]


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (("sum",), 2, "expected two runs or more, or a sweep"),
        (("sum", "sum-4"), 5, "no run 'sum-4'"),
        (
            ("sum-", "sum"),
            5,
            "'sum-' is ambiguous: 2 runs begin with it\n  hint: name one: sum-2, sum-3",
        ),
        (("sum", "torn"), 5, "runs/torn: run.json cannot be read"),
    ],
)
def test_what_cannot_be(
    args: tuple[str, ...], code: int, text: str, call: Call, three: Path
) -> None:
    (three / "torn").mkdir()
    (three / "torn/run.json").write_text("{")
    result = call("compare", *args)
    assert (result.code, result.out) == (code, "")
    assert text in result.err


def test_a_spec_that_is_not_known(call: Call, three: Path) -> None:
    with CheckpointManager(three / "alone") as manager:
        manager.save(1, {"main": {"n": 1}}, metrics={"loss": 0.5})
    out = call("compare", "sum", "alone").out
    assert "the spec of alone is not known" in out
    assert "the same: spec" not in out
    assert (
        json.loads(call("compare", "sum", "alone", "--json").out)["runs"][1]["spec_known"] is False
    )


@pytest.mark.usefixtures("three")
def test_a_narrow_terminal_and_a_reader_that_goes_away(terminal: Call, shell: Call) -> None:
    text = terminal("compare", "sum", "sum-2", "sum-3", size=(40, 10), LANG="C.UTF-8").text
    assert "\n\nepochs\nsum    3\nsum-2  3\nsum-3  2 ↓\n" in text
    assert shell("jobrun compare sum sum-2 | true").err == ""


def test_runs_of_one_name_are_called_by_their_paths(call: Call, write: Call) -> None:
    write()
    call("train", "sum.yaml")
    call("train", "sum.yaml", "--runs-dir", "other")
    head, *_ = call("compare", "runs/sum", "other/sum").out.splitlines()
    assert head.split() == ["runs/sum", "other/sum"]
    head, *_ = call("metrics", "runs/sum", "other/sum").out.splitlines()
    assert head.split() == ["epoch", "runs/sum", "loss", "other/sum", "loss"]
    head, *_ = call("compare", "sum", "runs/sum").out.splitlines()
    assert head.split() == ["sum", "sum"]


def test_a_sweep_stands_for_its_runs(call: Call, write: Call) -> None:
    write(("vars: {step: 2}", "vars: {step: 2}\nmatrix: {step: [2, 3]}"))
    call("train", "sum.yaml")
    header = call("compare", "sum").out.splitlines()[0]
    assert header.split() == ["sum/step=2", "sum/step=3"]


@pytest.mark.parametrize("width", [80, 140])
def test_values_of_many_runs_are_not_cut(
    terminal: Call, call: Call, write: Call, width: int
) -> None:
    for step in range(1, 6):
        write(("step: 2", f"step: {step}"))
        call("train", "sum.yaml")
    lines = terminal("compare", *(f"sum-{n}" for n in range(2, 6)), "./runs/sum", size=(width, 10))
    assert max(map(len, lines.text.splitlines())) <= width
    assert "…" not in lines.text
    (best,) = re.findall(r"^    best +(.*)$", lines.text, re.M)
    assert ("(epoch" in best) == (width == 140)
    assert len(re.findall(r"0\.\d+", best)) == 5
