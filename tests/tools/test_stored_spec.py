"""The spec with which a run goes on, and where its code is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobrun.errors import NotFoundError, UsageError
from jobrun.runs.run_state import RunState
from jobrun.runs.rundir import RunDir
from jobrun.tools.stored_spec import stored_spec

SPEC = """\
name: sum
init: [{call: "steps:start", out: total}]
epoch: [{call: "steps:add", in: total, out: total}]
stop: {epochs: 3}
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """A run in ``runs``, its spec and code in ``code``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code/sum.yaml").write_text(SPEC)
    run = RunDir(tmp_path / "runs/sum")
    run.store_spec(SPEC, SPEC.replace("epochs: 3", "epochs: 5"))
    folder = str(tmp_path / "code")
    relative = os.path.join("..", "..", "code")
    run.write(RunState("sum", "sum", folder=folder, folder_relative=relative, spec="sum.yaml"))
    return run


def test_a_file_that_was_edited_since(run: RunDir, tmp_path: Path) -> None:
    file = tmp_path / "code/sum.yaml"
    assert not stored_spec(run).edited
    file.write_bytes(b"\xef\xbb\xbf" + SPEC.replace("\n", "\r\n").encode())
    assert not stored_spec(run).edited, "the same text"
    file.write_text(SPEC.replace("epochs: 3", "epochs: 4"))
    assert stored_spec(run).edited
    assert not stored_spec(run, "code/sum.yaml").edited
    file.write_bytes(b"\xff")
    assert not stored_spec(run).edited


def test_the_spec_that_was_run(run: RunDir, tmp_path: Path) -> None:
    kept = stored_spec(run)
    assert kept.spec.tree["stop"] == {"epochs": 5}
    assert (kept.text, kept.folder) == (SPEC, tmp_path / "code")
    assert kept.spec_path == tmp_path / "code/sum.yaml"
    assert kept.spec.folder == str(tmp_path / "code")


def test_set_and_epochs_are_applied(run: RunDir) -> None:
    assert stored_spec(run, epochs=9).spec.tree["stop"] == {"epochs": 9}
    assert stored_spec(run, sets=["seed=4"]).spec.tree["seed"] == 4


def test_a_spec_as_it_is_now(run: RunDir, tmp_path: Path) -> None:
    kept = stored_spec(run, "code/sum.yaml")
    assert kept.spec.tree["stop"] == {"epochs": 3}
    assert kept.spec_path == tmp_path / "code/sum.yaml"


def test_a_copy_of_run_and_code_uses_its_own_code(run: RunDir, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "code").mkdir()
    (copy / "code/sum.yaml").write_text(SPEC)
    (copy / "runs").mkdir()
    run.path.rename(copy / "runs/sum")
    assert stored_spec(RunDir(copy / "runs/sum")).folder == copy / "code"


def test_a_run_that_moved_alone_uses_the_code_where_it_was(run: RunDir, tmp_path: Path) -> None:
    run.path.rename(tmp_path / "moved")
    assert stored_spec(RunDir(tmp_path / "moved")).folder == tmp_path / "code"


def test_code_that_is_gone(run: RunDir, tmp_path: Path) -> None:
    (tmp_path / "code").rename(tmp_path / "elsewhere")
    with pytest.raises(NotFoundError, match="the folder of the code is gone") as caught:
        stored_spec(run)
    assert caught.value.hint.endswith("jobrun resume runs/sum --code DIR")
    assert stored_spec(run, code="elsewhere").folder == tmp_path / "elsewhere"


def test_a_stored_spec_that_is_gone(run: RunDir) -> None:
    run.resolved_path.unlink()
    with pytest.raises(NotFoundError, match="the spec of the run is gone"):
        stored_spec(run)


def test_a_run_of_a_script_and_no_run_at_all(run: RunDir, tmp_path: Path) -> None:
    run.write(RunState("sum", "sum", built_in_python=True))
    with pytest.raises(UsageError, match="started by a Python script"):
        stored_spec(run)
    with pytest.raises(NotFoundError, match="there is no run"):
        stored_spec(RunDir(tmp_path / "none"))
