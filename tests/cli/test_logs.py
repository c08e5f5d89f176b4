"""``jobrun logs``: by task and attempt, to the end or as it grows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import CODE, COMMAND, SPEC, environment

Call = Callable[..., Any]
TALKS = (
    "return total + step",
    "import logging; print('adding', total); logging.warning('careful'); return total + step",
)
NAMED = (
    '{call: "steps:loss_of", in: {total}, out: loss}',
    '{call: "steps:loss_of", in: {total}, out: loss, name: "the-loss"}',
)
LOSS = ("return 1 / total", "print('[bold]', total); return 1 / total")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of two attempts, by the installed command."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "sum.yaml").write_text(SPEC.replace(*NAMED), encoding="utf-8")
    (folder / "steps.py").write_text(CODE.replace(*TALKS).replace(*LOSS), encoding="utf-8")
    for words in ([], ["--epochs", "4"]):
        command = [*COMMAND, "train", "sum.yaml", *words]
        subprocess.run(command, cwd=folder, env=environment(), capture_output=True, check=True)
    return folder


@pytest.fixture
def ran(trained: Path, folder: Path) -> None:
    shutil.copytree(trained, folder, dirs_exist_ok=True)


def texts(result: Any) -> list[str]:
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line) for line in lines)
    return [line[21:] for line in lines]


def test_all_of_it(ran: None, call: Call, folder: Path) -> None:
    found = texts(call("logs", "sum"))
    assert found == [line[21:] for line in (folder / "runs/sum/log.txt").read_text().splitlines()]
    assert found[0] == "[attempt 1] sum in runs/sum: starts from the beginning"
    assert "[add, epoch 1] adding 100" in found
    assert "[add, epoch 1] WARNING:root:careful" in found
    assert "[the-loss, epoch 1] [bold] 102" in found
    assert texts(call("logs")) == found
    assert texts(call("logs", "@latest")) == found


def test_of_a_task(ran: None, call: Call) -> None:
    losses = [f"[the-loss, epoch {n}] [bold] {100 + 2 * n}" for n in (1, 2, 3, 4)]
    assert texts(call("logs", "sum", "the-loss")) == losses
    assert texts(call("logs", "sum", "the*")) == losses
    assert len(texts(call("logs", "runs/sum", "a*"))) == 8
    silent = call("logs", "sum", "start")
    assert (silent.code, silent.out, silent.err) == (0, "", "nothing was printed\n")
    assert call("-q", "logs", "sum", "start").err == ""


def test_of_an_attempt_and_since(ran: None, call: Call) -> None:
    second = texts(call("logs", "sum", "--attempt", "2"))
    assert second[0].startswith("[attempt 2] sum in runs/sum: continues after epoch 3")
    assert texts(call("logs", "sum", "the*", "--attempt", "2")) == [
        "[the-loss, epoch 4] [bold] 108"
    ]
    assert texts(call("logs", "sum", "--since", "1h")) == texts(call("logs", "sum"))
    assert texts(call("logs", "sum", "--since", "2099-01-01")) == []
    result = call("logs", "sum", "--since", "yesterday")
    assert result.code == 2
    assert "--since 'yesterday' is not a time" in result.err


def test_json(ran: None, call: Call) -> None:
    result = call("logs", "sum", "the*", "--json")
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert [(x["task"], x["epoch"], x["attempt"]) for x in lines] == [
        ("the-loss", n, 1 if n < 4 else 2) for n in (1, 2, 3, 4)
    ]
    assert lines[0]["text"] == "[bold] 102"


def test_what_is_not_there(ran: None, call: Call) -> None:
    result = call("logs", "smu")
    assert (result.code, "did you mean 'sum'?" in result.err) == (5, True)
    result = call("logs", "sum", "ad")
    assert (result.code, "did you mean 'add'?" in result.err) == (5, True)
    result = call("logs", "sum", "zz*")
    assert result.code == 5
    assert "no task 'zz*'" in result.err
    assert "there are start, add, the-loss" in result.err


def test_torn_and_foreign_lines_are_passed_over(ran: None, call: Call, folder: Path) -> None:
    path = folder / "runs/sum/log.txt"
    before = texts(call("logs", "sum"))
    path.write_bytes(path.read_bytes() + b"2026-11-28T10:0\xff\nno line\n2026-11-28T10:00:00Z [a")
    assert texts(call("logs", "sum")) == before


def test_following_ends_with_the_run(write: Call, start: Call, jobrun: Call, folder: Path) -> None:
    code = (
        "import os, time\n    print('waits')\n    while not os.path.exists('go'): time.sleep(0.01)"
    )
    write(("    return total + step", f"    {code}\n    print('went')\n    return total + step"))
    run = start("train", "sum.yaml")
    log = folder / "runs/sum/log.txt"
    while not log.exists() or "waits" not in log.read_text():
        assert run.poll() is None
        time.sleep(0.02)
    follower = start("logs", "sum", "add", "-f")
    assert "waits" in follower.stdout.readline()
    (folder / "go").touch()
    out, err = follower.communicate(timeout=120)
    assert (follower.returncode, err) == (0, "")
    assert [line.rpartition(" ")[2] for line in out.splitlines()] == [
        "went",
        *["waits", "went"] * 2,
    ]
    assert run.wait(timeout=60) == 0
    assert len(jobrun("logs", "sum", "-f").out.splitlines()) > 6  # one that has ended


def test_a_forged_log_sends_no_escapes_to_the_terminal(ran: None, call: Call, folder: Path) -> None:
    """jobrun's own lines hold none, but the log of a run may come from someone else."""
    with (folder / "runs/sum/log.txt").open("a", encoding="utf-8") as log:
        log.write("2026-01-01T00:00:00Z a\x1b]0;title\x07\x1b[2Jb\u202ec\u2028d\re\x9bf\n")
    shown = call("logs", "sum").out
    assert shown.endswith(r"a\x1b]0;title\x07\x1b[2Jb\u202ec\u2028d\x0de\x9bf" + "\n")
