"""``jobrun runs``: a table of runs."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun import CheckpointManager
from tests.support.closed_folder import close_folder

Call = Callable[..., Any]


@pytest.fixture
def three(call: Call, write: Call, folder: Path, once: Call) -> Path:
    """Two finished runs, and one that failed in its second epoch; they began in this order."""

    @once
    def make() -> None:
        write()
        call("train", "sum.yaml")
        call("train", "sum.yaml", "--fresh", "--set", "step=5")
        write(("return 1 / total", "return 1 / total if total < 104 else 1 / 0"))
        call("train", "sum.yaml", "--set", "name=other")
        (folder / "runs/other").rename(folder / "runs/two words é")
        write()

    return folder / "runs"


@pytest.mark.usefixtures("three")
def test_a_table_the_newest_on_top(call: Call, normalised: Call) -> None:
    result = call("runs")
    assert (result.code, result.err) == (0, "")
    assert columns(normalised(result.out)) == columns(
        "name         state     epochs  step  loss      best  checkpoints  started (UTC)  time\n"
        "two words é  error        1/3  2  0.0098039  0.0098039            2  WHEN  TIME\n"
        "sum-2        finished       3  5  0.0086957 0.0086957           4  WHEN  TIME\n"
        "sum          finished       3  2  0.009434  0.009434            4  WHEN  TIME\n"
    )


def columns(text: str) -> list[list[str]]:
    """The cells of the lines: times are of other widths than what stands for them."""
    return [line.split() for line in text.splitlines()]


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("sort", "names"),
    [
        ("time", ["two words é", "sum-2", "sum"]),
        ("name", ["sum", "sum-2", "two words é"]),
        ("loss", ["sum-2", "sum", "two words é"]),
    ],
)
def test_orders(sort: str, names: list[str], call: Call) -> None:
    found = json.loads(call("runs", "--sort", sort, "--json").out)["runs"]
    assert [run["name"] for run in found] == names
    lines = call("runs", "--sort", sort).out.splitlines()[1:]
    assert [line.split("  ")[0] for line in lines] == names


@pytest.mark.usefixtures("three")
def test_as_json(call: Call) -> None:
    found = json.loads(call("runs", "--json").out)
    assert found["runs_dir"] == "runs"
    failed, _, first = found["runs"]
    assert (failed["state"], failed["epochs"], failed["limit"]) == ("error", 1, 3)
    assert failed["reason"].endswith("ZeroDivisionError: division by zero")
    assert first["path"] == "runs/sum"
    assert first["metrics"] == {"loss": pytest.approx(1 / 106)}
    assert first["best"]["loss"] == {
        "value": pytest.approx(1 / 106),
        "epoch": 3,
        "direction": "min",
    }
    assert (first["checkpoints"], first["newest_checkpoint"], first["attempts"]) == (4, 3, 1)
    assert first["created"] < first["updated"]
    assert first["seconds"] > 0


@pytest.mark.usefixtures("three")
def test_those_of_a_spec(call: Call, folder: Path) -> None:
    found = call("runs", "--spec", "sum.yaml", "--sort", "name").out
    assert len(found.splitlines()) == 4
    assert call("runs", "--spec", "other.yaml").out.startswith("no run of other.yaml in runs; ")
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere/sum.yaml").touch()
    assert call("runs", "--spec", "elsewhere/sum.yaml").out.startswith("no run of elsewhere/")


def test_no_run_at_all(call: Call, folder: Path) -> None:
    result = call("runs")
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "no run in runs; jobrun train SPEC starts one; --runs-dir names another directory of runs\n"
    )
    (folder / "runs").mkdir()
    assert json.loads(call("runs", "--json").out) == {"runs_dir": "runs", "runs": []}


def test_broken_runs_are_shown(call: Call, three: Path, normalised: Call) -> None:
    for name, text in (("torn", "{"), ("newer", '{"format": 99}')):
        (three / name).mkdir()
        (three / name / "run.json").write_text(text)
    result = call("runs", "--sort", "name")
    assert result.code == 0
    lines = result.out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["newer", "broken"],
        ["sum", "finished"],
        ["sum-2", "finished"],
        ["torn", "broken"],
        ["two", "words"],
        ["newer:", "run.json"],
        ["torn:", "run.json"],
    ]
    assert lines[-1] == "torn: run.json cannot be read, and there is no checkpoint"


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO], ids=["not ours", "bad disk"])
def test_a_run_that_may_not_be_looked_into_hides_no_others(
    call: Call, three: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    close_folder(monkeypatch, three / "sum-2", code)
    why = f"sum-2: it cannot be read: {os.strerror(code)}"
    result = call("runs", "--sort", "name")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["sum", "finished"], ["sum-2", "unreadable"], ["two", "words"],
    ]  # fmt: skip
    assert lines[-1] == why
    result = call("show", "sum-2")
    assert result.code == 5
    assert f"it cannot be read: {os.strerror(code)}" in result.err
    result = call("resume")
    assert result.code == 0
    assert result.err.startswith(f"warning: runs/{why.replace(':', ' is skipped:', 1)}\n")
    assert "two words é: continues after epoch 1" in result.err


def test_where_no_run_can_be_read(call: Call, three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        for name in ("sum", "sum-2", "two words é"):
            close_folder(patch, three / name)
        result = call("resume")
        assert result.code == 5
        assert result.err.splitlines()[-2:] == [
            "error: no run in runs that can be read",
            "  hint: there are runs/sum, runs/sum-2, runs/two words é",
        ]
    close_folder(monkeypatch, three)
    result = call("runs")
    assert (result.code, result.out) == (5, "")
    assert result.err == "error: runs: it cannot be read: Permission denied\n"


def test_runs_of_sweeps(call: Call, three: Path) -> None:
    (three / "grid").mkdir()
    (three / "grid/sweep.json").write_text("{}")
    (three / "sum-2").rename(three / "grid/step=5")
    names = [run["name"] for run in json.loads(call("runs", "--json").out)["runs"]]
    assert names == ["two words é", "grid/step=5", "sum"]
    assert call("checkpoints", "list", "grid/st").out.startswith("runs/grid/step=5: 4 checkpoints")


def test_a_run_that_is_going_on_and_one_that_was_killed(
    start: Call, call: Call, write: Call, folder: Path
) -> None:
    write(("return total + step", "import time; time.sleep(0.05); return total + step"))
    process = start("train", "sum.yaml", "--set", "stop.epochs=1000")
    while not (folder / "runs/sum/checkpoint_2").exists():
        time.sleep(0.01)
    (found,) = json.loads(call("runs", "--json").out)["runs"]
    assert (found["state"], found["limit"]) == ("running", 1000)
    assert found["epochs"] >= 2
    assert found["best"]["loss"]["epoch"] == found["epochs"]
    process.kill()
    process.wait()
    (found,) = json.loads(call("runs", "--json").out)["runs"]
    assert (found["state"], found["reason"]) == (
        *("interrupted", "the process was killed or crashed (no end recorded)"),
    )


@pytest.mark.usefixtures("three")
def test_what_cannot_be(call: Call) -> None:
    result = call("runs", "--sort", "lss")
    assert (result.code, result.out) == (5, "")
    assert "no run has a metric 'lss'\n  hint: did you mean 'loss'?" in result.err


def test_names_are_shown_as_they_are(call: Call, folder: Path) -> None:
    with CheckpointManager(folder / "runs/[bold]") as manager:
        manager.save(1, {"main": {"n": 1}}, metrics={"acc[val]": 0.5, "[/x]\x1b": float("nan")})
    header, row = (re.split("  +", line) for line in call("runs").out.splitlines())
    assert header[3:5] == ["acc[val]", "[/x]\\x1b"]
    assert (row[0], row[3:5]) == ("[bold]", ["0.5", "nan"])
    (found,) = json.loads(call("runs", "--json").out)["runs"]
    assert found["metrics"] == {"acc[val]": 0.5, "[/x]\x1b": "NaN"}


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_one_line_a_run_at_every_width(terminal: Call, call: Call, width: int) -> None:
    call("tag", "sum", "good", "paper-2")
    call("note", "sum", "the one of the second figure, with a longer note than there is room for")
    screen = terminal("runs", "--sort", "name", size=(width, 10))
    assert screen.code == 0
    lines = screen.text.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["name", "sum", "sum-2", "two"]
    assert max(map(len, lines)) <= width
    assert (
        " ".join(lines[4:])
        == {
            40: "+1 best value, +vars.step, +checkpoints, +started, +time, +tags, +note: --columns",
            60: "+1 best value, +checkpoints, +started, +time, +note: --columns",
            80: "+checkpoints, +started, +note: --columns",
            120: "+note: --columns",
            200: "",
        }[width]
    )
    header = lines[0].split()
    assert header[:3] == ["name", "state", "epochs"]
    assert ("tags" in header) == (width >= 60)
    assert ("checkpoints" in header) == (width >= 120)
    assert ("note" in header) == (width >= 200)


@pytest.mark.usefixtures("three")
def test_a_note_takes_the_room_that_there_is(terminal: Call, call: Call) -> None:
    note = "the one of the second figure, with a longer note than there is room for"
    call("note", "sum", note)
    columns = ("runs", "--columns", "name,note")
    assert note in call(*columns).out
    assert note in terminal(*columns, size=(84, 10)).text
    assert f"  {note[:45]}…\n" in terminal(*columns, size=(59, 10)).text


@pytest.mark.usefixtures("three")
def test_a_terminal_of_a_few_columns_gets_a_block_for_each_run(terminal: Call) -> None:
    screen = terminal("runs", "--sort", "name", size=(20, 10))
    block = screen.text.split("\n\n")[0]
    assert [line.split()[0] for line in block.splitlines()] == [
        *("name", "state", "epochs", "step", "loss", "best", "checkpoints", "started", "time"),
    ]


@pytest.mark.usefixtures("three")
def test_columns_that_are_chosen(call: Call) -> None:
    result = call("runs", "--columns", "name,best:loss,attempts,spec", "--sort", "name")
    assert columns(result.out) == [
        ["name", "best", "attempts", "spec"],
        ["sum", "0.009434", "1", "sum.yaml"],
        ["sum-2", "0.0086957", "1", "sum.yaml"],
        ["two", "words", "é", "0.0098039", "1", "sum.yaml"],
    ]
    wrong = call("runs", "--columns", "name,lss")
    assert (wrong.code, wrong.out) == (2, "")
    assert "did you mean 'loss'?" in wrong.err


@pytest.mark.usefixtures("three")
def test_a_selection_of_runs(call: Call) -> None:
    call("tag", "sum", "good")
    call("note", "sum-2", "Second Figure")

    def names(*options: str) -> list[str]:
        found = json.loads(call("runs", *options, "--sort", "name", "--json").out)["runs"]
        return [run["name"] for run in found]

    assert names("--state", "finished") == ["sum", "sum-2"]
    assert names("--state", "running") == []
    assert names("--search", "good") == ["sum"]
    assert names("--search", "second fig") == ["sum-2"]
    assert names("--search", "WORDS") == ["two words é"]
    assert names("-n", "2") == ["sum", "sum-2"]
    assert names("sum") == names("runs/sum") == names("sum*") == ["sum", "sum-2"]
    assert names("runs/sum-2/", "*é", "--sort", "name") == ["sum-2", "two words é"]
    assert names("other") == []
    assert call("runs", "--state", "running").out == (
        "none of 3 runs in runs matches these options\n"
    )
    wrong = call("runs", "--state", "finishd")
    assert (wrong.code, wrong.out) == (2, "")
    assert "did you mean 'finished'?" in wrong.err


@pytest.mark.usefixtures("three")
def test_a_reader_that_goes_away_and_the_c_locale(shell: Call, jobrun: Call) -> None:
    assert shell("jobrun runs | true") == type(shell("true"))(0, "", "")
    result = jobrun("runs", LC_ALL="C")
    assert (result.code, result.err) == (0, "")
    assert "two words é" in result.out


@pytest.mark.usefixtures("three")
def test_it_imports_neither_numpy_nor_zarr_nor_user_code(folder: Path) -> None:
    code = (
        "import sys\n"
        "from jobrun.cli.app import run\n"
        "code = run(['runs', '--sort', 'loss'])\n"
        "print(code, [m for m in ('numpy', 'zarr', 'rich', 'yaml', 'steps') if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=True
    )
    assert done.stdout.splitlines()[-1] == "0 []"
    assert os.listdir(folder / "runs")


def test_vars_that_differ_between_runs_of_a_job_are_columns(call: Call, write: Call) -> None:
    write()
    for step in (2, 10):
        assert call("train", "sum.yaml", "--set", f"vars.step={step}").code == 0
    write(("name: sum", "name: other"))
    call("train", "sum.yaml")
    rows = [line.split()[:4] for line in call("runs", "--sort", "name").out.splitlines()]
    assert rows == [
        ["name", "state", "epochs", "step"],
        *(["other", "finished", "3", "2"], ["sum", "finished", "3", "2"]),
        ["sum-2", "finished", "3", "10"],
    ]
    assert "step" not in call("runs", "--spec", "sum.yaml", "-n", "1").out.split()
    assert call("runs", "--columns", "vars.step", "-n", "1").out == "step\n   2\n"
    assert [r["vars"] for r in json.loads(call("runs", "--json").out)["runs"]] == [
        *({"step": 2}, {"step": 10}, {"step": 2}),
    ]


def test_a_metric_named_like_a_column_has_one_of_its_own(call: Call, write: Call) -> None:
    write(("out: loss", "out: time"), ("loss: min", "time: min"))
    assert call("train", "sum.yaml").code == 0
    assert call("runs", "--columns", "metric:time,best:time").out == (
        "metric:time      best\n   0.009434  0.009434\n"
    )
    header = call("runs").out.splitlines()[0].split()
    assert header[:5] == ["name", "state", "epochs", "metric:time", "best"]
    assert header[-1] == "time"
    assert call("runs", "--sort", "metric:time").code == 0
