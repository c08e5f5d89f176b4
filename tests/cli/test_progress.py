"""``--progress`` and ``--reporter``: on the command line, in the environment and in the spec."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]
PRINTS = (
    "return total + step",
    "import sys; print('[bold] out'); print('[/x] err', file=sys.stderr); return total + step",
)


def test_json_is_one_event_a_line_whatever_tasks_print(jobrun: Call, write: Call) -> None:
    write(PRINTS)
    result = jobrun("train", "sum.yaml", "--progress", "json")
    events = [json.loads(line) for line in result.err.splitlines()]
    names = [e["event"] for e in events]
    assert (names[0], names[-1]) == ("RunStarted", "RunEnded")
    assert names.count("EpochFinished") == 3
    printed = [e for e in events if e["event"] == "Printed"]
    assert [(e["text"], e["task"], e["epoch"]) for e in printed] == [
        ("[/x] err", "add", epoch) for epoch in (1, 2, 3)
    ]
    assert result.out.startswith("[bold] out\n" * 3 + "sum: finished")


def test_json_of_results_and_of_progress_together(jobrun: Call, write: Call) -> None:
    write(PRINTS)
    result = jobrun("train", "sum.yaml", "--json", JOBRUN_PROGRESS="json")
    assert json.loads(result.out)["outcome"] == "finished"
    lines = result.err.splitlines()
    assert [line for line in lines if not line.startswith("{")] == []


def test_an_error_is_an_object_too(call: Call, write: Call) -> None:
    write(("return 1 / total", "raise ValueError('no')"))
    result = call("train", "sum.yaml", "--progress", "json")
    last = json.loads(result.err.splitlines()[-1])
    assert (result.code, last["event"], last["exit_code"]) == (1, "Error", 1)
    assert last["error"]["type"] == "TaskError"


def test_none_and_lines(call: Call, write: Call) -> None:
    write()
    assert call("train", "sum.yaml", "--progress", "none").err == ""
    result = call("train", "sum.yaml", "--fresh", "--progress", "lines")
    assert result.err.count("\n") == 4
    result = call("resume", "sum", "--epochs", "4", "--progress=none")
    assert (result.code, result.err) == (0, "")


def test_live_without_a_terminal_is_said_and_is_lines(call: Call, write: Call) -> None:
    write()
    result = call("train", "sum.yaml", "--progress", "live")
    assert result.err.startswith(
        "warning: stderr is not a terminal: progress is shown as lines\nsum in"
    )
    assert "\x1b" not in result.err


def test_wrong_ones(call: Call, write: Call) -> None:
    write()
    assert call("train", "sum.yaml", "--progress", "bar").code == 2
    result = call("train", "sum.yaml", "--reporter", "tensorbord")
    assert result.code == 4
    assert "no reporter 'tensorbord'" in result.err
    assert "did you mean 'tensorboard'?" in result.err
    assert not Path("runs").exists()


def test_a_pipe_holds_no_escape_and_no_carriage_return(shell: Call, write: Call) -> None:
    write(PRINTS)
    result = shell("FORCE_COLOR=1 jobrun train sum.yaml 2>&1 | cat")
    assert "epoch 3/3" in result.out
    assert not {"\x1b", "\r"} & set(result.out)
    parsed = shell("jobrun train sum.yaml --fresh --json 2>/dev/null | python -m json.tool")
    assert (parsed.code, json.loads(parsed.out)["outcome"]) == (0, "finished")


REPORTER = """
class Reporter:
    def __init__(self, to, fail_at=None):
        self.file = open(to, "a")
        self.fail_at = fail_at

    def __call__(self, event):
        if type(event).__name__ == "EpochFinished":
            if event.epoch == self.fail_at:
                raise RuntimeError("cannot [bold]")
            print(event.epoch, event.metrics["loss"], file=self.file, flush=True)

    def close(self):
        print("closed", file=self.file, flush=True)
"""


def with_reporter(write: Call, report: str) -> None:
    write(("stop: {epochs: 3}", f"stop: {{epochs: 3}}\nreport: {report}"))
    with open("steps.py", "a", encoding="utf-8") as file:
        file.write(REPORTER)


def test_a_reporter_of_ones_own(call: Call, write: Call, folder: Path) -> None:
    with_reporter(write, '[{call: "steps:Reporter", with: {to: "${run.dir}/told.txt"}}]')
    assert call("train", "sum.yaml").code == 0
    told = (folder / "runs/sum/told.txt").read_text().splitlines()
    assert [line.split()[0] for line in told] == ["1", "2", "3", "closed"]
    # Another reporter is no other job: the run goes on.
    with_reporter(write, "{lines: said.txt}")
    result = call("train", "sum.yaml", "--epochs", "4")
    assert result.code == 0
    assert "continues after epoch 3" in result.err
    assert "report" in result.err
    assert (folder / "said.txt").read_text().count("epoch 4/4") == 1


def test_one_that_fails_is_said_once_and_hurts_nothing(call: Call, write: Call) -> None:
    with_reporter(write, '{call: "steps:Reporter", with: {to: told.txt, fail_at: 2}}')
    result = call("train", "sum.yaml")
    assert result.code == 0
    text = "warning: the reporter steps:Reporter failed and is left out from now on: "
    assert result.err.count(text + "RuntimeError: cannot [bold]\n") == 1


@pytest.mark.parametrize(
    ("report", "text"),
    [
        ("[3]", "expected a reporter"),
        ("{a: 1, b: 2}", "one reporter an entry"),
        ("steps:Reporter", "write {call: steps:Reporter}"),
        ('{call: "steps.py"}', "expected module:function"),
        ('{call: "steps:R", wiht: {}}', "no 'wiht'"),
        ('{lines: "${run.dri}"}', "'${run.dri}' is unknown"),
        ("{lines: [a]}", "expected one value or a mapping"),
    ],
)
def test_what_is_no_reporter(report: str, text: str, call: Call, write: Call) -> None:
    with_reporter(write, report)
    result = call("validate", "sum.yaml")
    assert result.code == 3, result
    assert text in result.out + result.err
    assert "sum.yaml:10:" in result.out + result.err


def test_tensorboard_survives_a_kill(jobrun: Call, write: Call, folder: Path) -> None:
    pytest.importorskip("tensorboardX")
    write(
        (
            "return total + step",
            "import os, sys\n    if total == 102 and os.environ.get('DIE'): "
            "os.kill(os.getpid(), 9)\n    return total + step",
        )
    )
    assert jobrun("train", "sum.yaml", "--reporter", "tensorboard", DIE="1").code == -9
    result = jobrun("resume", "sum", "--reporter", "tensorboard:logs")
    assert result.code == 0
    assert len(list((folder / "runs/sum/tensorboard").iterdir())) == 1
    assert len(list((folder / "logs").iterdir())) == 1


def test_a_missing_package_is_told_before_anything_is_written(write: Call, folder: Path) -> None:
    write()
    code = (
        "import sys; sys.modules['tensorboardX'] = None\n"
        "from jobrun.cli import main; main(['train', 'sum.yaml', '--reporter', 'tensorboard'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, env=os.environ
    )
    assert done.returncode == 4
    assert "hint: pip install 'jobrun[tensorboard]'" in done.stderr
    assert not (folder / "runs").exists()
