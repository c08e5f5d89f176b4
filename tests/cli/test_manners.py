"""What is true of every command: where options stand, what is written where, and to whom."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import click
import pytest

from jobrun import CheckpointManager
from jobrun.cli.app import run
from jobrun.cli.table import text_width
from tests.cli.conftest import CODE, COMMAND, SPEC, environment
from tests.cli.test_help import commands

Call = Callable[..., Any]

LINES = {
    "train": "sum.yaml",
    "resume": "sum",
    "runs": "",
    "sweep": "swept.yaml",
    "show": "sum",
    "metrics": "sum",
    "compare": "sum sum-2",
    "load-blobs": "sum",
    "report": "sum",
    "logs": "sum",
    "tag": "sum",
    "note": "sum",
    "validate": "sum.yaml",
    "graph": "sum.yaml",
    "smoke": "none.yaml",
    "checkpoints list": "sum",
    "checkpoints inspect": "sum",
    "checkpoints verify": "sum",
    "checkpoints diff": "sum",
    "checkpoints prune": "sum --keep-last 99",
    "checkpoints path": "sum",
    "docs": "progress",
    "init": "--list",
    "render": "sum.yaml",
    "schema": "",
    "completion": "bash",
}
"""Something to type after each command, that changes nothing in a folder with two finished runs."""
ENDS_WITH = {"smoke": 2}
each_command = pytest.mark.parametrize("command", LINES)

JSON_LINES = ("logs",)
"""Commands that write an object a line."""


SIGNATURES = {
    name: " ".join(
        command.collect_usage_pieces(click.Context(command, help_option_names=["-h", "--help"]))
    )
    for name, command in commands().items()
}


def words(command: str) -> list[str]:
    return [*command.split(), *shlex.split(LINES[command])]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a spec and two finished runs of it."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "sum.yaml").write_text(SPEC)
    swept = SPEC.replace("name: sum", "name: swept")
    (folder / "swept.yaml").write_text(f"{swept}matrix: {{step: [2, 3]}}\n")
    (folder / "steps.py").write_text(CODE)
    with chdir(folder):
        for _ in range(2):
            sys.modules.pop("steps", None)
            assert run(["train", "sum.yaml", "--fresh", "-q"]) == 0
    return folder


@pytest.fixture
def here(world: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """It is the current directory."""
    monkeypatch.chdir(world)
    return world


def test_every_command_is_here() -> None:
    """But ``rm``, which can be called once only: its tests are in test_rm.py."""
    assert {*LINES, "checkpoints", "rm"} == set(commands())


@each_command
def test_json_parses_wherever_the_option_stands(command: str, call: Call, here: Path) -> None:
    before = call("--json", *words(command))
    after = call(*words(command), "--json")
    within = call(*command.split(), "--json", *shlex.split(LINES[command]))
    assert before.code == after.code == within.code == ENDS_WITH.get(command, 0)
    for result in (before, after, within):
        parts = result.out.splitlines() if command in JSON_LINES else [result.out]
        assert parts
        for part in parts:
            assert isinstance(json.loads(part), dict | list)
        assert result.out.isascii() or command == "schema"  # that is a file for editors


@each_command
def test_json_of_wrong_usage_parses_too(command: str, call: Call, here: Path) -> None:
    result = call(*command.split(), "--json", "--no-such-option")
    found = json.loads(result.out)
    assert (result.code, found["exit_code"], found["error"]["type"]) == (2, 2, "UsageError")
    assert "--no-such-option" in found["error"]["message"]


@each_command
def test_quiet_leaves_the_results(command: str, call: Call, here: Path) -> None:
    usual, quiet = call(*words(command)), call("-q", *words(command))
    assert (quiet.code, quiet.err) == (usual.code, "")
    if command in ("validate", "smoke", "checkpoints verify"):  # what is right is not said
        assert len(quiet.out) < len(usual.out)
    else:
        assert quiet.out == usual.out


@each_command
def test_no_colours_where_none_are_wanted(
    command: str, call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    result = call(*words(command))
    assert "\x1b" not in result.out + result.err
    monkeypatch.delenv("NO_COLOR")
    result = call("--color", "never", *words(command))
    assert "\x1b" not in result.out + result.err


def test_colours_in_a_pipe_where_they_are_wanted(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plot = ("metrics", "sum", "sum-2", "--plot")
    assert "\x1b" not in call(*plot).out
    assert "\x1b[" in call(*plot, "--color", "always").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in call(*plot).out
    assert "\x1b[31m" in call("show", "none").err
    assert "\x1b" not in call("show", "none", "--color", "never").err


@each_command
def test_a_traceback_is_there_if_wanted(command: str, call: Call, here: Path) -> None:
    if command in ("docs", "smoke", "init", "schema", "completion"):
        return  # they have no errors but of usage, and smoke those of the runs it makes
    gone = [*command.split(), *(["none.yaml"] if LINES[command] else ["--runs-dir", "sum.yaml"])]
    gone += ["none", "3"] if command == "compare" else []
    gone += ["--keep-last", "1"] if command == "checkpoints prune" else []
    gone = ["checkpoints", "diff", "none", "1", "2"] if command == "checkpoints diff" else gone
    gone = ["runs", "--sort", "none"] if command == "runs" else gone
    plain, with_trace = call(*gone), call(*gone, "--traceback")
    assert plain.code == with_trace.code != 0
    assert "Traceback" not in plain.err
    assert with_trace.err.startswith("Traceback (most recent call last):\n")
    assert with_trace.err.endswith(plain.err)


NARROW = 40
TABLES = ("runs", "show", "metrics", "load-blobs", "checkpoints list", "checkpoints inspect")


class Narrow(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("command", TABLES)
def test_a_narrow_terminal_breaks_no_table(
    command: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(NARROW))
    monkeypatch.setattr("sys.stdout", Narrow())
    assert run(words(command)) == 0
    text = sys.stdout.getvalue()  # type: ignore[attr-defined]
    if command in ("show", "checkpoints inspect"):  # lines of text, which a terminal may break
        text = text.partition("\n\n")[2]
    assert text
    assert [line for line in text.splitlines() if text_width(line) > NARROW] == []


# What needs streams of its own: every command, one after the other, in one process.

CODES = [ENDS_WITH.get(command, 0) for command in LINES]
ALL = "print([main(*words) for words in LINES], file=sys.stderr)\n"
HEAD = """\
import json, os, sys
from jobrun.cli import main as _main

