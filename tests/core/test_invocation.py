"""The commands that messages offer can be typed as they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobrun.core.invocation import program


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return tmp_path


def test_on_the_path_it_is_jobrun(start: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = start / "bin" / "jobrun"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(command)])
    assert program() == os.path.join("bin", "jobrun")
    monkeypatch.setenv("PATH", str(command.parent))
    assert program() == "jobrun"


def test_by_a_path_elsewhere_it_is_that_path(start: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/opt/some env/bin/jobrun"])
    assert program() == "'/opt/some env/bin/jobrun'"


def test_as_a_module_it_is_the_interpreter(start: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/x/jobrun/__main__.py"])
    monkeypatch.setattr("sys.executable", str(start / "env" / "bin" / "python"))
    assert program() == f"{os.path.join('env', 'bin', 'python')} -m jobrun"


def test_from_a_script_of_the_user_it_is_jobrun(
    start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["train.py"])
    assert program() == "jobrun"
