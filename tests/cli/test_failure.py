"""Errors: one place shows them, with the exit code of their class."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun import errors
from jobrun.cli import validate as validate_module
from jobrun.cli.failure import show
from jobrun.cli.options import Settings

CODES = [
    (errors.UsageError("m"), 2),
    (errors.RunRefusedError("m"), 2),
    (errors.SpecError("m"), 3),
    (errors.BindError("m"), 4),
    (errors.NotFoundError("m"), 5),
    (errors.DamagedError("m"), 5),
    (errors.TaskError("m"), 1),
    (errors.DataError("m"), 1),
    (errors.ValueRefusedError("m"), 1),
    (errors.SaveError("m"), 6),
    (errors.LockedError("m"), 8),
]


@pytest.mark.parametrize(("error", "code"), CODES)
def test_exit_codes(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(error, Settings()) == code
    out, err = capsys.readouterr()
    assert (out, err) == ("", "error: m\n")


def test_place_and_hint_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    where = errors.Where("a.yaml", 2, 3, "  loss: x", 4)
    show(errors.BindError("no such function", where=where, hint="look"), Settings())
    assert capsys.readouterr().err == (
        "error: a.yaml:2:3: no such function\n    2 |   loss: x\n      |   ^^^^\n  hint: look\n"
    )


def test_a_failing_task_shows_the_users_own_lines(capsys: pytest.CaptureFixture[str]) -> None:
    trace = '  File "steps.py", line 3, in step\n    1 / 0\nZeroDivisionError: division by zero\n'
    assert show(errors.TaskError("task 'step' failed", trace=trace), Settings()) == 1
    assert capsys.readouterr().err == trace + "error: task 'step' failed\n"


def test_colours_only_where_they_are_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    show(errors.SpecError([errors.Problem("m", errors.Where("f", 1, 1))]), Settings(color="always"))
    assert capsys.readouterr().err == "f:1:1: \x1b[31m\x1b[1merror:\x1b[0m m\n"
    show(errors.UsageError("m"), Settings(color="never"))
    assert capsys.readouterr().err == "error: m\n"


def test_errors_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    problem = errors.Problem("wrong", errors.Where("f.yaml", 1, 2), "write it right")
    assert show(errors.SpecError([problem]), Settings(json=True)) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["exit_code"] == 3
    assert found["error"]["type"] == "SpecError"
    assert found["error"]["problems"] == [
        {
            "message": "wrong",
            "hint": "write it right",
            "file": "f.yaml",
            "line": 1,
            "column": 2,
        }
    ]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """``jobrun validate`` fails in a way that nobody thought of."""

    def fail(*args: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(validate_module, "_check", fail)


@pytest.mark.usefixtures("broken")
def test_a_bug_is_called_one_and_has_no_traceback(call: Callable[..., Any]) -> None:
    result = call("validate", "x.yaml")
    assert (result.code, result.out) == (1, "")
    assert re.fullmatch(
        r"error: this is a bug in jobrun: KeyError: 'oops' \(at .*test_failure\.py:\d+\)\n"
        r"  hint: the same command with --traceback shows where it comes from\n",
        result.err,
    )


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize(
    "args", [("--traceback", "validate", "x"), ("validate", "x", "--traceback")]
)
def test_a_traceback_is_there_if_wanted(args: tuple[str, ...], call: Callable[..., Any]) -> None:
    result = call(*args)
    assert result.code == 1
    assert result.err.startswith("Traceback (most recent call last):\n")


def test_escapes_of_others_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    trace = "ValueError: \x1b[31m[/x] é\n"
    show(errors.TaskError("task 'step' failed: \x1b[31m \udcff", trace=trace), Settings())
    assert capsys.readouterr().err == (
        "ValueError: \\x1b[31m[/x] é\nerror: task 'step' failed: \\x1b[31m \\xff\n"
    )


def test_damage_names_the_command_that_finds_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    show(errors.DamagedError("torn", where="runs/x/checkpoint_1"), Settings())
    assert capsys.readouterr().err.endswith(
        "\n  hint: jobrun checkpoints verify runs/x names all that is damaged\n"
    )


_SECRET = "hunter2/+x"
_LEAKS = {
    "upload": ("name: sum", "name: sum\nupload: 'memory://me:${env.PW}@host/x'"),
    "load": ("init:\n", "init:\n  - {load: {run: 'none-${env.PW}', blobs: total}}\n"),
    "task": ("epoch:\n", "epoch:\n  - {call: 'leak:fail', with: {password: '${env.PW}'}}\n"),
}


@pytest.mark.parametrize("leak", _LEAKS)
@pytest.mark.parametrize("more", [[], ["--json"], ["--traceback"], ["--progress", "json"]])
def test_no_value_of_the_environment_is_said_or_stored(
    call: Any, write: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, leak: str, more: list[str]
) -> None:
    monkeypatch.setenv("PW", _SECRET)
    (folder / "leak.py").write_text(
        "def fail(password):\n"
        "    print('with', password)\n"
        "    raise ValueError('cannot log in with ' + password)\n"
    )
    write(_LEAKS[leak])
    result = call("train", "sum.yaml", *more)
    shown = call("show", "sum").out + call("show", "sum", "--json").out + call("logs", "sum").out
    said = result.err + shown + ("" if leak == "task" else result.out)
    assert "${env.PW}" in said or result.code == 0
    assert _SECRET not in said
    for file in [p for p in (folder / "runs").rglob("*") if p.is_file()]:
        assert _SECRET.encode() not in file.read_bytes(), file
