"""Nothing of a program is left: not what left its session, not after a SIGKILL of jobrun."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from process_ends import has_ended

Call = Callable[..., Any]
SPEC = """\
name: left
epoch:
  - shell:
      script: |
        setsid bash -c 'echo $$ > "$JOBRUN_SPEC_DIR/far"; sleep 300' &
        while [ ! -s "$JOBRUN_SPEC_DIR/far" ]; do sleep 0.01; done
        echo $$ > "$JOBRUN_SPEC_DIR/near"
        {then}
    {timeout}
checkpoint: false
stop: {{epochs: 1}}
"""


def pids(folder: Path) -> dict[str, int]:
    """The program, and what it has started in a session of its own."""
    end = time.monotonic() + 120
    while not ((near := folder / "near").exists() and near.read_text()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return {name: int((folder / name).read_text()) for name in ("near", "far")}


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "twice", "timeout", "by itself"])
def test_what_left_the_session_ends_with_the_program(how: str, start: Call, folder: Path) -> None:
    then = "exit 0" if how == "by itself" else "sleep 300"
    timeout = "timeout: 1" if how == "timeout" else ""
    (folder / "left.yaml").write_text(SPEC.format(then=then, timeout=timeout))
    process = start("train", "left.yaml", apart=True)
    found = pids(folder)
    if how.startswith("SIG"):
        process.send_signal(signal.Signals[how])
    elif how == "twice":
        for number in (signal.SIGTERM, signal.SIGINT):
            process.send_signal(number)
            time.sleep(0.05)
    process.communicate(timeout=120)
    assert [name for name, pid in found.items() if not has_ended(pid)] == []


def test_a_program_dies_with_jobrun_and_the_next_start_cleans_up(
    start: Call, folder: Path, tmp_path: Path
) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    spec = SPEC.format(then='[ -e "$JOBRUN_SPEC_DIR/go" ] || sleep 300', timeout="")
    (folder / "left.yaml").write_text(spec)
    process = start("train", "left.yaml", apart=True, TMPDIR=str(temporary))
    found = pids(folder)
    os.kill(process.pid, signal.SIGKILL)
    assert has_ended(found["near"])
    (left,) = temporary.glob("jobrun-task-*")
    (folder / "go").touch()
    (temporary / "jobrun-task-other").mkdir()
    again = start("train", "left.yaml", "--fresh", apart=True, TMPDIR=str(temporary))
    _, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    assert has_ended(found["far"])
    assert not left.exists()
    assert list(temporary.iterdir()) == []
