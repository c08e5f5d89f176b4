"""``jobrun metrics``: tables, CSV, JSON, charts and pictures."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun import CheckpointManager

Call = Callable[..., Any]
TWO = (
    ("metrics: {loss: min}", "metrics: {loss: min, total: null}"),
    ("return 1 / total", "return abs(total - 104)"),
)


@pytest.fixture
def two(call: Call, write: Call, folder: Path, once: Call) -> Path:
    """Runs of three and of two epochs."""

    @once
    def make() -> None:
        write(*TWO)
        call("train", "sum.yaml")
        call("train", "sum.yaml", "--fresh", "--epochs", "2", "--set", "step=3")

    return folder / "runs"


@pytest.mark.usefixtures("two")
def test_a_table(call: Call) -> None:
    result = call("metrics", "sum")
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "epoch  loss   total\n    1     2     102\n    2     0*    104\n    3     2     106\n"
    )


@pytest.mark.usefixtures("two")
def test_runs_side_by_side(call: Call) -> None:
    assert call("metrics", "sum", "sum-2", "--metric", "loss").out == (
        "epoch  sum loss   sum-2 loss\n"
        "    1         2            1*\n"
        "    2         0*           2\n"
        "    3         2\n"
    )


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("epochs", "shown"),
    [("2:3", [2, 3]), ("2:", [2, 3]), (":1", [1]), ("2", [2]), ("-2:", [2, 3]), ("-1", [3]),
     ("-3:-2", [1, 2]), (":", [1, 2, 3]), ("7:", [])],
)  # fmt: skip
def test_epochs(epochs: str, shown: list[int], call: Call) -> None:
    (found,) = json.loads(call("metrics", "sum", "--range", epochs, "--json").out)["runs"]
    assert [row["epoch"] for row in found["epochs"]] == shown


@pytest.mark.usefixtures("two")
def test_as_json(call: Call) -> None:
    first, second = json.loads(call("metrics", "sum", "sum-2", "--json").out)["runs"]
    assert (first["name"], first["path"]) == ("sum", "runs/sum")
    assert first["directions"] == {"loss": "min", "total": None}
    assert first["best"] == {"loss": {"value": 0, "epoch": 2}}
    assert [row["metrics"] for row in second["epochs"]] == [
        {"loss": 1, "total": 103},
        {"loss": 2, "total": 106},
    ]
    assert all(0 < row["seconds"] < row["elapsed"] for row in second["epochs"])


@pytest.mark.usefixtures("two")
def test_as_csv(call: Call, folder: Path) -> None:
    text = (folder / "runs/sum/metrics.csv").read_text()
    assert call("metrics", "sum", "--csv").out == text
    rows = list(csv.reader(io.StringIO(call("metrics", "sum", "sum-2", "--csv").out)))
    assert rows[0] == ["run", "epoch", "seconds", "elapsed", "loss", "total"]
    assert [row[:2] for row in rows[1:]] == [
        *(["sum", "1"], ["sum", "2"], ["sum", "3"], ["sum-2", "1"], ["sum-2", "2"])
    ]
    result = call("metrics", "sum", "-o", "out put.csv", "--range", "1")
    assert (result.code, result.out) == (0, "loss, total written to out put.csv\n")
    assert (folder / "out put.csv").read_text() == "".join(text.splitlines(keepends=True)[:2])


@pytest.mark.usefixtures("two")
def test_a_chart(call: Call, jobrun: Call, terminal: Call) -> None:
    out = call("metrics", "sum", "--plot", "--metric", "l*").out
    assert out.startswith("loss  best 0 (epoch 2)\n  2 ┤")
    assert max(map(len, out.splitlines())) == 80
    plain = jobrun("metrics", "sum", "--plot", LC_ALL="C")
    assert plain.out.isascii()
    assert plain.out.startswith("loss  best 0 (epoch 2)\n  2 +*")
    several = call("metrics", "sum", "sum-2", "--plot").out
    assert several.startswith("loss  best 0 (sum, epoch 2)\n  a sum   b sum-2\n")
    assert "\n\ntotal\n" in several
    screen = terminal("metrics", "sum", "sum-2", "--plot", size=(40, 10), LANG="C.UTF-8")
    assert max(map(len, screen.plain.splitlines())) <= 40
    assert "\x1b[33m⠒\x1b[0m sum-2" in screen.text


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_a_picture(form: str, call: Call, folder: Path) -> None:
    result = call("metrics", "sum", "sum-2", "-o", f"é {form}.{form}", "--log")
    assert (result.code, result.err) == (0, "")
    assert result.out == f"loss, total written to é {form}.{form}\n"
    assert (folder / f"é {form}.{form}").stat().st_size > 1000
    assert [name for name in os.listdir(folder) if name.startswith(".")] == []
    found = json.loads(call("metrics", "sum", "-o", "x.png", "--json").out)
    assert found == {"output": "x.png", "runs": ["sum"], "metrics": ["loss", "total"]}


@pytest.mark.usefixtures("two")
def test_without_matplotlib(call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = call("metrics", "sum", "-o", "x.png")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "error: pictures need the library matplotlib\n"
        "  hint: pip install 'jobrun[plot]'; --plot draws in the terminal without it\n"
    )
    assert not (folder / "x.png").exists()


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (("nope",), 5, "no run 'nope'"),
        (("sum", "--metric", "los"), 5, "did you mean 'loss'?"),
        (("sum", "--metric", "[x]"), 5, "there are loss, total"),
        (("sum", "--range", "x"), 2, "write A:B"),
        (("sum", "-o", "x.gif"), 2, "unknown file ending '.gif'"),
        (("sum", "-o", "no/such.png"), 2, "No such file"),
        (("sum", "-o", "x.png", "--range", "9:"), 5, "there is nothing to draw"),
    ],
)
def test_what_cannot_be(args: tuple[str, ...], code: int, text: str, call: Call) -> None:
    result = call("metrics", *args)
    assert (result.code, result.out) == (code, "")
    assert text in result.err


def test_checkpoints_alone_have_metrics(call: Call, folder: Path) -> None:
    with CheckpointManager(folder / "runs/m") as manager:
        for epoch, value in ((1, 0.5), (2, float("nan"))):
            manager.save(epoch, {"main": {"n": 1}}, metrics={"acc[val]": value})
    assert call("metrics").out == "epoch  acc[val]\n    1       0.5\n    2       nan\n"
    (found,) = json.loads(call("metrics", "--metric", "acc[[]val]", "--json").out)["runs"]
    assert [row["metrics"]["acc[val]"] for row in found["epochs"]] == [0.5, "NaN"]
    assert call("metrics", "--metric", "acc[val]").out.startswith("epoch  acc[val]\n")


def test_no_value_yet(call: Call, write: Call) -> None:
    write(("return total + step", "return 1 / 0"))
    call("train", "sum.yaml")
    for more in ((), ("--plot",)):
        result = call("metrics", *more)
        assert (result.code, result.out) == (0, "sum: no metric has a value yet\n")
    assert json.loads(call("metrics", "--json").out)["runs"][0]["epochs"] == []


@pytest.mark.usefixtures("two")
def test_epochs_that_a_run_does_not_have(call: Call) -> None:
    result = call("metrics", "sum", "--range", "50:60")
    assert (result.code, result.out) == (0, "sum: no metric has a value in the epochs 50:60\n")


@pytest.mark.usefixtures("two")
def test_a_narrow_terminal_and_a_reader_that_goes_away(terminal: Call, shell: Call) -> None:
    text = terminal("metrics", "sum", "sum-2", size=(40, 10)).text
    assert text.startswith("1  sum\n2  sum-2\n\nepoch  1 loss   2 loss   1 total\n")
    assert text.endswith("+1 column: --metric NAME,\n--csv or --plot\n")
    text = terminal("metrics", "sum", "sum-2", "--metric", "*", size=(40, 10)).text
    assert text.startswith("epoch        1\nsum loss     2\nsum-2 loss   1*\nsum total    102\n")
    assert shell("jobrun metrics sum | true").err == ""


def test_a_sweep_stands_for_its_runs(call: Call, write: Call, terminal: Call) -> None:
    write(("vars: {step: 2}", "vars: {step: 2}\nmatrix: {step: [2, 4, 8]}"))
    assert call("train", "sum.yaml").code == 0
    found = json.loads(call("metrics", "sum", "--range", "3", "--json").out)["runs"]
    assert [run["name"] for run in found] == ["sum/step=2", "sum/step=4", "sum/step=8"]
    assert call("metrics", "sum.yaml", "--csv").out.count("sum/step=4,") == 3
    text = terminal("metrics", "sum", "--range", "3", size=(40, 10)).text
    assert text.startswith(
        "1  sum/step=2\n2  sum/step=4\n3  sum/step=8\n\nepoch    1 loss      2 loss      3 loss"
    )


LOGGING = """
import numpy as np, jobrun

