"""The manifest of one node's part: every blob and every file, with lengths and checksums.

The entries stand in the order of keys, each tree before what it holds, so that the order needs no
field of its own.  This module knows neither numpy nor zarr.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobrun.errors import DamagedError

__all__ = [
    "CHUNK_TAIL",
    "META",
    "TREES",
    "Entry",
    "File",
    "Manifest",
    "decode_manifest",
    "encode_manifest",
    "group_meta",
    "manifest_name",
]

FORMAT = 1
META = "zarr.json"
CHUNK_TAIL = 4
"""Bytes after the payload of a chunk file: its crc32c, as zarr's codec of that name has it."""

TREES = frozenset({"group", "dict", "list"})
"""Kinds of entries that hold others; ``group`` is a level that only the names of blobs make."""

_text = json.encoder.encode_basestring_ascii
"""A text as JSON: what ``json.dumps`` calls for it, without the way there."""

_OUTSIDE = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|\0", re.MULTILINE)
"""Found in lines of paths of which one does not stay within its directory, or is none."""


# There are thousands of the two classes that follow: named tuples, which are made in a third of the
# time of a frozen dataclass.


class File(NamedTuple):
    """A file of an entry: its name there, and length and crc32c of its payload.

    The payload is the whole file, except in a chunk file, which has CHUNK_TAIL bytes more.
    """

    name: str
    length: int
    crc: int

    @property
    def size(self) -> int:
        """The length of the file on disk."""
        return self.length if self.name == META else self.length + CHUNK_TAIL


class Entry(NamedTuple):
    """A blob's leaf, or a tree: ``path`` is below the node, ``""`` the node itself.

    ``dtype`` (see ``layout.describe``), ``shape`` and ``version`` are None in trees; ``dtype`` is
    None where the kind says it all.
    """

    path: str
    kind: str
    files: tuple[File, ...]
    dtype: Any = None
    shape: tuple[int, ...] | None = None
    version: int | None = None

    @property
    def is_tree(self) -> bool:
        """Whether the entry holds others."""
        return self.kind in TREES


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that one node's part of checkpoint ``id`` consists of."""

    id: int
    node: str
    entries: Sequence[Entry]

    def files(self) -> Iterator[tuple[str, File, Entry]]:
        """Every file with its path below the checkpoint, and the entry it belongs to."""
        for entry in self.entries:
            folder = f"{self.node}/{entry.path}" if entry.path else self.node
            for file in entry.files:
                yield f"{folder}/{file.name}", file, entry


def manifest_name(node: str) -> str:
    """The name of a node's manifest in the checkpoint."""
    return f"manifest.{node}.json"


def group_meta(attributes: Mapping[str, Any]) -> bytes:
    """The bytes of a zarr group's ``zarr.json``; ``attributes`` are what jobrun says about it."""
    meta = {"zarr_format": 3, "node_type": "group", "attributes": {"jobrun": dict(attributes)}}
    return json.dumps(meta, separators=(",", ":")).encode("ascii")


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of the file: JSON, one entry a line."""
    head = {"format": FORMAT, "id": manifest.id, "node": manifest.node}
    lines = ",\n".join([_line(entry) for entry in manifest.entries])
    return f'{json.dumps(head)[:-1]}, "entries": [\n{lines}\n]}}\n'.encode("ascii")


def _line(entry: Entry) -> str:
    """The JSON of an entry, put together by hand: in a third of the time of an encoder's."""
    files = ", ".join([f'[{_text(f.name)}, {f.length}, "{f.crc:08x}"]' for f in entry.files])
    line = f'{{"path": {_text(entry.path)}, "kind": {_text(entry.kind)}, '
    if entry.shape is not None:
        dtype = entry.dtype
        described = _text(dtype) if isinstance(dtype, str) else json.dumps(dtype)
        version = "null" if entry.version is None else entry.version
        line += f'"dtype": {described}, "shape": {[*entry.shape]}, "version": {version}, '
    return f'{line}"files": [{files}]}}'


def decode_manifest(data: bytes, where: str, names: Iterable[str] | None = None) -> Manifest:
    """The manifest in the bytes of its file; ``where`` is its path, for errors.

    With ``names``, only the entries of these paths and of what they hold need be in it: one blob of
    thousands costs no more than one of a few.
    Raises DamagedError when it is none, or names files outside of its node's directory.
    """
    try:
        some = None if names is None else _lines_of(data, names)
        fields = json.loads(data if some is None else some)
        if fields["format"] != FORMAT:
            raise DamagedError(
                f"it is of format {fields['format']}; this jobrun reads format {FORMAT}",
                where=where,
            )
        entries = [_entry(e) for e in fields["entries"]]
        _check_names(entries)
        return Manifest(fields["id"], fields["node"], entries)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise DamagedError(f"it is not a manifest: {error!r}", where=where) from error


def _lines_of(data: bytes, names: Iterable[str]) -> bytes | None:
    """A manifest with only the lines of some paths and of what they hold, in their order.

    None if one of them is not found.  No line but an entry's begins like one: JSON has no line ends
    within texts.
    """
    lines: dict[int, bytes] = {}
    for name in names:
        path = f'{{"path": {json.dumps(name)}'.encode("ascii")
        start = data.find(b"\n" + path + b",") + 1
        if start == 0 or not name:
            return None
        below = path[:-1] + b"/"
        while True:
            end = data.index(b"\n", start)
            lines[start] = data[start:end].removesuffix(b",")
            if not data.startswith(below, end + 1):
                break
            start = end + 1
    head = data[: data.index(b"\n")]
    return head + b",".join(lines[start] for start in sorted(lines)) + b"]}"


def _entry(fields: dict[str, Any]) -> Entry:
    path, kind = fields["path"], fields["kind"]
    files = tuple([File(name, length, int(crc, 16)) for name, length, crc in fields["files"]])
    if not files or files[0].name != META:
        raise ValueError(f"{path!r} has no {META}")
    if kind in TREES:
        return Entry(path, kind, files)
    shape = tuple(fields["shape"])
    return Entry(path, kind, files, fields["dtype"], shape, fields["version"])


def _check_names(entries: Sequence[Entry]) -> None:
    """Raise ValueError if a path or file is not below the directory it belongs to.

    All are looked at together: one by one would take as long as all else.
    """
    paths = [entry.path for entry in entries if entry.path]
    files = [file for entry in entries for file in entry.files]
    names = [file.name for file in files]
    if paths and _OUTSIDE.search("\n".join(paths)):
        raise ValueError("a path leads out of its node")
    text = "\n".join(names)
    if names and (_OUTSIDE.search(text) or "/" in text):
        raise ValueError("a file is not in the directory of its entry")
    if any(file.length < 0 for file in files):
        raise ValueError("a file has less than no bytes")
