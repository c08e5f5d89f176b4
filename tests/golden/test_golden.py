"""Checkpoints of every format there ever was are read by this version."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from jobrun.checkpoint.catalog import Catalog, prove
from jobrun.checkpoint.loading import find, newest
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.read_blobs import load_blobs
from jobrun.checkpoint.reading import read_part
from jobrun.checkpoint.record import FORMAT
from jobrun.checkpoint.zarr_view import open_checkpoint
from jobrun.values.boxes import Tree

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "checkpoint"))
from checkpoint_helpers import same, same_blobs  # noqa: E402


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("golden_make", HERE / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make = load_script()
RUN = HERE / "format-1"
PATH = RUN / "checkpoint_7"


@pytest.mark.parametrize("node", ["main", "other"])
def test_every_blob_is_what_was_written(node: str) -> None:
    wanted, found = make.PARTS[node](), read_part(PATH, node)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert same(found[name], value), name


def test_the_record_is_what_was_written() -> None:
    found = find(Catalog(RUN), id=7)
    wanted = make.record(found.manifests, found.root, found.bytes, found.files)
    assert found.metrics == {}, "it lies inside an epoch"
    for name in ("position", "stops", "decision", "versions", "job", "digest", "extra", "time"):
        assert getattr(found, name) == getattr(wanted, name)
    assert (found.epoch, found.run_seconds, found.nodes) == (3, 12.5, ("main", "other"))


def test_it_is_listed_and_proven_and_loaded() -> None:
    latest = newest(Catalog(RUN))
    assert latest is not None
    prove(RUN, latest)
    loaded = CheckpointManager(RUN).load()
    assert same_blobs(loaded.parts["other"], make.other_blobs())
    assert load_blobs(RUN, "other:model")["other:model"]["a"] == [1, {}]


def test_zarr_reads_every_array() -> None:
    group = open_checkpoint(PATH)
    count = 0
    for node, blobs in make.PARTS.items():
        for name, value in blobs().items():
            if not isinstance(value, Tree):
                group[f"{node}/{name}"][...]
                count += 1
    assert count > 70
    assert group["main/chunks/padded"][...].tolist() == list(range(19))
    assert group["main/big/f4"][...].tolist() == [1.5, -2.5]
    assert group["other/text"][()] == "gr\u00fc\u00dfe\0\n\U0001f600"


@pytest.mark.skipif(FORMAT != 1, reason="this version writes another format")
def test_this_version_still_writes_the_same_bytes(tmp_path: Path) -> None:
    path = make.make(tmp_path)
    files = sorted(p.relative_to(PATH) for p in PATH.rglob("*") if p.is_file())
    assert files == sorted(p.relative_to(path) for p in path.rglob("*") if p.is_file())
    for name in files:
        if "/" in str(name) or name.name == "zarr.json":
            assert (path / name).read_bytes() == (PATH / name).read_bytes(), name
        elif name.suffix == ".json":  # manifests may say more, in fields that old readers ignore
            assert older_fields(path / name) == older_fields(PATH / name)


def older_fields(manifest: Path) -> Any:
    """A manifest without the fields of entries that were added to the format."""
    fields = json.loads(manifest.read_bytes())
    for entry in fields["entries"]:
        for added in ("value", "blocks", "digests"):
            entry.pop(added, None)
    return fields


# The compressed one.

COMPRESSED = HERE / "format-1-compressed" / "checkpoint_7"


def test_compressed_blobs_are_what_was_written() -> None:
    wanted, found = make.compressed_blobs(), read_part(COMPRESSED, "main")
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert same(found[name], value), name
    prove(COMPRESSED.parent, find(Catalog(COMPRESSED.parent), id=7))


def test_the_record_of_the_compressed_one_has_metrics() -> None:
    found = find(Catalog(COMPRESSED.parent), id=7)
    assert np.isnan(found.metrics["loss"])
    assert {**found.metrics, "loss": 0} == {**make.METRICS, "loss": 0}
    assert (found.epoch, found.at_boundary) == (3, True)


def test_zarr_reads_compressed_blobs() -> None:
    group = open_checkpoint(COMPRESSED)
    for name in ("floats", "padded", "big", "bytes", "times", "struct", "ml", "point", "text"):
        plain = np.asarray(group[f"main/plain/{name}"][...])
        for codec in ("zstd", "lz4"):
            found = np.asarray(group[f"main/{codec}/{name}"][...])
            assert found.dtype == plain.dtype
            assert found.tobytes() == plain.tobytes(), (codec, name)


@pytest.mark.skipif(FORMAT != 1, reason="this version writes another format")
def test_this_version_still_compresses_in_the_same_way(tmp_path: Path) -> None:
    path = make.make_compressed(tmp_path)
    metadata = sorted(p.relative_to(COMPRESSED) for p in COMPRESSED.rglob("zarr.json"))
    assert metadata == sorted(p.relative_to(path) for p in path.rglob("zarr.json"))
    for name in metadata:
        assert (path / name).read_bytes() == (COMPRESSED / name).read_bytes(), name
    assert same_blobs(read_part(path, "main"), make.compressed_blobs())
