"""Every file of the newest checkpoint, damaged in every way, met by every command that reads it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damages import (
    DAMAGES,
    Damage,
    cases,
    changed_by,
    exchange_with_another_epoch,
    exchange_with_another_run,
)

from jobrun.checkpoint.catalog import Catalog, listed
from jobrun.checkpoint.read_blobs import load_blobs
from jobrun.cli.app import run

Call = Callable[..., Any]

SPEC = """\
name: sum
init:
  - {call: "steps:start", out: [model, total]}
epoch:
  - {call: "steps:add", in: {model, total}, out: [model, total]}
checkpoint: {link: never}
stop: {epochs: 3}
"""
CODE = """\
import numpy as np

def start():
    return {"w": np.arange(3.0), "b": np.arange(3), "parts": [FIRST, "a"]}, FIRST

def add(model, total):
    grown = {name: model[name] + 1 for name in "wb"}
    return {**model, **grown}, total + 1 if total < LAST else 1 / 0
"""
FILES = [
    "_SUCCESS",
    "manifest.main.json",
    "zarr.json",
    "main/zarr.json",
    "main/model/zarr.json",
    "main/model/parts/zarr.json",
    "main/model/parts/0/zarr.json",
    "main/model/parts/1/zarr.json",
    "main/model/b/0",
    "main/model/b/zarr.json",
    "main/model/w/0",
    "main/model/w/zarr.json",
    "main/total/zarr.json",
]
GROUPS = {*FILES[2:6]}
"""Levels, of which no value is read."""

VALUES = {*FILES[6:8], "main/total/zarr.json"}
"""Files of values that stand in the manifest too, from which they are read."""


def begin(folder: Path, first: int) -> Path:
    """A run, in a folder with its spec, that failed after epoch 2, and would not do so again."""
    code = CODE.replace("FIRST", str(first))
    (folder / "sum.yaml").write_text(SPEC)
    (folder / "steps.py").write_text(code.replace("LAST", str(first + 2)))
    assert run(["-q", "train", str(folder / "sum.yaml"), "--runs-dir", str(folder / "runs")]) == 1
    (folder / "steps.py").write_text(code.replace("LAST", str(first + 100)))
    return folder / "runs/sum"


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a spec, its run that failed after epoch 2, and another one."""
    folder = tmp_path_factory.mktemp("begun")
    failed = begin(folder, 100)
    begin(tmp_path_factory.mktemp("another"), 300).rename(folder / "runs/another")
    (failed / "notes.txt").write_text("mine")
    checkpoint = failed / "checkpoint_2"
    found = (str(p.relative_to(checkpoint)) for p in checkpoint.rglob("*") if p.is_file())
    assert sorted(found) == sorted(FILES)
    return folder


@pytest.fixture
def damaged(begun: Path, folder: Path) -> Path:
    """The run in the current directory, a copy."""
    shutil.copytree(begun, folder, dirs_exist_ok=True)
    return folder / "runs/sum"


def contents(run: Path) -> dict[str, Any]:
    """All that lies in a run but what a resume writes, with the bytes of files."""
    return {
        str(path.relative_to(run)): path.read_bytes() if path.is_file() else None
        for path in run.rglob("*")
        if path.relative_to(run).parts[0] in ("checkpoint_0", "checkpoint_1", "notes.txt")
    }


def check_result(result: Any, *codes: int) -> None:
    assert result.code in codes, result
    for text in (result.out, result.err):
        assert "Traceback" not in text
        assert "bug" not in text


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "damage"), cases(FILES, GROUPS), ids=lambda value: getattr(value, "__name__", None)
)
def test_no_command_is_silent_about_damage(
    call: Call, damaged: Path, name: str, damage: Damage
) -> None:
    target = damaged / "checkpoint_2" / name
    before, kept = target.read_bytes(), contents(damaged)
    damage(target)
    if not changed_by(before, target):
        pytest.skip("the file is the same there")
    if name == "_SUCCESS" and damage is exchange_with_another_epoch:
        pytest.skip("that makes it a copy: see below")
    seen = sorted(str(path) for path in damaged.rglob("*"))
    is_listed = 2 in [record.id for record in listed(damaged)]
    assert is_listed == (name != "_SUCCESS" or damage is exchange_with_another_run)

    shown = call("checkpoints", "list", "sum")
    check_result(shown, 0)
    if not is_listed:
        assert "checkpoint_2 is not a checkpoint: " in shown.out

    verified = call("checkpoints", "verify", "sum")
    check_result(verified, 5)
    assert name in verified.out + verified.err

    check_loads(call, name)

    if name in VALUES and Catalog(damaged).is_whole(2):
        resumed = call("resume", "sum")
        check_result(resumed, 0)
        assert "continues after epoch 2" in resumed.err
        assert load_blobs(damaged, "total") == {"total": 103}
        return

    refused = call("resume", "sum", "--epoch", "2")
    check_result(refused, 5)
    assert name in refused.out + refused.err
    assert sorted(str(path) for path in damaged.rglob("*")) == seen

    resumed = call("resume", "sum")
    check_result(resumed, 0)
    assert "checkpoint_2" in resumed.err
    assert name in resumed.err
    assert "continues after epoch 1" in resumed.err or "loaded checkpoint_1" in resumed.err
    assert load_blobs(damaged, "total") == {"total": 103}
    assert contents(damaged) == kept
    assert list(damaged.glob("attempts/*/checkpoint_2"))  # put aside, not deleted


def test_with_the_record_of_another_it_is_a_copy_and_none_of_the_run(
    call: Call, damaged: Path
) -> None:
    exchange_with_another_epoch(damaged / "checkpoint_2/_SUCCESS")
    seen = sorted(str(path) for path in (damaged / "checkpoint_2").rglob("*"))
    for command in ("list", "verify"):
        said = call("checkpoints", command, "sum")
        check_result(said, 0)
        assert "checkpoint_2 is not a checkpoint: it is a copy of checkpoint 0" in said.out
    refused = call("resume", "sum", "--epoch", "2")
    check_result(refused, 5)
    assert "it is a copy of checkpoint 0" in refused.err
    resumed = call("resume", "sum")
    check_result(resumed, 0)
    assert "continues after epoch 1" in resumed.err
    assert load_blobs(damaged, "total") == {"total": 103}
    assert sorted(str(path) for path in (damaged / "checkpoint_2").rglob("*")) == seen


def check_loads(call: Call, name: str) -> None:
    """``load-blobs`` gives proven values of epoch 2 or refuses; asked to, it takes those of 1 and
    says so.
    """
    for options in ((), ("--epoch", "2"), ("--fallback",)):
        loaded = call("load-blobs", "sum", "--json", *options)
        check_result(loaded, 0, 5)
        if loaded.code == 5:
            assert name in loaded.err
            continue
        total = json.loads(loaded.out)["blobs"]["total"]["value"]
        if total == 101:
            assert options == ("--fallback",)
            assert "checkpoint_2" in loaded.err
        else:
            assert (total, name in GROUPS | VALUES) == (102, True)


@pytest.mark.parametrize(("name", "number"), [("_SUCCESS", 5), ("main/model/w/0", 2)])
def test_the_installed_command(jobrun: Call, damaged: Path, name: str, number: int) -> None:
    DAMAGES[number](damaged / "checkpoint_2" / name)
    for args in (("checkpoints", "verify", "sum"), ("resume", "sum", "--epoch", "2")):
        result = jobrun(*args)
        check_result(result, 5)
        assert name in result.out + result.err
    result = jobrun("resume", "sum")
    check_result(result, 0)
    assert name in result.err
    assert load_blobs(damaged, "total") == {"total": 103}
