"""Objects that ``setup`` makes, through the installed command: what is refused, what is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobrun import load_blobs

Call = Callable[..., Any]

STEPS = """
import os
from pathlib import Path

class Tool:
    def __init__(self): self.used = 0

def start(): return 0
def alias(tool): return tool
def count(n): return n + 1

def spoil(tool):
    Path("called").touch()
    tool.used += 1

def use(tool, n, killed_at):
    if n == killed_at and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), 9)
    tool.used += 1
    return n + 1
"""
SETUP = """\
setup: [{call: 'steps:Tool', out: tool}]
init: [{call: 'steps:start', out: n}]
"""
INSTALLED = {"COLUMNS": "200"}
"""With something in its environment, the command is a process of its own."""


def test_an_update_of_an_object_of_setup_is_refused_before_the_call(
    jobrun: Call, folder: Path
) -> None:
    spec = folder / "job.yaml"
    (folder / "steps.py").write_text(STEPS, "utf-8")
    spec.write_text(
        SETUP
        + """\
epoch:
  - {call: 'steps:alias', in: tool, out: other}
  - {call: 'steps:spoil', update: other}
  - {call: 'steps:count', in: n, out: n}
stop: {epochs: 2}
""",
        "utf-8",
    )
    failed = jobrun("train", "job.yaml", **INSTALLED)
    assert failed.code == 1
    assert (
        "error: job.yaml:5:35: task 'spoil' of group 'epoch' updates 'other', which is the object "
        "that 'setup' made as 'tool': the change would be in no checkpoint, and lost on a resume\n"
        "    5 |   - {call: 'steps:spoil', update: other}\n"
        "      |                                   ^^^^^\n"
        "  hint: name it under 'state' if its content is to be saved" in failed.err
    )
    assert "Traceback" not in failed.err
    assert failed.out.endswith("jobrun train job.yaml\n")
    assert not (folder / "called").exists()

    # Nothing is lost: epoch 0 is on disk, and the mended spec goes on from it.
    assert load_blobs(folder / "runs/job", epoch=0) == {"n": 0}
    spec.write_text(spec.read_text("utf-8").replace("update: other", "in: other"), "utf-8")
    mended = jobrun("train", "job.yaml", "--accept-changes", **INSTALLED)
    assert mended.code == 0, mended.err
    assert "loaded checkpoint_0" in mended.err
    assert load_blobs(folder / "runs/job") == {"n": 2}


def test_what_epochs_may_change_in_an_object_of_setup_is_said_at_each_start(
    jobrun: Call, folder: Path
) -> None:
    (folder / "steps.py").write_text(STEPS, "utf-8")
    (folder / "job.yaml").write_text(
        SETUP
        + """\
epoch: [{call: 'steps:use', in: [tool, n], with: {killed_at: 2}, out: n}]
stop: {epochs: 4}
checkpoint: {async: false}
""",
        "utf-8",
    )
    said = (
        ":1:35: 'tool' of 'setup' is an object of type steps.Tool, which 'use' of 'epoch' uses: "
        "changes to it in an epoch are in no checkpoint, and lost on a resume"
    )
    killed = jobrun("train", "job.yaml", **INSTALLED)
    assert killed.code == -9
    assert killed.err.count(f"warning: job.yaml{said}") == 1

    resumed = jobrun("resume", "job.yaml", **INSTALLED)
    assert resumed.code == 0, resumed.err
    assert resumed.err.count(f"warning: job.yaml{said}") == 1
    assert resumed.err.index("loaded checkpoint_2") < resumed.err.index("warning: job.yaml:1:35")
    assert resumed.err.index("warning: job.yaml:1:35") < resumed.err.index("epoch 3/4")
    assert load_blobs(folder / "runs/job") == {"n": 4}
