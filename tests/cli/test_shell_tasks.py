"""Shell tasks in whole runs: their output, their failure, and signals while a program runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from process_ends import has_ended

from jobrun.checkpoint.read_blobs import load_blobs

Call = Callable[..., Any]

SPEC = """\
name: relax
init:
  - {call: "builtins:float", out: u}
epoch:
  - shell: half.sh u.txt
    in: {u.txt: u}
    out: {u.txt: u}
stop: {epochs: 3}
"""
HALF = """#!/bin/bash
echo "epoch $JOBRUN_EPOCH"
read -r u < "$1"
if [[ $JOBRUN_EPOCH == 2 && ! -e $JOBRUN_SPEC_DIR/go ]]; then
  sleep 1000 &
  echo $! > "$JOBRUN_SPEC_DIR/child.tmp"
  mv "$JOBRUN_SPEC_DIR/child.tmp" "$JOBRUN_SPEC_DIR/child"
  wait
fi
[[ $JOBRUN_EPOCH != 3 || ! -e $JOBRUN_SPEC_DIR/fail ]] || exit 1
echo "$u.5" | sed 's/\\.[0-9]*\\./1./' > "$1"
"""
LOOK = """\
init:
  - shell:
      script: |
        {python} -m jobrun load-blobs "$JOBRUN_SPEC_DIR/runs/relax" > "$JOBRUN_SPEC_DIR/found"
        echo 1 > n.txt
    out: {{n.txt: n}}
stop: {{epochs: 1}}
"""


@pytest.fixture(autouse=True)
def _spec(folder: Path) -> None:
    (folder / "relax.yaml").write_text(SPEC)
    (folder / "half.sh").write_text(HALF)
    (folder / "half.sh").chmod(0o755)


def child(folder: Path) -> int:
    """The program's own child, once it is there."""
    for _ in range(2000):
        if (folder / "child").exists():
            return int((folder / "child").read_text())
        time.sleep(0.01)
    raise AssertionError("the program never came to it")


def test_a_run_of_programs(call: Call, folder: Path) -> None:
    (folder / "go").touch()
    result = call("train", "relax.yaml")
    assert result.code == 0, result.err
    assert result.out.startswith("epoch 1\nepoch 2\nepoch 3\n")
    assert "epoch 2" in (folder / "runs/relax/log.txt").read_text()
    assert load_blobs(folder / "runs/relax")["u"] == 111.5


def test_a_command_of_ours_in_a_program_is_not_told_the_epoch_of_the_task(
    call: Call, folder: Path
) -> None:
    (folder / "go").touch()
    assert call("train", "relax.yaml").code == 0
    (folder / "look.yaml").write_text(LOOK.format(python=sys.executable))
    result = call("train", "look.yaml")
    assert result.code == 0, result.err
    assert (folder / "found").read_text().splitlines()[0].endswith("checkpoint_3: epoch 3")


def test_a_failing_program_shows_the_end_of_its_output(call: Call, folder: Path) -> None:
    (folder / "go").touch()
    (folder / "fail").touch()
    result = call("train", "relax.yaml")
    assert result.code == 1
    assert "half.sh ended with exit code 1" in result.err
    assert "the end of its output:\n" in result.err
    assert "epoch 3" in result.err
    (folder / "fail").unlink()
    assert call("resume").code == 0
    assert load_blobs(folder / "runs/relax")["u"] == 111.5


@pytest.mark.parametrize("signals", [1, 2])
def test_a_signal_ends_the_program_with_its_children(
    signals: int, start: Call, call: Call, folder: Path
) -> None:
    process: subprocess.Popen[str] = start("train", "relax.yaml")
    pid = child(folder)
    os.kill(pid, 0)
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert has_ended(pid)
    (folder / "go").touch()
    assert call("resume").code == 0
    assert load_blobs(folder / "runs/relax")["u"] == 111.5


def test_a_program_without_out_is_warned_about(call: Call, folder: Path) -> None:
    (folder / "relax.yaml").write_text(SPEC.replace("    out: {u.txt: u}\n", ""))
    (folder / "go").touch()
    text = "relax.yaml:5:12: warning: the shell task 'half' of group 'epoch' has no 'out'"
    checked = call("validate", "relax.yaml")
    assert checked.code == 0
    assert text in checked.err
    assert "the shell task 'half' of group 'epoch' has no 'out'" in call("train", "relax.yaml").err
