"""Slices of large chunks read and verify the blocks that they touch, and no others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pytest
from checkpoint_helpers import frozen, save

from jobrun.checkpoint.block_checksums import BLOCK
from jobrun.checkpoint.catalog import prove
from jobrun.checkpoint.integrity import read_record
from jobrun.checkpoint.manifest import decode_manifest
from jobrun.checkpoint.reading import read_part
from jobrun.checkpoint.record import encode_record
from jobrun.checkpoint.slices import read_slice
from jobrun.errors import DamagedError
from jobrun.storage.fs import DEFAULT
from jobrun.values.boxes import Box

ROW = 4096
ROWS = 5 * BLOCK // ROW + 3
ARRAY = np.arange(ROWS * ROW // 8).reshape(ROWS, -1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save(tmp_path, {"x": Box(frozen(ARRAY), "array")})


def flip(path: Path, at: int) -> None:
    data = bytearray((path / "main/x/0.0").read_bytes())
    data[at] ^= 1
    (path / "main/x/0.0").write_bytes(data)


@pytest.mark.parametrize("index", [
    slice(0, 1), slice(255, 257), slice(250, 900, 7), slice(ROWS - 1, None), slice(1000, 3, -1),
    -1, slice(256, 512), slice(None), slice(9, 9), (slice(3, 300), slice(5, 7)), (700, -1),
], ids=str)  # fmt: skip
def test_a_slice_is_that_of_the_whole(path: Path, index: Any) -> None:
    assert np.array_equal(read_slice(path, "main", "x", index), ARRAY[index])


def test_damage_in_other_blocks_is_not_met(path: Path) -> None:
    flip(path, 2 * BLOCK + 5)
    for rows in (slice(0, 512), slice(768, ROWS)):
        assert np.array_equal(read_slice(path, "main", "x", rows), ARRAY[rows])
    for rows in (slice(511, 513), slice(767, 769), slice(None)):
        with pytest.raises(DamagedError, match=r"x/0\.0: (the checksum of its block 2|its check)"):
            read_slice(path, "main", "x", rows)


def test_a_file_that_was_cut_is_damage(path: Path) -> None:
    data = (path / "main/x/0.0").read_bytes()
    (path / "main/x/0.0").write_bytes(data[:-BLOCK])
    with pytest.raises(DamagedError, match="bytes long"):
        read_slice(path, "main", "x", slice(0, 2))


def forge(path: Path, old: bytes, new: bytes) -> None:
    """Change a manifest so that all checksums of files are right."""
    manifest = path / "manifest.main.json"
    data = manifest.read_bytes()
    assert data.count(old) == 1
    manifest.write_bytes(data.replace(old, new))
    record = read_record(DEFAULT, str(path))
    digest = f"{crc32c.crc32c(manifest.read_bytes()):08x}"
    (path / "_SUCCESS").write_bytes(encode_record(replace(record, manifests={"main": digest})))


def test_wrong_checksums_of_blocks_are_found_by_verify(path: Path) -> None:
    manifest = (path / "manifest.main.json").read_bytes()
    file = decode_manifest(manifest, "").entries[1].files[1]
    assert len(file.blocks) == 6 * 8
    forge(path, file.blocks.encode(), b"0" * 8 + file.blocks[8:].encode())
    assert np.array_equal(read_part(path, "main")["x"].value, ARRAY)  # type: ignore[union-attr]
    with pytest.raises(DamagedError, match=r"block 0 is .* but 00000000 was written"):
        prove(path.parent, read_record(DEFAULT, str(path)))


@pytest.mark.parametrize("crcs", ["", "00", 7, [], None])
def test_impossible_checksums_of_blocks_are_damage(path: Path, crcs: Any) -> None:
    fields = json.loads((path / "manifest.main.json").read_bytes())
    fields["entries"][1]["blocks"]["crc32c"] = crcs if crcs in ([], None) else [crcs]
    found = json.dumps(fields).encode()
    if crcs == "":  # none, as of a small chunk
        assert decode_manifest(found, "").entries[1].files[1].blocks == ""
        return
    with pytest.raises(DamagedError, match="not a manifest"):
        decode_manifest(found, "")


def test_blocks_of_another_length_are_ignored(path: Path) -> None:
    forge(path, b'"blocks": {"length": 1048576', b'"blocks": {"length": 524288')
    assert np.array_equal(read_slice(path, "main", "x", slice(3, 5)), ARRAY[3:5])
    flip(path, 4 * BLOCK)
    with pytest.raises(DamagedError):  # the chunk is verified as a whole
        read_slice(path, "main", "x", slice(3, 5))
