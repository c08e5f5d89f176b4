"""Options: before and after the command, in the environment, and when colours are used."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from jobrun.cli import options
from jobrun.cli.app import _COMMANDS, app
from jobrun.cli.group import LazyGroup
from jobrun.cli.options import Settings, uses_color
from jobrun.model.shell import Shell
from jobrun.report.formatting import uses_unicode
from jobrun.session.base import Places
from jobrun.session.shell.program import Program


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("when", "environment", "terminal", "pipe"),
    [
        ("auto", {"TERM": "xterm"}, True, False),
        ("auto", {"TERM": "dumb"}, False, False),
        ("auto", {"NO_COLOR": "1", "TERM": "xterm"}, False, False),
        ("auto", {"NO_COLOR": "", "TERM": "xterm"}, True, False),
        ("auto", {"FORCE_COLOR": "1", "TERM": "dumb"}, True, True),
        ("auto", {"FORCE_COLOR": "0", "TERM": "xterm"}, True, False),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False),
        ("always", {"NO_COLOR": "1"}, True, True),
        ("never", {"FORCE_COLOR": "1"}, False, False),
    ],
)
def test_colours(
    when: str,
    environment: dict[str, str],
    terminal: bool,
    pipe: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert uses_color(Terminal(), when) is terminal
    assert uses_color(io.StringIO(), when) is pipe


@pytest.mark.parametrize(
    ("environment", "encoding", "expected"),
    [
        ({}, "utf-8", True),
        ({"LANG": "en_US.UTF-8"}, "UTF-8", True),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, "utf-8", False),
        ({"LC_ALL": "C.UTF-8", "LC_CTYPE": "C"}, "utf-8", True),
        ({"LANG": "POSIX"}, "utf-8", False),
        ({"LANG": "de_DE"}, "iso8859-1", False),
    ],
)
def test_lines_beyond_ascii(
    environment: dict[str, str], encoding: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert uses_unicode(io.TextIOWrapper(io.BytesIO(), encoding)) is expected


def test_verbosity_the_louder_wins() -> None:
    found = [Settings(quiet=q, verbose=v).verbosity for q in (0, 1) for v in (0, 1)]
    assert found == [0, 1, -1, 1]


ARGUMENTS = [("--json", "validate", "x.yaml"), ("validate", "--json", "x.yaml")]


@pytest.mark.parametrize("args", ARGUMENTS)
def test_common_options_before_and_after_the_command(
    args: tuple[str, ...], call: Callable[..., Any]
) -> None:
    assert json.loads(call(*args).out)[0]["code"] == 2


def test_common_options_in_the_environment(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBRUN_JSON", "1")
    assert json.loads(call("validate", "x.yaml").out)[0]["code"] == 2


def test_what_is_typed_wins_over_the_environment_wherever_it_stands(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBRUN_COLOR", "always")
    assert "\x1b" in call("validate", "x.yaml").err
    assert "\x1b" not in call("--color", "never", "validate", "x.yaml").err
    assert "\x1b" not in call("validate", "x.yaml", "--color", "never").err


def commands() -> Iterator[tuple[str, ...]]:
    """Every command by its words."""
    for name, (module, _) in _COMMANDS.items():
        command = import_module(f"jobrun.cli.{module}").command
        if isinstance(command, LazyGroup):
            yield from ((name, below) for below in command.list_commands(click.Context(command)))
        else:
            yield (name,)


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_has_the_common_options_and_twins(
    words: tuple[str, ...], call: Callable[..., Any]
) -> None:
    command: Any = app
    for word in words:
        command = command.get_command(click.Context(command), word)
    options = {o.name: o for o in command.params if isinstance(o, click.Option)}
    assert {"quiet", "verbose", "json", "color", "traceback"} <= set(options)
    for option in options.values():
        long = next(name for name in option.opts if name.startswith("--"))
        assert option.envvar == "JOBRUN_" + long[2:].replace("-", "_").upper(), long
    before = call("-q", "-v", "--json", "--color", "never", "--traceback", *words, "--no-such")
    assert "No such option" in before.err


def test_what_a_task_is_told_is_no_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = app.get_command(click.Context(app), "load-blobs")
    assert command is not None

    def epoch(*args: str) -> Any:
        return command.make_context("load-blobs", [*args], obj=Settings()).params["epoch"]

    monkeypatch.setenv("JOBRUN_EPOCH", "7")
    assert epoch() == 7
    told = Program(Shell(script="true"), (), Places(tmp_path, tmp_path), "main")._environment(None)
    for name in set(told) - set(os.environ):
        assert name in options._OF_TASKS, name
        monkeypatch.setenv(name, told[name])
    assert epoch() is None
    assert epoch("--epoch", "5") == 5


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("trian",), "no command 'trian'; did you mean 'train'?"),
        (("zzz",), "no command 'zzz'; there are init, train, resume, "),
        (("run",), "no command 'run'; did you mean 'train'?"),
        (("help",), "no command 'help'; did you mean '--help'?"),
        (("train", "x", "lr=3"), "argument (lr=3); a var is set with --set NAME=VALUE"),
        (("validate",), "Missing argument 'SPEC...'"),
        (("validate", "--imprt", "x"), "No such option"),
        (("train", "x", "--threads", "0"), "0 is not in the range"),
        (("--color", "red", "validate", "x"), "'red' is not one of"),
    ],
)
def test_usage_errors_end_with_2(
    args: tuple[str, ...], text: str, call: Callable[..., Any]
) -> None:
    result = call(*args)
    assert (result.code, result.out) == (2, "")
    assert text in result.err


def test_a_key_is_dropped_and_the_command_that_goes_on_says_so(call: Any, write: Any) -> None:
    write(("name: sum", "name: sum\nupload: there"))
    result = call("render", "sum.yaml", "--unset", "upload")
    assert (result.code, "upload" in result.out) == (0, False)
    result = call("train", "sum.yaml", "--unset", "upload", "-n")
    assert result.code == 0
    assert "upload" not in result.out
    assert call("train", "sum.yaml", "--unset", "uplod").code == 2


def test_what_is_dropped_can_come_from_the_environment(
    call: Any, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(("name: sum", "name: sum\nupload: there"))
    assert "upload" in call("render", "sum.yaml").out
    monkeypatch.setenv("JOBRUN_UNSET", "upload")
    assert "upload" not in call("render", "sum.yaml").out


@pytest.mark.parametrize("word", ["--set=upload=null", "--set=upload=~", "--unset=upload"])
def test_nothing_is_uploaded_to_a_folder_called_null(
    call: Any, write: Any, folder: Path, word: str
) -> None:
    write(("name: sum", "name: sum\nupload: there"))
    assert call("train", "sum.yaml", word).code == 0
    assert not {"null", "~", "there"} & {p.name for p in folder.iterdir()}