def main(*words):
    try:
        _main(words)
    except SystemExit as leave:
        return leave.code

"""


def inside(folder: Path, script: str, *lines: Sequence[str], **more: str) -> str:
    """The stderr of a script in which ``main(*words)`` is the command, and LINES is to be typed."""
    typed = lines or [words(command) for command in LINES]
    done = subprocess.run(
        [sys.executable, "-c", f"{HEAD}LINES = {list(map(list, typed))!r}\n{script}"],
        capture_output=True,
        cwd=folder,
        env=environment(**more),
        timeout=60,
    )
    err = done.stderr.decode("utf-8", "surrogateescape")
    assert done.returncode == 0, err
    return err


def codes(text: str) -> list[int]:
    """The exit codes of all commands, in the last line of what ``inside`` gives."""
    assert "Traceback" not in text
    assert "this is a bug" not in text
    found: list[int] = json.loads(text.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "more",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii", "TERM": "dumb"},
    ],
    ids=str,
)
def test_every_locale(more: dict[str, str], here: Path) -> None:
    assert codes(inside(here, ALL, **more)) == CODES


ODD = os.fsdecode(b"o\xff\xe9 \xc3\xa9 [/x]")  # bytes that are no text, a space, é, markup


def test_paths_of_any_bytes(world: Path, folder: Path) -> None:
    shutil.copytree(world, folder / ODD / "specs")
    (folder / ODD / "specs/runs").rename(folder / ODD / "runs")
    spec, runs = f"{ODD}/specs/sum.yaml", f"{ODD}/runs"
    lines = [
        *(["train", spec, "--runs-dir", runs, *more] for more in ([], ["--fresh"], ["-n"])),
        ["train", spec, "--runs-dir", f"{ODD}/new"],
        ["validate", spec],
        ["graph", spec, "-o", f"{ODD}/sum.svg"],
        ["metrics", f"{runs}/sum", "-o", f"{ODD}/sum.csv"],
        ["load-blobs", f"{runs}/sum", "-o", f"{ODD}/sum.npz"],
        ["compare", f"{runs}/sum", f"{runs}/sum-2"],
        *(
            [*command.split(), f"{runs}/sum", *more]
            for command in (*LINES, "resume -n")
            if "[RUN" in SIGNATURES[command.removesuffix(" -n")]
            for more in ([], ["--json"])
        ),
        ["runs", "--runs-dir", runs],
        ["checkpoints", "prune", f"{runs}/sum", "--keep-last", "9"],
    ]
    text = inside(folder, ALL, *lines)
    assert set(codes(text)) == {0}
    found = {os.fsencode(p) for p in os.listdir(folder / ODD)}
    assert {b"new", b"sum.svg", b"sum.csv", b"sum.npz"} <= found
    text = inside(folder, ALL, ["train", f"{ODD}.yaml"], ["show", ODD], ["resume", f"{ODD}/x"])
    assert codes(text) == [2, 5, 5]
    assert r"o\xff\xe9 é [/x]" in text


def test_a_path_for_scripts_is_written_byte_by_byte(world: Path, folder: Path) -> None:
    shutil.copytree(world / "runs", folder / ODD)
    line = [*COMMAND, "checkpoints", "path", f"{ODD}/sum"]
    done = subprocess.run(line, capture_output=True, cwd=folder, env=environment(), check=True)
    assert (folder / os.fsdecode(done.stdout.rstrip(b"\n")) / "_SUCCESS").is_file()


@pytest.mark.parametrize("closed", [(0,), (0, 2), (1,), (0, 1, 2)])
def test_streams_that_are_closed(closed: tuple[int, ...], here: Path) -> None:
    """No file gets the number of a stream; a copy of stderr tells the codes."""
    script = f"""\
