"""``--code``: code that is not beside the spec, in every command that imports it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]

SPEC = """\
init:
  - {call: "pack.steps:start", out: total}
epoch:
  - {call: "pack.steps:add", in: total, with: {file: "${spec.dir}/step.txt"}, out: total}
stop: {epochs: 3}
"""
CODE = """\
from .inner import read

def start():
    return 0

def add(total, file):
    return total + read(file)
"""
RUN_CODE = ("--code", ".")


@pytest.fixture
def project(folder: Path) -> Path:
    """A package at the root of a project, and a spec and its data in ``configs/``."""
    (folder / "pack").mkdir()
    (folder / "configs").mkdir()
    (folder / "pack/__init__.py").write_text("")
    (folder / "pack/steps.py").write_text(CODE)
    (folder / "pack/inner.py").write_text("def read(file):\n    return int(open(file).read())\n")
    (folder / "configs/job.yaml").write_text(SPEC)
    (folder / "configs/step.txt").write_text("2\n")
    return folder


def total(call: Call, run: str = "job") -> int:
    """The blob at the end of a run."""
    return int(
        json.loads(call("load-blobs", run, "total", "--json").out)["blobs"]["total"]["value"]
    )


def test_a_run_remembers_the_folder_of_its_code(call: Call, project: Path) -> None:
    result = call("train", "configs/job.yaml", *RUN_CODE)
    assert (result.code, total(call)) == (0, 6)
    state = json.loads((project / "runs/job/run.json").read_text())
    assert (state["folder"], state["spec"]) == (str(project.resolve()), "configs/job.yaml")
    assert set(state["code"]) == {"pack/__init__.py", "pack/steps.py", "pack/inner.py"}
    for name, end in (("job", 8), ("configs/job.yaml", 10), (None, 12)):
        words = ["resume", *([name] if name else []), "--epochs", str(end // 2)]
        assert call(*words).code == 0
        assert total(call) == end
    assert "configs/job.yaml" in call("runs").out + call("show", "job").out
    assert call("runs", "--spec", "configs/job.yaml").out.count("finished") == 1


def test_code_and_spec_that_moved_together(jobrun: Call, call: Call, project: Path) -> None:
    call("train", "configs/job.yaml", *RUN_CODE)
    (project / "moved").mkdir()
    for name in ("pack", "configs"):
        shutil.move(project / name, project / "moved" / name)
    assert jobrun("resume", "job", "--epochs", "4").code == 4
    assert jobrun("resume", "job", "--epochs", "4", "--code", "moved").code == 0
    assert total(call) == 8


def test_commands_to_type_name_the_folder(call: Call, project: Path) -> None:
    call("train", "configs/job.yaml", *RUN_CODE)
    again = call("train", "configs/job.yaml", *RUN_CODE)
    assert "jobrun train configs/job.yaml --code . --fresh" in again.out
    spec = project / "configs/job.yaml"
    spec.write_text(SPEC.replace("epochs: 3", "epochs: 9"))
    result = call("resume", "job", "--epochs", "4")
    assert "with the changes: jobrun train configs/job.yaml --code .)" in result.err


def test_a_folder_that_is_not_there(call: Call, project: Path) -> None:
    result = call("train", "configs/job.yaml", "--code", "gone")
    assert (result.code, (project / "runs").exists()) == (2, False)
    assert "Invalid value for '--code': Directory 'gone' does not exist." in result.err


def test_validate_and_dry_run(jobrun: Call, project: Path) -> None:
    assert jobrun("validate", "--import", "configs/job.yaml", *RUN_CODE).code == 0
    assert jobrun("train", "configs/job.yaml", "-n", "--shapes", *RUN_CODE).code == 0


def test_a_sweep_remembers_it_too(jobrun: Call, project: Path) -> None:
    spec = project / "configs/job.yaml"
    spec.write_text(SPEC + "matrix: {lr: [2]}\nvars: {lr: 1}\n")
    assert jobrun("train", "configs/job.yaml", *RUN_CODE).code == 0
    assert jobrun("resume", "job", "--epochs", "4").code == 0
    assert json.loads((project / "runs/job/sweep.json").read_text())["spec"] == "configs/job.yaml"


def test_smoke(jobrun: Call, project: Path) -> None:
    result = jobrun("smoke", "configs/job.yaml", *RUN_CODE)
    assert (result.code, "FAILED" in result.out) == (0, False)


def test_a_spec_inside_the_package_of_its_code(jobrun: Call, call: Call, project: Path) -> None:
    (project / "configs/job.yaml").rename(project / "pack/job.yaml")
    (project / "configs/step.txt").rename(project / "pack/step.txt")
    assert jobrun("train", "pack/job.yaml").code == 4
    assert jobrun("train", "pack/job.yaml", *RUN_CODE).code == 0
    assert total(call) == 6


def test_a_link_to_the_spec(call: Call, project: Path) -> None:
    (project / "link.yaml").symlink_to("configs/job.yaml")
    (project / "step.txt").write_text("5\n")
    assert call("train", "link.yaml").code == 0  # the code is beside the link: so is the data
    assert total(call, "link") == 15
    assert call("resume", "link.yaml", "--epochs", "4").code == 0
    assert total(call, "link") == 20
