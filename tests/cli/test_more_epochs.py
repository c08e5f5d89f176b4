"""``--epochs +N`` of ``train`` and ``resume``: after the end of a run, also after kills."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


def epochs(folder: Path, run: str = "sum") -> int:
    return int(json.loads((folder / "runs" / run / "run.json").read_text())["epoch"])


def test_it_counts_from_the_end_of_a_finished_run(call: Call, write: Call, folder: Path) -> None:
    write()
    assert call("train", "sum.yaml", "--epochs", "+2").code == 0
    assert epochs(folder) == 2
    found = call("train", "sum.yaml", "--epochs", "+2")
    assert (found.code, epochs(folder)) == (0, 4)
    assert "sum: finished after 4 epochs" in found.out
    assert call("resume", "sum", "--epochs", "+1").code == 0
    assert epochs(folder) == 5
    assert call("train", "sum.yaml", "--epochs", "+3", "--fresh").code == 0
    assert (epochs(folder), epochs(folder, "sum-2")) == (5, 3)


def test_a_new_run_of_a_changed_job_has_so_many_epochs(
    call: Call, write: Call, folder: Path
) -> None:
    write()
    call("train", "sum.yaml")
    found = call("train", "sum.yaml", "--set", "step=5", "--epochs", "+2")
    assert (found.code, "a new run starts beside it" in found.err) == (0, True)
    assert (epochs(folder), epochs(folder, "sum-2")) == (3, 2)
    changed = ("--set", "step=7", "--accept-changes")
    assert call("train", "sum.yaml", *changed, "--epochs", "+2").code == 0
    assert (epochs(folder), epochs(folder, "sum-2")) == (3, 4)


def test_a_finished_run_names_it(call: Call, write: Call, folder: Path) -> None:
    write()
    call("train", "sum.yaml")
    for command in ("train sum.yaml", "resume runs/sum"):
        line = f"to run more epochs:                   jobrun {command} --epochs +10\n"
        assert line in call(*command.split()).out
    assert call("train", "sum.yaml", "--epochs", "+10").code == 0
    assert epochs(folder) == 13
    write(("stop: {epochs: 3}", "stop: {epochs: 30, when: total > 0}"))
    assert "more epochs" not in call("train", "sum.yaml").out


def test_the_same_command_after_a_kill_asks_for_no_further_epochs(
    call: Call, start: Callable[..., subprocess.Popen[str]], write: Call, folder: Path
) -> None:
    code = (
        "import os, time\n"
        "    while total >= 106 and os.path.exists('held'): time.sleep(0.01)\n"
        "    return total + step"
    )
    write(("return total + step", code))
    call("train", "sum.yaml")
    (folder / "held").touch()
    process = start("train", "sum.yaml", "--epochs", "+2")
    deadline = time.monotonic() + 60
    while json.loads((folder / "runs/sum/run.json").read_text())["state"] == "finished":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (folder / "held").unlink()
    for name in ("train sum.yaml", "resume sum"):
        found = call(*name.split(), "--epochs", "+2", "-n")
        assert "stops        after epoch 5 (epochs 3/5)\n" in found.out
    assert call("train", "sum.yaml", "--epochs", "+2").code == 0
    assert epochs(folder) == 5


@pytest.mark.parametrize("value", ["+0", "+", "0", "-1", "++1", "1.5", "²"])
def test_other_values(value: str, call: Call, write: Call, folder: Path) -> None:
    write()
    found = call("train", "sum.yaml", "--epochs", value)
    assert (found.code, (folder / "runs").exists()) == (2, False)
    assert f"'{value}' is not a number of epochs: 20, or +5 after its end" in found.err


def test_sweeps_and_unfinished_runs_without_a_number_take_a_total(
    call: Call, write: Call, folder: Path
) -> None:
    write(
        ("stop: {epochs: 3}", "stop: {when: total > 1000}"),
        ("return 1 / total", "return 1 / (total - 104)"),
    )
    assert call("train", "sum.yaml").code == 1
    found = call("train", "sum.yaml", "--epochs", "+1")
    assert found.code == 2
    assert "runs/sum has not ended, and its spec has no number of epochs" in found.err
    write()
    spec = folder / "sum.yaml"
    spec.write_text(spec.read_text() + "matrix: {step: [2, 5]}\n")
    found = call("train", "sum.yaml", "--epochs", "+1")
    assert (found.code, "a sweep takes a number in total" in found.err) == (2, True)
    assert call("train", "sum.yaml", "--fresh").code == 0
    found = call("resume", "sum-2", "--epochs", "+1")
    assert (found.code, "a sweep takes a number in total" in found.err) == (2, True)
    assert call("resume", "runs/sum-2/step=2", "--epochs", "+1").code == 0
    assert epochs(folder, "sum-2/step=2") == 4
