"""Long names of runs and metrics, and many of them, on terminals of any width."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobrun.cli.app import run
from jobrun.report.fitting import text_width

NAME = f"a_run_with_a_name_that_is_rather_long_as_it_holds_its_parameters_{'x' * 23}"
METRICS = [
    *("m/loss", "m/a_validation_metric_of_the_first_part_accuracy"),
    *(f"m/validation_metric_number_{n}_of_the_last_part" for n in range(12)),
]
SPEC = f"""\
name: {NAME}
vars: {{rate: 0.001, an_option_with_a_long_name: "a value that is long as well, with spaces"}}
init: [{{call: "steps:start", out: n}}]
epoch:
- {{call: "steps:step", in: n, out: n}}
- {{name: {"t" * 70}, call: "steps:measure", in: n, out: m}}
metrics: {{{", ".join(f"{name}: max" for name in METRICS)}}}
checkpoint: {{keep: all}}
stop: {{epochs: 20}}
"""
CODE = f"""\
def start():
    return 0

def step(n):
    return n + 1

def measure(n):
    return {{name: -1.2345678e-300 * n for name in {[name[2:] for name in METRICS]}}}
"""
COMMANDS = [
    ("show", NAME),
    ("show", "sweep"),
    ("runs",),
    ("checkpoints", "list", NAME),
    ("compare", NAME, "short"),
    ("metrics", NAME),
    ("metrics", NAME, "short"),
    ("train", "short.yaml", "--fresh", "--progress", "none"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with runs of these names, one with few metrics, and a sweep."""
    folder = tmp_path_factory.mktemp("widths")
    (folder / "steps.py").write_text(CODE)
    (folder / "long.yaml").write_text(SPEC)
    short = SPEC.replace(NAME, "short").replace("max", "min", 1).replace("0.001", "0.002")
    (folder / "short.yaml").write_text(short)
    sweep = SPEC.replace(NAME, "sweep").replace("epochs: 20", "epochs: 2")
    (folder / "sweep.yaml").write_text(f"{sweep}matrix: {{rate: [0.1, 0.2]}}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for spec in ("long", "short", "sweep"):
            sys.modules.pop("steps", None)
            assert run(["train", f"{spec}.yaml", "--progress", "none"]) == 0
    return folder


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[str]]]:
    """Runs a command on a terminal of some columns, and returns its lines."""
    monkeypatch.chdir(runs)

    def shown(width: int, *args: str) -> list[str]:
        sys.modules.pop("steps", None)
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("LC_ALL", "C.UTF-8")
        screen = Terminal()
        monkeypatch.setattr(sys, "stdout", screen)
        assert run(args) == 0
        return re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).splitlines()

    return shown


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_lines_fit_and_values_stand_beside_their_names(
    width: int, command: tuple[str, ...], shown: Callable[..., list[str]]
) -> None:
    lines = shown(width, *command)
    told = [line for line in lines if "load-blobs" not in line]  # a command is not broken
    assert [line for line in told if text_width(line) > width and not is_one_word(line)] == []
    if command[0] in ("show", "train"):
        alone = [line for line in told if re.search(r"m/\w+$", line) and "epochs" not in line]
        assert alone == []


def is_one_word(line: str) -> bool:
    """A path or a name, maybe behind a label or a number."""
    return len(line.split()) <= 2 and NAME in line


@pytest.mark.parametrize("width", [80, 120, 200])
def test_what_has_no_room_is_said(width: int, shown: Callable[..., list[str]]) -> None:
    runs = shown(width, "runs")
    assert runs[-1].endswith(": --columns")
    (count,) = re.findall(r"\+(\d+) metrics", runs[-1])
    assert len([name for name in METRICS if name not in runs[0].split()]) == int(count)
    listed = shown(width, "checkpoints", "list", NAME)
    assert len([line for line in listed if re.match(r" *\d+  \d+ ", line)]) == 21
    assert re.fullmatch(r"\+\d+ metrics: jobrun metrics, or --json", listed[-1])
    metrics = shown(width, "metrics", NAME)
    (count,) = re.findall(r"\+(\d+) columns", metrics[-1])
    assert len(metrics[0].split()) - 1 + int(count) == len(METRICS)
    assert len(metrics) == 22


def test_a_wide_terminal_shows_all(shown: Callable[..., list[str]]) -> None:
    for command in COMMANDS:
        assert not any(line.startswith("+") for line in shown(4000, *command))


def test_the_title_of_the_tasks_is_written_once(shown: Callable[..., list[str]]) -> None:
    assert [line for line in shown(80, "show", NAME) if "slowest tasks" in line] == [
        "slowest tasks                               group   total  share  times  longest"
    ]
