from __future__ import annotations

import json
from typing import Any

import pytest

from jobrun.checkpoint.manifest import (
    Entry,
    File,
    Manifest,
    decode_manifest,
    encode_manifest,
    manifest_name,
)
from jobrun.errors import DamagedError

META = File("zarr.json", 80, 0xDEADBEEF)
MANIFEST = Manifest(
    3,
    "main",
    [
        Entry("", "group", (META,)),
        Entry("t", "dict", (META,)),
        Entry("t/x", "array", (META, File("0.0", 24, 1)), [["a", "<f4", [2]]], (3, 1), 2),
        Entry("n", "int", (META,), None, (), 3),
    ],
)


def test_a_manifest_comes_back() -> None:
    assert decode_manifest(encode_manifest(MANIFEST), "") == MANIFEST
    assert manifest_name("main") == "manifest.main.json"


def test_files_have_their_paths_and_lengths_on_disk() -> None:
    assert [(path, file.size) for path, file, _ in MANIFEST.files()] == [
        ("main/zarr.json", 80),
        ("main/t/zarr.json", 80),
        ("main/t/x/zarr.json", 80),
        ("main/t/x/0.0", 28),
        ("main/n/zarr.json", 80),
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("path", "../main"),
        ("path", "/etc"),
        ("path", "a//b"),
        ("files", []),
        ("files", [["0.0", 3, "00"]]),
        ("files", [["zarr.json", 3, "xyz"]]),
        ("files", [["zarr.json", 3, "00"], ["../0", 3, "00"]]),
        ("files", [["zarr.json", -3, "00"]]),
        ("kind", None),
        ("shape", None),
    ],
)
def test_what_is_no_manifest_is_damage(key: str, value: Any) -> None:
    fields = json.loads(encode_manifest(MANIFEST))
    fields["entries"][2][key] = value
    if (key, value) == ("kind", None):
        del fields["entries"][2]["kind"]
    with pytest.raises(DamagedError, match="it is not a manifest"):
        decode_manifest(json.dumps(fields).encode(), "manifest.main.json")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b'{"format": 1}'])
def test_other_files_are_no_manifests(data: bytes) -> None:
    with pytest.raises(DamagedError):
        decode_manifest(data, "")


def test_a_newer_format_is_refused_by_name() -> None:
    data = encode_manifest(MANIFEST).replace(b'"format": 1', b'"format": 2')
    with pytest.raises(DamagedError, match="format 2; this jobrun reads format 1"):
        decode_manifest(data, "")
