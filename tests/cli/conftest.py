"""The command in a process of its own, and the same in this process where that is enough."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import warm

from jobrun import CheckpointManager
from jobrun.checkpoint.part_source import BlobSource
from jobrun.checkpoint.record import RecordFields
from jobrun.cli.app import run
from jobrun.core.position import Position
from jobrun.values.adoption import adopt

COMMAND = [str(warm.COMMAND)]
_CHANGING = (
    "JOBRUN_",
    "NO_COLOR",
    "FORCE_COLOR",
    "COLUMNS",
    "LINES",
    "TERM",
    "COVERAGE",
    "GITHUB_",
    "SLURM_",
    "LC_",
    "LANG",
)


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    """The environment without what changes output."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_CHANGING)}
    path = f"{Path(COMMAND[0]).parent}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "PATH": path, "TERM": "xterm-256color", **more}


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(_CHANGING):
            monkeypatch.delenv(name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def jobrun(folder: Path) -> Callable[..., Result]:
    """Runs the command in ``folder``, in a process of its own: see ``warm``.

    ``more`` is of its environment.
    """

    def call(*args: str, **more: str) -> Result:
        return Result(*warm.jobrun(args, folder, environment(**more)))

    return call


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the command in ``folder`` and leaves it running, its output in pipes.

    ``apart``: in a process group of its own, which a signal can be sent to.  ``more`` is of its
    environment.
    """
    started: list[subprocess.Popen[str]] = []

    def start(*args: str, apart: bool = False, **more: str) -> subprocess.Popen[str]:
        process = warm.start(
            args,
            folder,
            environment(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=apart,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with suppress(ProcessLookupError):  # what it has started must not hold its pipes
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.communicate()


@pytest.fixture
def shell(folder: Path) -> Callable[[str], Result]:
    """Runs a line of bash in ``folder``, which finds the installed command."""
    path = f"{Path(COMMAND[0]).parent}{os.pathsep}{os.environ['PATH']}"

    def shell(line: str) -> Result:
        done = subprocess.run(
            ["bash", "-c", line],
            capture_output=True,
            cwd=folder,
            env=environment(PATH=path),
            timeout=120,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return shell


@dataclass(frozen=True)
class Screen:
    """What a command wrote to a terminal, and its exit code."""

    code: int
    text: str

    @property
    def plain(self) -> str:
        """The text without escape codes."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.text)


@pytest.fixture
def terminal(folder: Path) -> Callable[..., Screen]:
    """Runs the command in ``folder`` on a terminal of its own; ``answer`` is typed."""

    def terminal(
        *args: str, size: tuple[int, int] = (80, 24), answer: str = "", **more: str
    ) -> Screen:
        leader, follower = pty.openpty()
        columns, rows = size
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        process = warm.start(
            args,
            folder,
            environment(**more),
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
        )
        os.close(follower)
        os.write(leader, answer.encode())
        written = bytearray()
        while True:
            try:
                part = os.read(leader, 1 << 16)
            except OSError:  # the last process has closed its end
                break
            if not part:
                break
            written += part
        os.close(leader)
        return Screen(process.wait(timeout=120), written.decode().replace("\r\n", "\n"))

    return terminal


@pytest.fixture
def call(folder: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Runs a command in this process, which imports the user's code anew."""

    def call(*args: str) -> Result:
        sys.modules.pop("steps", None)
        capfd.readouterr()
        code = run(args)
        out, err = capfd.readouterr()
        return Result(code, out, err)

    return call


@pytest.fixture(scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[str]]:
    """The directory and the names of what ``once`` has made."""
    return tmp_path_factory.mktemp("once"), set()


@pytest.fixture
def once(folder: Path, _made: tuple[Path, set[str]]) -> Callable[[Callable[[], object]], None]:
    """Makes in ``folder`` what many tests of a module begin with; all but the first get a copy."""
    home, known = _made

    def once(make: Callable[[], object]) -> None:
        name = make.__qualname__.partition(".")[0]
        if name not in known:
            make()
            copy_with_links(folder, home / name)
            known.add(name)
        else:
            copy_with_links(home / name, folder)

    return once


def copy_with_links(source: Path, target: Path) -> None:
    """Copy a folder with its times; files that are one file are one in the copy."""
    copies: dict[int, str] = {}

    def copy(old: str, new: str) -> None:
        first = copies.setdefault(os.stat(old).st_ino, new)
        if first == new:
            shutil.copy2(old, new)
        else:
            os.link(first, new)

    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, copy_function=copy)


@pytest.fixture
def saved(folder: Path) -> Path:
    """A run of four checkpoints, epochs 0 to 3; ``data`` never changes: 0 and 2, 1 and 3 share it.

    Each has 12 files.
    """
    data = adopt([np.arange(6.0)])
    with CheckpointManager(folder / "runs/m") as manager:
        for epoch in range(4):
            model = {"w": np.array([1.0, 2.0, 3.0 + epoch], "f4"), "steps": epoch}
            blobs = {"model": adopt([model]), "tags": adopt([["a"]])}
            blobs["old" if epoch < 2 else "new"] = adopt([1])
            metrics = {"loss": 1 / (1 + epoch), "acc": (0.5, 0.75, 0.25, float("nan"))[epoch]}
            fields = RecordFields(Position(epoch), 1.0, metrics, versions={"python": "3"})
            manager.save_snapshot(BlobSource({"main": {"data": data, **blobs}}), fields)
    return folder / "runs/m"


_NORMAL = [
    (re.compile(r"\d+(\.\d+)? m?s\b|\d+m\d\ds"), "TIME"),
    (re.compile(r"\d+(\.\d+)? [kMG]?B\b"), "SIZE"),
    (re.compile(r"<?\d+(?:\.\d)?% (in|of)"), r"SHARE \1"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?"), "WHEN"),
]


def normal(text: str, folder: Path | None = None) -> str:
    """Text without what differs from run to run: times, sizes, the temporary directory."""
    if folder is not None:
        text = text.replace(str(folder.resolve()), "DIR")
    for pattern, name in _NORMAL:
        text = pattern.sub(name, text)
    return text


@pytest.fixture
def normalised(folder: Path) -> Callable[[str], str]:
    """``normal`` for the current directory."""
    return lambda text: normal(text, folder)


SPEC = """\
name: sum
vars: {step: 2}
init:
  - {call: "steps:start", out: total}
epoch:
  - {call: "steps:add", in: {total, step}, out: total}
  - {call: "steps:loss_of", in: {total}, out: loss}
metrics: {loss: min}
stop: {epochs: 3}
"""
CODE = """\
def start():
    return 100

def add(total, step):
    return total + step

def loss_of(total):
    return 1 / total
"""


@pytest.fixture
def write(folder: Path) -> Callable[..., None]:
    """Writes a small spec and its code: ``sum.yaml`` and ``steps.py``, with texts replaced."""

    def write(
        *replaced: tuple[str, str], spec: str = SPEC, code: str = CODE, at: str = "."
    ) -> None:
        for old, new in replaced:
            assert (old in spec) or (old in code), old
            spec, code = spec.replace(old, new), code.replace(old, new)
        home = folder / at
        home.mkdir(parents=True, exist_ok=True)
        (home / "sum.yaml").write_text(spec, encoding="utf-8")
        (home / "steps.py").write_text(code, encoding="utf-8")

    return write
