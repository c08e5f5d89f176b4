"""Verification: every byte is read, everything damaged is named, shared files are read once."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import crc32c
import numpy as np
import pytest
from checkpoint_helpers import save

from jobrun.checkpoint.integrity import read_record
from jobrun.checkpoint.record import encode_record
from jobrun.checkpoint.scrub import Survey, Verdict, sharing
from jobrun.storage.fs import DEFAULT
from jobrun.values.adoption import adopt


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three checkpoints of the same values: 0 and 2 share their files."""
    blobs = {
        "model": adopt([{"w": np.arange(12.0), "b": np.arange(12.0, 24)}]),
        "total": adopt([1]),
    }
    for epoch in range(3):
        save(tmp_path, blobs, epoch=epoch)
    inodes = [(tmp_path / f"checkpoint_{id}/main/model/w/0").stat().st_ino for id in range(3)]
    assert inodes[0] == inodes[2] != inodes[1]
    return tmp_path


def flip(path: Path) -> None:
    """Change one byte."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def verify(run: Path, ids: tuple[int, ...] = (0, 1, 2)) -> tuple[list[Verdict], Survey]:
    survey = Survey()
    return list(survey.verify(run / f"checkpoint_{id}" for id in ids)), survey


def test_whole_checkpoints(run: Path) -> None:
    verdicts, survey = verify(run)
    assert [(v.whole, v.record.epoch) for v in verdicts if v.record] == [
        (True, 0),
        (True, 1),
        (True, 2),
    ]
    files = [p.stat() for p in run.glob("checkpoint_*/main/**/*") if p.is_file()]
    inodes = {s.st_ino: s.st_size for s in files}
    assert len(inodes) < len(files)
    assert (survey.files, survey.bytes) == (len(inodes), sum(inodes.values()))


def test_every_file_is_looked_at(run: Path) -> None:
    """Whichever file is changed, emptied, deleted or replaced: exactly that one is named."""
    place = run / "checkpoint_1"
    kept = run / "kept"
    shutil.copytree(place, kept)
    for file in sorted(p.relative_to(place) for p in place.rglob("*") if p.is_file()):
        for harm in ("flip", "empty", "delete", "directory"):
            path = place / file
            if harm == "flip":
                flip(path)
            elif harm == "empty":
                path.write_bytes(b"")
            else:
                path.unlink()
                if harm == "directory":
                    path.mkdir()
            verdict = verify(run)[0][1]
            assert [f.file for f in verdict.faults] == [str(file)], harm
            assert all(f.reason for f in verdict.faults)
            shutil.rmtree(place)
            shutil.copytree(kept, place)
    assert verify(run)[0][1].whole


def test_faults_name_the_blob(run: Path) -> None:
    flip(run / "checkpoint_1/main/model/w/0")
    flip(run / "checkpoint_1/main/total/zarr.json")
    flip(run / "checkpoint_1/main/zarr.json")
    faults = verify(run)[0][1].faults
    assert {f.file: f.blob for f in faults} == {
        "main/zarr.json": "",
        "main/model/w/0": "model/w",
        "main/total/zarr.json": "total",
    }


def test_a_shared_file_is_named_in_each(run: Path) -> None:
    flip(run / "checkpoint_2/main/model/w/0")
    verdicts, _ = verify(run)
    assert [v.whole for v in verdicts] == [False, True, False]
    assert [[f.file for f in v.faults] for v in verdicts] == [
        ["main/model/w/0"],
        [],
        ["main/model/w/0"],
    ]
    shared = sharing(verdicts)
    assert list(shared.values()) == [["checkpoint_0", "checkpoint_2"]]


def test_a_file_is_judged_by_what_each_checkpoint_wrote_down_of_it(run: Path) -> None:
    chunk = run / "checkpoint_1/main/model/w/0"
    chunk.unlink()
    os.link(run / "checkpoint_0/main/model/b/0", chunk)  # same length, other values
    verdicts, _ = verify(run)
    assert [v.whole for v in verdicts] == [True, False, True]
    assert sharing(verdicts) == {}


def test_a_copy_under_another_number(run: Path) -> None:
    shutil.copytree(run / "checkpoint_1", run / "checkpoint_7")
    shutil.copytree(run / "checkpoint_1", run / "backup")
    (verdict,) = verify(run, (7,))[0]
    assert [(f.file, f.reason) for f in verdict.faults] == [
        ("_SUCCESS", "it is a copy of checkpoint 1")
    ]
    (backup,) = Survey().verify([run / "backup"])
    assert backup.whole


def test_one_that_is_removed_meanwhile_is_left_out(run: Path) -> None:
    survey = Survey()
    found = survey.verify(run / f"checkpoint_{id}" for id in range(3))
    assert next(found).whole
    shutil.rmtree(run / "checkpoint_1")
    assert [v.path.name for v in found] == ["checkpoint_2"]


def test_a_value_that_differs_between_manifest_and_file(run: Path) -> None:
    """A writer's mistake: all checksums are right."""
    path = run / "checkpoint_2"
    manifest = path / "manifest.main.json"
    data = manifest.read_bytes()
    assert data.count(b'"value": 1,') == 1
    manifest.write_bytes(data.replace(b'"value": 1,', b'"value": 2,'))
    record = read_record(DEFAULT, str(path))
    digest = f"{crc32c.crc32c(manifest.read_bytes()):08x}"
    (path / "_SUCCESS").write_bytes(encode_record(replace(record, manifests={"main": digest})))
    (fault,) = verify(run)[0][2].faults
    assert (fault.file, fault.blob) == ("main/total/zarr.json", "total")
    assert fault.reason == "it holds the value 1, but the manifest 2"
