"""A command that is forked is what the installed one is: see ``warm``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import warm

from tests.cli.conftest import Result, Screen, normal

Call = Callable[..., Result]
pytestmark = pytest.mark.skipif(warm.REAL, reason="no process is forked")

FACTS = """\
import json, os, random, resource, signal, sys, threading
import numpy as np

def stream(s):
    raw = getattr(s.buffer, "raw", s.buffer)
    return [s.name, s.mode, s.encoding, s.errors, s.newlines, s.line_buffering, s.write_through,
        s.isatty(), s.fileno(), raw.name, raw.mode, raw.closefd,
        s is getattr(sys, "__" + s.name[1:-1] + "__")]

def start():
    main = sys.modules["__main__"]
    own = os.getpid()
    facts = {
        "argv": sys.argv, "path": sys.path, "folder": os.getcwd(), "env": dict(os.environ),
        "streams": [stream(s) for s in (sys.stdin, sys.stdout, sys.stderr)],
        "handlers": {s: str(signal.getsignal(s)).split(" at ")[0] for s in signal.valid_signals()},
        "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "umask": os.umask(0o22), "limits": [resource.getrlimit(n) for n in range(16)],
        "main": [main.__name__, main.__file__, main.__spec__],
        "session": [os.getsid(0) == own, os.getpgid(0) == own],
        "opened": sorted(os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
            if n > "2" and os.path.exists(f"/proc/self/fd/{n}")),
        "threads": sorted(t.name for t in threading.enumerate()),
        "hooks": [sys.excepthook is sys.__excepthook__, sys.gettrace(), sys.getrecursionlimit()],
        "flags": str(sys.flags),
    }
    print(json.dumps([facts, [random.random(), np.random.rand()]]))
    return 0

def add(total, step):
    return total + step

def loss_of(total):
    return 1 / total
"""
DEADLY = FACTS.replace("    main =", "    os.kill(os.getpid(), signal.{})\n    main =")


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Whether commands are started, from now on, or forked."""
    return lambda wanted: monkeypatch.setattr(warm, "REAL", wanted)


def facts(printed: str) -> tuple[dict[str, Any], list[float]]:
    """What the task has printed of its process; each run has files of its own."""
    line = next(line for line in printed.splitlines() if line.startswith("[{"))
    known, drawn = json.loads(line)
    known["opened"] = [Path(name.partition(":")[0]).name for name in known["opened"]]
    return known, drawn


def test_it_is_a_process_as_one_that_has_started(
    jobrun: Call, write: Call, real: Callable[[bool], None]
) -> None:
    write(code=FACTS)
    found = []
    for wanted in (False, False, True):
        real(wanted)
        done = jobrun("train", "sum.yaml", "--fresh", COLUMNS="90")
        assert done.code == 0, done.err
        found.append(facts(done.out))
    (forked, first), (_, second), (started, _) = found
    assert forked == started
    assert not set(first) & set(second), "each process has its own chance"


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "--version",
        "nothing",
        "train",
        "train none.yaml",
        "train sum.yaml -v",
        "train sum.yaml --set vars.step=x",
        "validate sum.yaml",
        "metrics sum",
        "load-blobs sum",
    ],
)
def test_it_prints_and_ends_as_one_that_has_started(
    words: str,
    jobrun: Call,
    write: Call,
    folder: Path,
    real: Callable[[bool], None],
    once: Callable[..., None],
) -> None:
    def trained() -> None:
        for wanted in (False, True):
            real(wanted)
            write()
            jobrun("train", "sum.yaml", "--fresh")
            (folder / "runs").rename(folder / f"by-{wanted}")

    once(trained)
    ends = []
    for wanted in (False, True):
        real(wanted)
        (folder / f"by-{wanted}").rename(folder / "runs")
        done = jobrun(*words.split())
        ends.append((done.code, normal(done.out, folder), normal(done.err, folder)))
        (folder / "runs").rename(folder / f"by-{wanted}")
    assert ends[0] == ends[1]


def test_a_terminal(
    terminal: Callable[..., Screen], write: Call, real: Callable[[bool], None]
) -> None:
    write(code=FACTS)
    found = []
    for wanted in (False, True):
        real(wanted)
        screen = terminal("train", "sum.yaml", "--fresh", "-q", size=(20_000, 24))
        assert screen.code == 0, screen.text
        found.append(facts(screen.plain)[0])
    assert found[0] == found[1]
    assert found[0]["session"] == [True, True]


@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize("number", ["SIGKILL", "SIGSEGV"])
def test_a_death_by_a_signal(
    number: str, wanted: bool, jobrun: Call, write: Call, real: Callable[[bool], None]
) -> None:
    real(wanted)
    write(code=DEADLY.replace("{}", number))
    assert jobrun("train", "sum.yaml").code == -getattr(signal, number)


@pytest.mark.parametrize("wanted", [False, True])
def test_waiting_and_signals(
    wanted: bool,
    start: Callable[..., subprocess.Popen[str]],
    write: Call,
    real: Callable[[bool], None],
) -> None:
    real(wanted)
    write(code="import time\nprint('here', flush=True)\ntime.sleep(600)\n")
    process = start("train", "sum.yaml", apart=True)
    assert process.stdout is not None
    while "here" not in process.stdout.readline():
        assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.01)
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=0.01)
    assert os.getpgid(process.pid) == process.pid
    process.kill()
    process.communicate()
    assert process.returncode == process.poll() == process.wait() == -signal.SIGKILL
    process.send_signal(signal.SIGTERM)  # not to a process that has the number now


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "LC_ALL", "TZ"])
def test_what_acts_as_an_interpreter_starts_starts_one(name: str, folder: Path) -> None:
    env = {**warm._ENVIRONMENT, name: "1"}
    with warm.start(["--version"], folder, env, stdout=subprocess.DEVNULL) as process:
        assert type(process) is subprocess.Popen
    with warm.start(["--version"], folder, warm._ENVIRONMENT, stdout=subprocess.DEVNULL) as process:
        assert type(process) is not subprocess.Popen
