"""Tasks that do to their process what only a whole program should: the run is none the worse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun.checkpoint.read_blobs import load_blobs

Call = Callable[..., Any]
TASK = ("return total + step", "{}\n    return total + step")


def body(*lines: str) -> tuple[str, str]:
    """What ``add`` does before it returns."""
    return TASK[0], TASK[1].format("\n    ".join(lines))


@pytest.mark.parametrize("how", ["pass", "raise ValueError", "import sys; sys.exit(3)"])
def test_a_forked_process_that_comes_back_is_ended(
    how: str, start: Call, write: Call, folder: Path
) -> None:
    write(body("import os", "child = os.fork()", f"if child == 0: {how}",
               "else: os.waitpid(child, 0)"))  # fmt: skip
    process = start("train", "sum.yaml", apart=True)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert err.count("a process forked by task 'add' ") == 3
    assert "Traceback" not in err
    assert out.count("sum: finished after 3 epochs") == 1
    assert load_blobs(folder / "runs/sum")["total"] == 106


@pytest.mark.parametrize("where", ["import", "stream"])
def test_so_is_one_that_an_import_or_a_source_has_forked(
    where: str, start: Call, write: Call, folder: Path
) -> None:
    fork = "import os\nif (child := os.fork()):\n    os.waitpid(child, 0)\n"
    if where == "import":
        write(("def start", f"{fork}\ndef start"))
    else:
        rows = "def rows():\n    for n in range(6):\n        if n == 2:\n            import os\n"
        rows += (
            "            if (child := os.fork()): os.waitpid(child, 0)\n        yield {'x': n}\n"
        )
        write(("def start", f"{rows}\ndef start"),
              ("def add(total, step):", "def add(total, x, step=2):"),
              ('{call: "steps:add", in: {total, step}, out: total}',
               '{pipe: {call: "steps:rows", from: x, batch: 6}, do: '
               '[{call: "steps:add", in: {total, x}, out: total}], name: read}'))  # fmt: skip
    process = start("train", "sum.yaml", apart=True)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert "returned, and is ended" in err
    assert out.count("sum: finished after 3 epochs") == 1


def test_a_task_closes_stdout(start: Call, write: Call, folder: Path) -> None:
    write(body("import sys", "print('before')", "sys.stdout.close()", "sys.stderr.close()",
               "print('after')"))  # fmt: skip
    process = start("train", "sum.yaml")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert out.startswith("before\nafter\nbefore\nafter\nbefore\nafter\nsum: finished")


def test_a_task_closes_what_is_below_stdout(start: Call, write: Call, folder: Path) -> None:
    write(body("import sys", "sys.__stdout__.close()", "print('after')"))
    process = start("train", "sum.yaml")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2, out + err
    assert err.endswith("error: stdout cannot be written: it was closed by a task\n")
    assert load_blobs(folder / "runs/sum")["total"] == 106
    assert "[add, epoch 3] after" in (folder / "runs/sum/log.txt").read_text()


def test_a_task_closes_every_file(start: Call, write: Call, folder: Path) -> None:
    """All that jobrun has open between two saves; what it opens next gets the same numbers."""
    wait = "while total == 102 and not os.path.exists('runs/sum/checkpoint_1'): pass"
    write(body("import os", wait, "if total == 102: os.closerange(3, 256)"))
    process = start("train", "sum.yaml")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert "bug" not in err
    assert load_blobs(folder / "runs/sum")["total"] == 106
    assert (folder / "runs/sum/events.jsonl").read_text().count('"EpochFinished"') == 3


def test_stdout_is_a_full_disk(shell: Call, write: Call, folder: Path) -> None:
    """The prints of tasks do not end the run, and are in its log."""
    write(body("print('total', total)"))
    result = shell("jobrun train sum.yaml > /dev/full")
    assert result.err.count("No space left on device") == 2
    assert (
        "warning: what tasks print cannot be written to stdout (No space left on device): "
        "it is in log.txt\n"
    ) in result.err
    assert result.err.endswith("error: stdout cannot be written: No space left on device\n")
    assert result.code == 2
    assert load_blobs(folder / "runs/sum")["total"] == 106
    log = (folder / "runs/sum/log.txt").read_text()
    assert [f"total {n}" in log for n in (100, 102, 104)] == [True] * 3


@pytest.mark.parametrize(
    ("begin", "name"),
    [
        ("threading.Thread(target=wait, name='listener').start()", "thread 'listener'"),
        ("get_context('fork').Process(target=wait, name='helper').start()", "process 'helper' ("),
    ],
)
def test_what_the_end_waits_for_is_named(
    begin: str, name: str, start: Call, write: Call, folder: Path
) -> None:
    code = f"""\
import pathlib, threading, time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
def wait():
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
ThreadPoolExecutor(1).submit(int)  # ends by itself
{begin}
"""
    write(("def start", f"{code}\ndef start"))
    process = start("train", "sum.yaml", apart=True)
    said = ""
    while "the run is over" not in said:
        said = process.stderr.readline()
        assert said
    assert f"the run is over; waiting for {name}" in said
    assert said.count("thread") + said.count("process") == 1
    (folder / "go").touch()
    assert "sum: finished" in process.communicate(timeout=120)[0]
    assert process.returncode == 0


def test_nothing_is_said_of_an_end_that_comes_by_itself(start: Call, write: Call) -> None:
    write(("def start", "from concurrent.futures import ThreadPoolExecutor\n"
           "ThreadPoolExecutor(1).submit(int)\n\ndef start"))  # fmt: skip
    process = start("train", "sum.yaml")
    assert "waits" not in process.communicate(timeout=120)[1]