kept = os.fdopen(os.dup(2), "w")
for number in {closed}:
    os.close(number)
    setattr(sys, ("stdin", "stdout", "stderr")[number], None)
found = [main(*words) for words in LINES]
assert all(os.path.exists(f"/dev/fd/{{number}}") for number in range(3))
print(json.dumps(found), file=kept, flush=True)
os._exit(0)
"""
    assert codes(inside(here, script)) == CODES


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
@pytest.mark.parametrize("option", ["--color=never", "--json"])
def test_a_full_disk_under_stdout(option: str, here: Path) -> None:
    script = f"""\
found = []
for words in LINES:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    found.append(main(*words, {option!r}))
print(found, file=sys.stderr, flush=True)
os._exit(0)
"""
    text = inside(here, script)
    assert set(codes(text)) == {2}
    assert text.count("error: stdout cannot be written: No space left on device\n") == len(LINES)


def test_a_reader_that_goes_away(here: Path) -> None:
    """stdout is a pipe that nobody reads: no command says so, or has another exit code for it."""
    script = """\
found = []
for words in LINES:
    reading, writing = os.pipe()
    os.close(reading)
    os.dup2(writing, 1)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    found.append(main(*words))
print(found, file=sys.stderr, flush=True)
os._exit(0)
"""
    text = inside(here, script)
    *said, last = text.splitlines()
    assert [code for code in codes(last) if code] in ([], [2])  # 2: smoke of no spec
    assert said == []


def test_a_directory_that_nothing_can_be_written_to(here: Path, tmp_path: Path) -> None:
    """Nothing is written to the current directory but what is asked for; /proc takes no files."""
    spec, runs = str(here / "sum.yaml"), str(here / "runs")
    lines = [
        ["train", spec, "--runs-dir", runs],
        ["train", spec],
        *(["show", "sum", "--runs-dir", runs], ["runs"]),
        ["graph", spec, "-o", "sum.svg"],
        ["metrics", "sum", "--runs-dir", runs, "-o", "sum.csv"],
        ["load-blobs", "sum", "--runs-dir", runs, "-o", "sum.npz"],
        ["load-blobs", "sum", "--runs-dir", runs, "-o", "blobs/"],
        ["smoke", spec, "--dir", "kept"],
    ]
    text = inside(Path("/proc"), ALL, *lines)
    assert codes(text) == [0, 6, 0, 0, 2, 2, 2, 2, 2]
    assert "hint: --runs-dir names another directory for the runs\n" in text


def test_without_a_home(here: Path) -> None:
    assert codes(inside(here, "os.environ.pop('HOME', None)\n" + ALL)) == CODES


# Names that look like markup, globs, or options of a terminal.

NAMES = ("acc[val]", "[bold]", "[", "-x")


def test_names_are_literal(call: Call, folder: Path) -> None:
    for name in NAMES:
        with CheckpointManager(folder / "[red]" / name) as manager:
            for epoch in (1, 2):
                metrics = {"acc[val]": 0.5, "[bold]": epoch, "[": float(epoch)}
                manager.save(epoch, {"main": {"w": epoch}}, metrics=metrics)
    there = ("--runs-dir", "[red]")
    for name in NAMES:
        for line in (
            *(["show"], ["metrics"], ["metrics", "--plot"], ["metrics", "--csv"], ["load-blobs"]),
            *(["checkpoints", word] for word in ("list", "inspect", "verify", "diff", "path")),
        ):
            found = ["--", name] if name.startswith("-") else [name]
            result = call(*line, *there, *found)
            assert result.code == 0, (line, result.err)
            shows = "acc[val]" if line[0] == "metrics" or line[-1] in ("show", "list") else name
            assert shows in result.out, line
    assert [line.split()[0] for line in call("runs", *there).out.splitlines()[1:]] == [
        *reversed(NAMES)
    ]
    assert "acc[val]  [bold]" in call("runs", *there).out
    assert call("metrics", *there, "[", "--metric", "acc[val]").out.split()[1] == "acc[val]"
    compared = call("compare", *there, "acc[val]", "[bold]").out
    assert all(text in compared for text in ("acc[val]", "[bold]", "  ["))
    none = call("show", *there, "[/x]")
    assert none.code == 5
    assert "no run '[/x]'" in none.err


_ODD = "a\x1b[31mb\x07"


@pytest.mark.parametrize(
    "words",
    [
        ["runs"], ["show"], ["resume"], ["resume", "-n"], ["resume", "--epoch", "1"],
        ["resume", "--epoch", "9"], ["metrics"], ["compare", "{run}", "{run}"], ["logs"],
        ["load-blobs"], ["load-blobs", "{run}", "none"], ["graph"], ["resume", "--only", "exit"],
        ["checkpoints", "list"], ["checkpoints", "list", "--attempts"], ["checkpoints", "verify"],
        ["checkpoints", "inspect"], ["checkpoints", "diff"], ["checkpoints", "diff", "{run}"],
        ["checkpoints", "prune", "{run}", "--keep-last", "1", "-n"], ["show", "{run}/checkpoint_1"],
        ["train", "sum.yaml", "--runs-dir", "{folder}"], ["load-blobs", "{run}/checkpoint_1"],
        ["resume", "{run}", "--code", "{folder}"], ["runs", "--runs-dir", "{folder}"],
        ["runs", "--runs-dir", "{run}/run.json"], ["validate", "{run}.yaml"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_no_control_character_of_a_path_reaches_the_terminal(
    call: Call, write: Call, folder: Path, words: list[str]
) -> None:
    write()
    call("train", "sum.yaml")
    (folder / "runs/sum").rename(folder / "runs" / _ODD)
    (folder / _ODD).mkdir()
    run, odd = f"runs/{_ODD}", str(folder / _ODD)
    result = call(*(w.replace("{run}", run).replace("{folder}", odd) for w in words))
    assert result.out + result.err
    assert not {"\x1b", "\x07"} & set(result.out + result.err)
