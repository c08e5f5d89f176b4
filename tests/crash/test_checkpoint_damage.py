"""Every file of the newest checkpoint, damaged in every way: never silent, never a traceback."""

from __future__ import annotations

import os
import random
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pytest
from checkpoint_helpers import SAMPLE, frozen, save
from damages import (
    Damage,
    cases,
    changed_by,
    exchange_with_another_epoch,
    exchange_with_another_run,
)

from jobrun.checkpoint.catalog import Catalog, listed, prove
from jobrun.checkpoint.loading import find
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.read_blobs import load_blobs
from jobrun.checkpoint.record import decode_record, encode_record
from jobrun.errors import DamagedError, JobrunError, NotFoundError
from jobrun.values.boxes import Box, Tree, Value

FILES = [
    "_SUCCESS",
    "manifest.main.json",
    "zarr.json",
    "main/zarr.json",
    "main/model/zarr.json",
    "main/model/w/zarr.json",
    "main/model/w/0.0",
    "main/model/steps/1/zarr.json",
    "main/step/zarr.json",
]


GROUPS = {name for name in FILES if name.endswith("zarr.json") and name.count("/") < 3} - {
    "main/step/zarr.json"
}
VALUES = {"main/model/steps/1/zarr.json", "main/step/zarr.json"}
"""Files of values that stand in the manifest too, from which they are read."""


def blobs(epoch: int) -> dict[str, Value]:
    """Blobs that differ in every epoch, the strings in length."""
    weights = Box(frozen(np.full(3, epoch, "f8")), "array")
    return {**SAMPLE, "step": Box("x" * epoch, "str"), "weights": weights}


