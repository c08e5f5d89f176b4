from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
ZIPPED = File("0", 9, 4, raw=File("0", 5 << 19, 7, "0" * 24, "ab" * 16))
MANIFEST = Manifest(
    3,
    "main",
    [
        Entry("", "group", (META,)),
        Entry("t", "dict", (META,)),
        Entry("t/x", "array", (META, File("0.0", 24, 1)), [["a", "<f4", [2]]], (3, 1), 2),
        Entry("y", "array", (META, File("0", 5 << 19, 7, "0" * 24, "ab" * 16)), "<f4", (8,), 3),
        Entry("z", "array", (META, ZIPPED), "<f4", (8,), 3, codec={"name": "zstd"}),
        Entry("n", "int", (META,), None, (), 3),
        Entry("f", "float", (META,), None, (), 3, value=-0.1),
        Entry("c", "scalar", (META,), "<c16", (), 3, value=["NaN", 1.5]),
        Entry("s", "str", (META,), None, (), 3, value='a "b"\n\udc80ä'),
        Entry("e", "none", (META,), None, (), 3, value=False),
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
        ("main/y/zarr.json", 80),
        ("main/y/0", (5 << 19) + 4),
        ("main/z/zarr.json", 80),
        ("main/z/0", 13),
        *((f"main/{name}/zarr.json", 80) for name in "nfcse"),
    ]
    sizes = {f"/run/c/{path}": file.size for path, file, _ in MANIFEST.files()}
    assert MANIFEST.sizes("/run/c") == sizes


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
        ("value", 1),
        ("value", []),
    ],
)
def test_what_is_no_manifest_is_damage(key: str, value: Any) -> None:
    fields = json.loads(encode_manifest(MANIFEST))
    fields["entries"][2][key] = value
    if (key, value) == ("kind", None):
        del fields["entries"][2]["kind"]
    with pytest.raises(DamagedError, match="it is not a manifest"):
        decode_manifest(json.dumps(fields).encode(), "manifest.main.json")


@pytest.mark.parametrize("digests", [
    None, [], {}, {"algorithm": "xxh3_128"}, {"algorithm": "xxh3_128", "chunks": [3]},
    {"algorithm": "xxh3_128", "chunks": []}, {"algorithm": "xxh3_128", "chunks": ["", ""]},
], ids=str)  # fmt: skip
def test_impossible_digests_are_damage(digests: Any) -> None:
    fields = json.loads(encode_manifest(MANIFEST))
    fields["entries"][2]["digests"] = digests
    with pytest.raises(DamagedError, match="it is not a manifest"):
        decode_manifest(json.dumps(fields).encode(), "")


@pytest.mark.parametrize("raw", [
    None, [], {}, {"codec": "zstd", "length": 4, "crc32c": ["0"]},
    {"codec": {}, "length": -4, "crc32c": ["0"]}, {"codec": {}, "length": 4.5, "crc32c": ["0"]},
    {"codec": {}, "length": 4, "crc32c": []}, {"codec": {}, "length": 4, "crc32c": ["xyz"]},
    {"codec": {}, "length": 4, "crc32c": ["0"], "digests": 3},
], ids=str)  # fmt: skip
def test_impossible_bytes_before_compression_are_damage(raw: Any) -> None:
    fields = json.loads(encode_manifest(MANIFEST))
    fields["entries"][4]["raw"] = raw
    with pytest.raises(DamagedError, match="it is not a manifest"):
        decode_manifest(json.dumps(fields).encode(), "")


def test_digests_of_another_algorithm_are_ignored() -> None:
    data = encode_manifest(MANIFEST).replace(b"xxh3_128", b"xxh4_128")
    assert decode_manifest(data, "").entries[3].files[1].digest == ""
    assert decode_manifest(data, "").entries[4].files[1].content.digest == ""


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b'{"format": 1}'])
def test_other_files_are_no_manifests(data: bytes) -> None:
    with pytest.raises(DamagedError):
        decode_manifest(data, "")


def test_a_newer_format_is_refused_by_name() -> None:
    data = encode_manifest(MANIFEST).replace(b'"format": 1', b'"format": 2')
    with pytest.raises(DamagedError, match="format 2; this jobrun reads format 1"):
        decode_manifest(data, "")


# Only the lines that are wanted.


def tree_of(*paths: str) -> Manifest:
    """A manifest with these paths, which stand depth first."""
    trees = {p.rpartition("/")[0] for p in paths}
    entries = [
        Entry(p, "dict", (META,)) if p in trees else Entry(p, "int", (META,), None, (), 3)
        for p in paths
    ]
    return Manifest(3, "main", [Entry("", "group", (META,)), *entries])


LOOK_ALIKES = tree_of(
    "a", "a/b", "a/b/c", "a/b/d", "a/e", "a-b", "a.b", "ab", "ab/c", "b", "b/a", "b/a/b", "c", "ba"
)  # fmt: skip


@given(st.lists(st.sampled_from([e.path for e in LOOK_ALIKES.entries if e.path]), max_size=5))
@settings(deadline=None, max_examples=100)
def test_some_names_give_their_entries_and_all_below(names: list[str]) -> None:
    found = decode_manifest(encode_manifest(LOOK_ALIKES), "", names)
    assert (found.id, found.node) == (3, "main")
    assert found.entries == [
        e for e in LOOK_ALIKES.entries if any(f"{e.path}/".startswith(f"{n}/") for n in names)
    ]


@pytest.mark.parametrize("names", [["x"], ["a", "x"], ["path"], ["a/"], ["zarr.json"], [""]])
def test_a_name_that_is_not_there_gives_all(names: list[str]) -> None:
    found = decode_manifest(encode_manifest(LOOK_ALIKES), "", names)
    assert {e.path for e in found.entries} >= {"a", "ba"}


def test_other_spacing_is_read_too() -> None:
    data = json.dumps(json.loads(encode_manifest(LOOK_ALIKES)), indent=1).encode()
    assert decode_manifest(data, "", ["a/b"]) == LOOK_ALIKES


def test_only_the_lines_that_are_wanted_are_decoded() -> None:
    data = encode_manifest(LOOK_ALIKES).replace(b'"path": "c", ', b'"path": "c", oops')
    assert [e.path for e in decode_manifest(data, "", ["ab"]).entries] == ["ab", "ab/c"]
    with pytest.raises(DamagedError):
        decode_manifest(data, "")