def rows():
    return np.arange(12.0)

def step(x):
    jobrun.log(mean=x.mean(), every=2)
    return float(x.sum())
"""
LOGGED = """
setup: [{call: "steps:rows", out: data}]
epoch:
  - {name: p, pipe: {from: {x: data}, batch: 3}, do: [{call: "steps:step", in: x, out: loss}]}
stop: {epochs: 2}
checkpoint: {include: [data]}
"""


@pytest.fixture
def logged(call: Call, folder: Path) -> None:
    (folder / "steps.py").write_text(LOGGING)
    (folder / "steps.yaml").write_text(LOGGED)
    assert call("train", "steps.yaml").code == 0


@pytest.mark.usefixtures("logged")
def test_steps(call: Call) -> None:
    assert call("metrics", "steps", "--steps").out == (
        "epoch  batch  mean\n    1      2     4\n    1      4    10\n"
        "    2      2     4\n    2      4    10\n"
    )
    assert call("metrics", "--steps", "--range", "2", "--csv").out == (
        "epoch,batch,task,node,mean\n2,2,p,main,4.0\n2,4,p,main,10.0\n"
    )
    found = json.loads(call("metrics", "steps", "--steps", "--json", "--range", "1").out)
    first = {"epoch": 1, "batch": 2, "task": "p", "node": "main", "values": {"mean": 4.0}}
    assert found["steps"][0] == first
    assert call("metrics", "steps", "--steps", "--range", "7").out == (
        "steps: jobrun.log() has logged nothing in these epochs\n"
    )


@pytest.mark.usefixtures("logged")
def test_steps_that_are_not_shown(call: Call) -> None:
    result = call("metrics", "steps", "--steps", "--metric", "men")
    assert (result.code, "did you mean 'mean'" in result.err) == (5, True)
    assert call("metrics", "steps", "--steps", "--plot").code == 2
