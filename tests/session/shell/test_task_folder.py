"""The fresh folder of a program, on every file system."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from jobrun.session.shell.task_folder import remove_leftovers, task_folder


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_one_in_use_is_no_leftover(tmp_path: Path) -> None:
    with task_folder() as folder:
        remove_leftovers()
        assert folder.is_dir()
    assert os.listdir(tmp_path) == []


def test_one_is_provided_where_nothing_can_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none is removed there, since one in use could not be told from a leftover."""

    def flock(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with task_folder() as folder:
        remove_leftovers()
        assert folder.is_dir()
    assert os.listdir(tmp_path) == []
