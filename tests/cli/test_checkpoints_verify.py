"""``jobrun checkpoints verify``."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun.checkpoint.manager import CheckpointManager

Call = Callable[..., Any]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)


def files_once(run: Path) -> int:
    """The files of manifests in checkpoints, an inode once."""
    files = (p for id in range(4) for p in run.glob(f"checkpoint_{id}/main/**/*") if p.is_file())
    return len({p.stat().st_ino for p in files})


def test_a_whole_run(call: Call, saved: Path, normalised: Call) -> None:
    result = call("checkpoints", "verify")
    assert (result.code, result.err) == (0, "")
    assert normalised(result.out) == (
        "runs/m/checkpoint_0 (epoch 0): whole, 12 files, SIZE\n"
        "runs/m/checkpoint_1 (epoch 1): whole, 12 files, SIZE\n"
        "runs/m/checkpoint_2 (epoch 2): whole, 12 files, SIZE\n"
        "runs/m/checkpoint_3 (epoch 3): whole, 12 files, SIZE\n"
        f"4 checkpoints, all whole ({files_once(saved)} files read, SIZE)\n"
    )
    quiet = call("-q", "checkpoints", "verify", "m")
    assert (quiet.code, quiet.out) == (0, "")


def test_damage_is_named_with_the_blob_and_who_shares_it(
    call: Call, saved: Path, normalised: Call
) -> None:
    flip(saved / "checkpoint_1/main/data/0")  # 3 has the same file
    (saved / "checkpoint_2/main/model/w/0").unlink()
    (saved / "checkpoint_7").mkdir()
    shutil.copytree(saved / "checkpoint_0", saved / "checkpoint_8")
    result = call("checkpoints", "verify", "m")
    assert (result.code, result.err) == (5, "")
    text = re.sub(r"[0-9a-f]{8}", "SUM", normalised(result.out))
    assert text == (
        "runs/m/checkpoint_0 (epoch 0): whole, 12 files, SIZE\n"
        "runs/m/checkpoint_1 (epoch 1): DAMAGED\n"
        "  main/data/0 (blob data): its checksum is SUM, but SUM was written\n"
        "runs/m/checkpoint_2 (epoch 2): DAMAGED\n"
        "  main/model/w/0 (blob model/w): it is missing\n"
        "runs/m/checkpoint_3 (epoch 3): DAMAGED\n"
        "  main/data/0 (blob data): its checksum is SUM, but SUM was written\n"
        "main/data/0 is one file of checkpoint_1 and checkpoint_3\n"
        "checkpoint_7 is not a checkpoint: _SUCCESS: it is missing\n"
        "checkpoint_8 is not a checkpoint: it is a copy of checkpoint 0\n"
        "3 of 4 checkpoints damaged: checkpoint_1, checkpoint_2, checkpoint_3 "
        f"({files_once(saved)} files read, SIZE)\n"
    )
    quiet = call("checkpoints", "verify", "m", "-q")
    assert quiet.code == 5
    assert "whole" not in quiet.out
    assert "main/model/w/0" in quiet.out


def test_a_file_that_many_blobs_share_is_named_once(call: Call, folder: Path) -> None:
    with CheckpointManager(folder / "runs/many") as manager:
        manager.save(0, {"main": {f"x{i}": np.arange(3.0) + i for i in range(40)}})
    flip(folder / "runs/many/checkpoint_0/main/x7/zarr.json")
    result = call("checkpoints", "verify", "runs/many/checkpoint_0")
    assert result.code == 5
    assert re.sub(r"[0-9a-f]{8}|[0-9.]+ kB", "*", result.out) == (
        "runs/many/checkpoint_0 (epoch 0): DAMAGED\n"
        "  main/x0/zarr.json (blob x0): its checksum is *, but * was written; "
        "it is also that of 39 other blobs\n"
        "1 of 1 checkpoint damaged: checkpoint_0 (42 files read, *)\n"
    )
    found = json.loads(call("checkpoints", "verify", "runs/many/checkpoint_0", "--json").out)
    assert len(found["checkpoints"][0]["faults"]) == 40
    assert found["files_read"] == 42


def test_a_file_that_many_blobs_share_and_that_is_cut_is_named_once(
    call: Call, folder: Path
) -> None:
    with CheckpointManager(folder / "runs/many") as manager:
        manager.save(0, {"main": {f"x{i}": np.arange(3.0) + i for i in range(40)}})
    os.truncate(folder / "runs/many/checkpoint_0/main/x7/zarr.json", 9)
    result = call("checkpoints", "verify", "runs/many/checkpoint_0")
    assert re.sub(r"\d{3}", "*", result.out.splitlines()[1]) == (
        "  main/x0/zarr.json (blob x0): it is 9 bytes long, but * were written; "
        "it is also that of 39 other blobs"
    )


def test_as_json(call: Call, saved: Path) -> None:
    flip(saved / "checkpoint_1/main/data/0")
    result = call("checkpoints", "verify", "--json")
    found = json.loads(result.out)
    assert (result.code, found["exit_code"]) == (5, 5)
    assert [c["whole"] for c in found["checkpoints"]] == [True, False, True, False]
    (fault,) = found["checkpoints"][1]["faults"]
    assert (fault["file"], fault["blob"]) == ("main/data/0", "data")
    assert fault["shared_with"] == ["checkpoint_3"]
    assert found["files_read"] == files_once(saved)


def test_one_checkpoint(call: Call, saved: Path, folder: Path) -> None:
    flip(saved / "checkpoint_1/main/data/0")
    assert call("checkpoints", "verify", "runs/m/checkpoint_0").code == 0
    assert call("checkpoints", "verify", "runs/m/checkpoint_3/").code == 5
    shutil.copytree(saved / "checkpoint_0", folder / "backup")
    assert call("checkpoints", "verify", "backup").out.startswith("backup (epoch 0): whole")


@pytest.mark.parametrize("harm", ["torn", "gone"])
def test_a_checkpoint_without_its_record_is_damaged(call: Call, saved: Path, harm: str) -> None:
    success = saved / "checkpoint_3/_SUCCESS"
    if harm == "torn":
        success.write_bytes(success.read_bytes()[:-20])
    else:
        success.unlink()
    for argument in ("m", "runs/m/checkpoint_3"):
        result = call("checkpoints", "verify", argument)
        assert result.code == 5
        assert "runs/m/checkpoint_3: DAMAGED\n  _SUCCESS: it" in result.out


def test_nothing_there(call: Call, folder: Path) -> None:
    assert call("checkpoints", "verify").code == 5
    assert call("checkpoints", "verify", "runs/none").code == 5
    (folder / "runs/x").mkdir(parents=True)
    (folder / "runs/x/run.json").write_text("{}")
    result = call("checkpoints", "verify", "x")
    assert (result.code, result.out) == (0, "no checkpoints (0 files read, 0 B)\n")
