"""Every exit code of the table, of ``train`` and of ``resume``: what is said, and on which stream.

The golden texts are in ``golden/exit-codes``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from golden import check, constant, transcript

from jobrun.runs.rundir import RunDir

Call = Callable[..., Any]
GOLDEN = Path(__file__).parent / "golden" / "exit-codes"
PAGE = Path(__file__).parent.parent.parent / "jobrun" / "docs" / "troubleshooting.md"

SPEC = """\
name: sum
vars: {step: 2}
init:
  - {call: "steps:start", out: total}
epoch:
  - {call: "steps:add", in: {total, step}, out: total}
  - {call: "steps:loss_of", in: {total}, out: loss}
exit:
  - {call: "steps:leave", in: {total}}
metrics: {loss: min}
stop: {epochs: 3}
checkpoint: {async: false}
"""
CODE = """\
import os, signal, time

def start():
    return 100

def add(total, step):
    return total + step

def loss_of(total):
    return 1 / total

def leave(total):
    print("total is", total)
"""
Change = tuple[str, str]


def adds(line: str) -> Change:
    """Something else is done in place of the last addition."""
    return (
        "    return total + step",
        f"    if total == 104:\n        {line}\n    return total + step",
    )


FAILS = adds("raise ValueError('[/x] acc[val] is too high')")
SOMETIMES = (
    "    return total + step",
    "    if total == 104 and not os.path.exists('tried'):\n"
    "        open('tried', 'w').close()\n"
    "        raise OSError('the disk was away')\n"
    "    return total + step",
)
RETRIES = ("in: {total, step}, out: total", "in: {total, step}, out: total, retries: 1")
EXIT_FAILS = ('print("total is", total)', "raise KeyError('[bold]')")
ENDS_BADLY = ("stop: {epochs: 3}", "stop: {epochs: 3}\nfail: {when: total >= 106}")
NO_SAVES = (
    "import os, signal, time\n",
    """\
import os, signal, time
from jobrun.storage.fs import Fs

def full(fs, op, path):
    if op == "mkdir" and os.path.exists("runs/sum/full") and "/.checkpoint_" in path:
        raise OSError(28, "No space left on device")

Fs.at = full
""",
)
DISK_FULL = adds("open('runs/sum/full', 'w').close()")


def signalled(*names: str, then: str = "pass", full: bool = False) -> Change:
    """Signals come while the last addition goes on, each after the one before it was heard."""
    heard = "while not (s in open('runs/sum/log.txt').read()): time.sleep(0.01)"
    lines = ["open('runs/sum/full', 'w').close()"] if full else []
    for name in names:
        lines += [
            f"s = '{name}: no new work starts'",
            f"os.kill(os.getpid(), signal.{name})",
            heard,
        ]
    return adds("\n        ".join([*lines, then]))


@dataclass(frozen=True)
class Row:
    """How an exit code comes about: what is changed in spec and code, and what is typed.

    ``resume``: before it a run has ended with an error in its third epoch.  ``harm`` is done to
    what is on disk.  ``inside``: another row has the code in a process of its own, this one is run
    in that of the tests.
    """

    code: int
    title: str
    changes: Sequence[Change] = ()
    args: Sequence[str] = ()
    harm: Callable[[Path], None] = lambda run: None
    held: bool = False
    commands: Sequence[str] = ("train", "resume")
    before: bool = False
    inside: bool = False


def lose_all(run: Path) -> None:
    for success in run.glob("checkpoint_*/_SUCCESS"):
        success.write_bytes(success.read_bytes()[:-20])


ON_ERROR = ("async: false", "async: false, on_error: fail")
AGAIN = "os.kill(os.getpid(), signal.{}); time.sleep(600)"
TRAIN, RESUME = ("train",), ("resume",)
ROWS = [
    Row(0, "done"),
    Row(0, "a task fails and is tried again", (SOMETIMES, RETRIES), inside=True),
    Row(1, "a task fails", (FAILS,)),
    Row(1, "a task fails each time", (FAILS, RETRIES), commands=TRAIN, inside=True),
    Row(1, "a task of the exit group fails", (EXIT_FAILS,), inside=True),
    Row(2, "an option that cannot be", args=("--epochs", "0"), commands=TRAIN, inside=True),
    Row(2, "the run is of another job", args=("--set", "step=5"), before=True),
    Row(3, "the spec is invalid", args=("--set", "stop.epochs=no")),
    Row(4, "there is no such function", (("def add", "def ad"),)),
    Row(
        4,
        "the code cannot be imported",
        (("import os", "import oss"),),
        commands=TRAIN,
        inside=True,
    ),
    Row(5, "every checkpoint is damaged", harm=lose_all, before=True),
    Row(6, "the last state is not saved", (NO_SAVES, DISK_FULL)),
    Row(6, "a save fails and is to end the run", (NO_SAVES, DISK_FULL, ON_ERROR), commands=TRAIN),
    Row(7, "a condition under fail", (ENDS_BADLY,)),
    Row(8, "another process holds the run", held=True, before=True),
    Row(130, "SIGINT", (signalled("SIGINT"),)),
    Row(143, "SIGTERM", (signalled("SIGTERM"),)),
    Row(
        130, "a second SIGINT", (signalled("SIGINT", then=AGAIN.format("SIGINT")),), commands=TRAIN
    ),
    Row(
        143,
        "a SIGTERM after a SIGINT",
        (signalled("SIGINT", then=AGAIN.format("SIGTERM")),),
        commands=RESUME,
    ),
    # Where several apply: 1, then a signal, then 6, then 7.
    Row(1, "a task fails after a signal", (signalled("SIGTERM", then="1 / 0"),), commands=TRAIN),
    Row(
        130,
        "a signal and then no save",
        (NO_SAVES, signalled("SIGINT", full=True)),
        commands=RESUME,
    ),
    Row(6, "a condition under fail and no save", (NO_SAVES, DISK_FULL, ENDS_BADLY), commands=TRAIN),
]
CASES = [(row, command) for row in ROWS for command in row.commands]


def name_of(row: Row, command: str) -> str:
    return f"{row.code}-{command}-{row.title.replace(' ', '-')}"


@pytest.mark.parametrize(("row", "command"), CASES, ids=[name_of(*case) for case in CASES])
def test_exit_code(
    row: Row, command: str, jobrun: Call, call: Call, write: Call, folder: Path
) -> None:
    run = folder / "runs/sum"
    if command == "resume" or row.before:
        write(*(c for c in row.changes if c[0] in SPEC), FAILS, spec=SPEC, code=CODE)
        assert call("train", "sum.yaml").code == 1
        row.harm(run)
    write(*row.changes, spec=SPEC, code=CODE)
    args = [command, "sum.yaml", *row.args]
    holder = RunDir(run)
    if row.held:
        holder.lock()
    result = (call if row.inside else jobrun)(*args)
    if row.held:
        holder.unlock()
    assert result.code == row.code
    typed = " ".join(["jobrun", *args])
    text = constant(transcript(typed, result.code, result.out, result.err), folder)
    check(GOLDEN / f"{name_of(row, command)}.txt", text)


def test_every_code_of_the_table_is_here_and_no_other() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## Exit codes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([\d, ]+) \|", table, re.M)
    codes = {int(code) for row in rows for code in row.split(",")}
    assert len(codes) == 11
    for command in ("train", "resume"):
        assert {row.code for row in ROWS if command in row.commands} == codes


def test_every_golden_text_is_of_a_row() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {name_of(*case) for case in CASES}