def other_blobs(epoch: int) -> dict[str, Value]:
    """The same blobs of another run, of other values."""
    items: dict[str, Value] = {
        "w": Box(frozen(np.full((12, 4), 7 + epoch, "f4")), "array"),
        "b": Box(frozen(np.full((12, 4), 9 + epoch, "f4")), "array"),
        "steps": Tree("list", {"0": Box(8, "int"), "1": Box("six", "str")}),
    }
    return {**blobs(epoch), "model": Tree("dict", items), "step": Box("y", "str")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, and ``another``."""
    folder = tmp_path_factory.mktemp("whole")
    for epoch in range(3):
        save(folder / "run", blobs(epoch), epoch=epoch)
        save(folder / "another", other_blobs(epoch), epoch=epoch)
    return folder


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "damage"), cases(FILES, GROUPS), ids=lambda value: getattr(value, "__name__", None)
)
def test_damage_is_found(run: Path, name: str, damage: Damage) -> None:
    target = run / "checkpoint_2" / name
    before = target.read_bytes()
    damage(target)
    if not changed_by(before, target):
        pytest.skip("the file is the same there")
    seen = sorted(str(p) for p in run.rglob("*"))
    file = name.rpartition("/")[2]
    is_whole = Catalog(run).is_whole(2)

    if name in VALUES and is_whole:
        loaded = CheckpointManager(run).load()
        assert (loaded.record.id, loaded.blobs["main"]["step"]) == (2, "xx")
        assert loaded.blobs["main"]["model"]["steps"] == [1, "two"]
        with pytest.raises(DamagedError, match=name):
            prove(run, find(Catalog(run), id=2))
        return

    loaded = CheckpointManager(run).load()
    assert loaded.record.id == 1
    assert loaded.blobs["main"]["step"] == "x"
    assert [s.id for s in loaded.skipped] == [2]
    assert file in loaded.skipped[0].reason

    for choice in ({"epoch": 2}, {"id": 2}):
        with pytest.raises((DamagedError, NotFoundError)) as error:
            CheckpointManager(run).load(**choice)
        assert file in str(error.value)

    if name in GROUPS | VALUES:  # leaves are read without them
        assert load_blobs(run / "checkpoint_2", "step") == {"step": "xx"}
    else:
        with pytest.raises(JobrunError, match=file if name != "_SUCCESS" else "_SUCCESS|no run"):
            load_blobs(run / "checkpoint_2")

    # The record of another run has the same id: only what it is to prove tells that it is not ours.
    is_listed = name != "_SUCCESS" or damage is exchange_with_another_run
    assert (2 in [r.id for r in listed(run)]) == is_listed
    if is_whole:
        with pytest.raises(DamagedError, match=file):
            prove(run, find(Catalog(run), id=2))
    else:
        reported = Catalog(run).damaged() if is_listed else Catalog(run).ignored()
        assert [i.name for i in reported] == ["checkpoint_2"]
        copy = damage is exchange_with_another_epoch and name == "_SUCCESS"  # none of the run's
        with nullcontext() if copy else pytest.raises(DamagedError, match=file):
            assert load_blobs(run)["step"] == "x"
        assert load_blobs(run, fallback=True)["step"] == "x"
        # A blob that is named is that of the newest checkpoint, if all that proves it is whole.
        read = name in ("_SUCCESS", "manifest.main.json")
        assert load_blobs(run, "step", fallback=True) == {"step": "x" if read else "xx"}
        with pytest.raises(DamagedError, match=file) if read and not copy else nullcontext():
            assert load_blobs(run, "step") == {"step": "x" if copy else "xx"}
    assert sorted(str(p) for p in run.rglob("*")) == seen


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(1000 if os.environ.get("JOBRUN_LONG") else 150))
def test_a_flipped_bit_anywhere_is_found(run: Path, seed: int) -> None:
    random_bits = random.Random(seed)
    files = sorted(p for p in (run / "checkpoint_2").rglob("*") if p.is_file())
    target = random_bits.choice(files)
    data = bytearray(target.read_bytes())
    data[random_bits.randrange(len(data))] ^= 1 << random_bits.randrange(8)
    target.write_bytes(data)
    if Catalog(run).is_whole(2):
        with pytest.raises(DamagedError, match=target.name):
            prove(run, find(Catalog(run), id=2))
    loaded = CheckpointManager(run).load()
    if loaded.record.id == 2:  # the value stands in the manifest, too
        assert [p.name for p in target.parent.iterdir()] == ["zarr.json"]
        assert loaded.blobs["main"]["step"] == "xx"
    else:
        assert (loaded.record.id, [s.id for s in loaded.skipped]) == (1, [2])


def test_files_of_two_blobs_exchanged(run: Path) -> None:
    weights, biases = (run / "checkpoint_2/main/model" / n for n in "wb")
    weights.rename(run / "other")
    biases.rename(weights)
    (run / "other").rename(biases)
    loaded = CheckpointManager(run).load()
    assert loaded.record.id == 1
    assert "model/w/0.0: its checksum is" in loaded.skipped[0].reason


def test_metadata_of_another_dtype_or_shape(run: Path) -> None:
    meta = run / "checkpoint_2/main/model/w/zarr.json"
    for old, new in ((b"float32", b"float64"), (b"[12,4]", b"[48,1]"), (b"[12,4]", b"[4,12]")):
        before = meta.read_bytes()
        assert old in before
        meta.write_bytes(before.replace(old, new))
        with pytest.raises(DamagedError, match=r"w/zarr\.json"):
            load_blobs(run / "checkpoint_2", "model")
        loaded = CheckpointManager(run).load()
        assert loaded.record.id == 1
        assert "w/zarr.json" in loaded.skipped[0].reason
        meta.write_bytes(before)
    assert CheckpointManager(run).load().record.id == 2


def test_the_manifest_of_another_run(run: Path, tmp_path: Path) -> None:
    other = save(tmp_path / "other", blobs(5), epoch=2)
    shutil.copy(other / "manifest.main.json", run / "checkpoint_2")
    assert CheckpointManager(run).load().skipped[0].id == 2


def test_metadata_that_do_not_fit_a_manifest_that_is_whole(tmp_path: Path) -> None:
    """A writer's mistake, or a forgery: all checksums are right, the files tell two stories."""
    path = save(tmp_path, {"w": Box(frozen(np.arange(4, dtype="f4")), "array")})
    manifest = path / "manifest.main.json"
    honest, success = manifest.read_bytes(), (path / "_SUCCESS").read_bytes()
    forgeries: list[tuple[bytes, bytes]] = [
        (b'"<f4"', b'"<f8"'), (b'"<f4"', b'"<i4"'), (b'"<f4"', b'"zz"'), (b"[4]", b"[2]"),
        (b"[4]", b"[4, 1]"), (b'"array"', b'"scalar"'), (b'"array"', b'"float"'),
        (b'"array"', b'"nothing"'), (b'["0", 16', b'["0", 12'), (b'["0", 16', b'["1", 16'),
        (b'["0", 16', b'["../w/0", 16'), (b'"<f4"', b"null"), (b'"w"', b'"../main/w"'),
    ]  # fmt: skip
    for old, new in forgeries:
        assert old in honest
        forged = honest.replace(old, new)
        manifest.write_bytes(forged)
        record: Any = decode_record(success, "")
        record.manifests["main"] = f"{crc32c.crc32c(forged):08x}"
        (path / "_SUCCESS").write_bytes(encode_record(record))
        with pytest.raises(DamagedError):
            load_blobs(path)
