"""The command that a run ends with: the same in the summary and in ``show``, and it works."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun.errors import EXIT_FAILED_BY_CONDITION

Call = Callable[..., Any]
FAILING = """\
import os

def start():
    return 0

def add(total, step):
    total += 1
    if os.path.exists("fails") and total == int(open("fails").read()):
        raise ValueError("boom")
    return total

def loss_of(total):
    fails = os.path.exists("nan") and total == int(open("nan").read())
    return float("nan") if fails else 1 / total
"""


@pytest.fixture
def next_command(call: Call, write: Call, folder: Path) -> Call:
    """Runs a command that ends with an exit code; returns what the summary and show offer."""
    keep = ("stop: {epochs: 3}", "checkpoint: {keep: all}\nfail: {not_finite: loss}\n{stop}")
    stop = "stop: {epochs: 6}"
    write((keep[0], keep[1].replace("{stop}", stop)), code=FAILING)

    def next_command(*args: str, code: int = 0, files: dict[str, int] | None = None) -> str:
        for name, number in (files or {}).items():
            (folder / name).write_text(str(number))
        result = call(*args)
        assert result.code == code, result.err
        for name in files or {}:
            (folder / name).unlink()
        summary, shown = (text.splitlines()[-1] for text in (result.out, call("show", "sum").out))
        assert summary == shown
        return str(summary)

    return next_command


@pytest.fixture
def typed(call: Call) -> Call:
    """Runs a command as it is shown."""
    return lambda command: call(*shlex.split(command)[1:])


def test_after_a_failed_first_epoch(next_command: Call, typed: Call, write: Call) -> None:
    command = next_command("train", "sum.yaml", code=1, files={"fails": 1})
    assert command == "jobrun train sum.yaml"
    write(("epochs: 3", "epochs: 4"), ("vars: {step: 2}", "vars: {step: 3}"))
    result = typed(command)
    assert result.out.startswith("sum: finished after 4 epochs")
    assert "it starts over" in result.err


def test_after_a_failed_init(next_command: Call, typed: Call, write: Call) -> None:
    write(code=FAILING.replace("return 0", "raise ValueError"))
    command = next_command("train", "sum.yaml", code=1)
    assert command == "jobrun train sum.yaml"
    write(code=FAILING)
    assert typed(command).out.startswith("sum: finished after 3 epochs")


def test_after_several_epochs_that_were_not_saved(
    next_command: Call, typed: Call, folder: Path
) -> None:
    spec = folder / "sum.yaml"
    spec.write_text(spec.read_text().replace("{keep: all}", "{every: 5}"))
    command = next_command("train", "sum.yaml", code=1, files={"fails": 3})
    assert command == "jobrun train sum.yaml"
    assert typed(command).out.startswith("sum: finished after 6 epochs")


def test_a_run_whose_path_holds_the_name_of_a_command(
    call: Call, write: Call, typed: Call, folder: Path
) -> None:
    write(code=FAILING)
    home = "the show of today"
    assert call("train", "sum.yaml", "--runs-dir", home).code == 0
    command = call("show", f"{home}/sum").out.splitlines()[-1]
    assert command == f"jobrun load-blobs '{home}/sum'"
    assert typed(command).code == 0


def test_options_of_train_are_part_of_the_command_or_the_run_is_resumed(
    call: Call, write: Call, folder: Path
) -> None:
    write(code=FAILING)
    (folder / "fails").write_text("1")
    result = call("train", "sum.yaml", "--set", "stop.epochs=2", "--runs-dir", "other")
    (folder / "fails").unlink()
    again = result.out.splitlines()[-1]
    assert again == "jobrun train sum.yaml --set stop.epochs=2 --runs-dir other"
    shown = call("show", "other/sum").out.splitlines()[-1]
    assert shown == "jobrun resume other/sum"  # they are not kept
    assert call(*shlex.split(shown)[1:]).out.startswith("sum: finished after 2 epochs")


def test_another_directory_of_runs_is_named(call: Call, write: Call, folder: Path) -> None:
    write(code=FAILING)
    (folder / "fails").write_text("1")
    result = call("train", "sum.yaml", "--runs-dir", "other runs")
    (folder / "fails").unlink()
    again = result.out.splitlines()[-1]
    assert again == "jobrun train sum.yaml --runs-dir 'other runs'"
    assert call("show", "other runs/sum").out.splitlines()[-1] == again
    assert call(*shlex.split(again)[1:]).out.startswith("sum: finished after 3 epochs")


def test_after_a_failed_epoch(next_command: Call, typed: Call) -> None:
    command = next_command("train", "sum.yaml", code=1, files={"fails": 4})
    assert command == "jobrun resume runs/sum"
    assert typed(command).out.startswith("sum: finished after 6 epochs")


def test_after_a_failed_rewind(next_command: Call, typed: Call) -> None:
    next_command("train", "sum.yaml")
    command = next_command("resume", "sum", "--epoch", "3", code=1, files={"fails": 5})
    assert command == "jobrun resume runs/sum"
    result = typed(command)
    assert result.out.startswith("sum: finished after 6 epochs")
    assert "2 epochs in" in result.out


def test_after_a_failure_by_a_condition(next_command: Call, typed: Call, folder: Path) -> None:
    code = EXIT_FAILED_BY_CONDITION
    command = next_command("train", "sum.yaml", code=code, files={"nan": 4})
    assert command == "jobrun resume runs/sum --epoch 3"
    (folder / "runs/sum/checkpoint_3/zarr.json").unlink()
    command = next_command("resume", "sum", "--epoch", "2", code=code, files={"nan": 4})
    assert typed(command).out.startswith("sum: finished after 6 epochs")


def test_after_the_end(next_command: Call, typed: Call, call: Call, folder: Path) -> None:
    command = next_command("train", "sum.yaml")
    assert command == "jobrun load-blobs runs/sum"
    assert typed(command).code == 0
    (folder / "runs/sum/checkpoint_6/zarr.json").unlink()
    command = call("show", "sum").out.splitlines()[-1]
    assert command == "jobrun resume runs/sum"
    assert typed(command).out.startswith("sum: finished after 6 epochs")
    assert call("show", "sum").out.splitlines()[-1] == "jobrun load-blobs runs/sum"


def test_where_no_checkpoint_is_whole(next_command: Call, typed: Call, folder: Path) -> None:
    next_command("train", "sum.yaml", code=1, files={"fails": 3})
    for n in range(3):
        (folder / f"runs/sum/checkpoint_{n}/zarr.json").unlink()
    result = typed("jobrun show sum")
    command = result.out.splitlines()[-1]
    assert command == "jobrun checkpoints verify runs/sum"
    verified = typed(command)
    assert "zarr.json: it is missing" in verified.out + verified.err
