"""Limits of the machine: named, wherever they are met, and no bugs of jobrun."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun.cli.machine_limits import limit_error
from jobrun.errors import JobrunError, UsageError

from .conftest import CODE, SPEC

Call = Callable[..., Any]


@pytest.fixture
def spec(folder: Path) -> Path:
    (folder / "steps.py").write_text(CODE)
    path = folder / "sum.yaml"
    path.write_text(SPEC)
    return path


def refused(code: int, name: str | None = None) -> OSError:
    return OSError(code, os.strerror(code), name)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MemoryError(), "there is not enough memory"),
        (MemoryError("Unable to allocate 8 PiB"), "not enough memory: Unable to allocate 8 PiB"),
        (RuntimeError("can't start new thread"), "the system starts no more threads"),
        (refused(errno.EMFILE, "a/b"), "a/b: Too many open files"),
        (refused(errno.ENOSPC), "No space left on device"),
        (refused(errno.EDQUOT), "Disk quota exceeded"),
        (refused(errno.EAGAIN), "Resource temporarily unavailable"),
        (refused(errno.ENOMEM), "Cannot allocate memory"),
    ],
)
def test_limits_are_named(error: Exception, text: str) -> None:
    found = limit_error(error)
    assert type(found) is JobrunError
    assert text in str(found)
    assert found.hint
    assert found.__cause__ is error


@pytest.mark.parametrize(
    "error", [ValueError("x"), RuntimeError("x"), refused(errno.ENOENT), refused(errno.EACCES)]
)
def test_other_errors_are_none(error: Exception) -> None:
    assert limit_error(error) is None


def test_a_command_without_threads(call: Call, spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    failed = call("train", str(spec))
    assert failed.code == 1
    assert "error: the system starts no more threads" in failed.err
    assert "bug" not in failed.err


@pytest.mark.parametrize("command", ["show", "resume", "logs", "load-blobs", "train"])
def test_a_command_in_a_directory_that_was_removed(
    call: Call, spec: Path, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    failed = call(command, *([str(spec)] if command == "train" else []))
    assert failed.code == UsageError.exit_code
    assert failed.err == (
        "error: the current directory was removed\n  hint: cd to one that exists\n"
    )
