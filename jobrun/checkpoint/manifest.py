"""The manifest of one node's part: every blob and every file, with lengths and checksums.

The entries are in the order of keys, each tree before what it holds, so that the order needs no
field of its own.  Neither numpy nor zarr is imported here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, NamedTuple

from jobrun.checkpoint.block_checksums import BLOCK, DIGITS
from jobrun.checkpoint.chunk_digest import ALGORITHM
from jobrun.core.gc_tuning import paused
from jobrun.core.json_forms import misfit, text, whole
from jobrun.core.tree_keys import decode_key
from jobrun.errors import DamagedError, SaveError
from jobrun.storage.bounded_json import (
    MAX_DEPTH,
    JsonLimitError,
    check_depth,
    check_length,
    parse_json,
)
from jobrun.values.adapters.base import Note

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
"""Bytes after the payload of a chunk file: its crc32c, as written by zarr's codec of that name."""

TREES = frozenset({"group", "dict", "list"})
"""Kinds of entries that hold others; ``group`` is a level that exists only in names of blobs."""

_new = tuple.__new__  # of all fields

_text = json.encoder.encode_basestring_ascii
"""Return a string as JSON: the function that ``json.dumps`` calls, without the overhead."""

_KINDS = frozenset({*TREES, "array", "scalar", "bool", "int", "float", "str", "none"})
_LARGEST = 1 << 63
_MOST_DIMENSIONS = 64
_LONGEST_NAME = 200
_MOST_LEVELS = 200
"""Levels of a path: loading is recursive."""

_LARGE = 1 << 16
"""Bytes of a manifest from which on garbage collection is paused while it is decoded."""

_HEAD = {"id": whole, "node": text}
_DTYPES = frozenset({str, list, type(None)})
_STRANGE = re.compile(r"[^\x21-\x7e\n]")
"""Matches characters that no name of a blob or chunk has: they are printable ASCII."""

_OUTSIDE = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|\0", re.MULTILINE)
"""Matches lines of paths of which one is empty or leads out of its directory."""


# There are thousands of the two classes that follow: named tuples are made in a third of the time
# of a frozen dataclass, and by ``_new`` with all fields in half of that.


class File(NamedTuple):
    """A file of an entry: its name, and the length and crc32c of its payload.

    The payload is the whole file, except for a chunk file, which has CHUNK_TAIL bytes more.
    ``blocks`` are the checksums of the blocks of a large payload, see ``BlockChecksums.digits``,
    and ``digest`` is that of ``ChunkDigest``; both are empty if there are none.  ``raw`` describes
    the bytes of a compressed chunk before compression, as if they were a file of its name.
    """

    name: str
    length: int
    crc: int
    blocks: str = ""
    digest: str = ""
    raw: File | None = None

    @property
    def content(self) -> File:
        """The bytes before compression as a file, or this file if they are unknown."""
        return self.raw or self

    @property
    def size(self) -> int:
        """The length of the file on disk."""
        return self.length if self.name == META else self.length + CHUNK_TAIL


class Entry(NamedTuple):
    """A blob's leaf, or a tree: ``path`` is below the node, ``""`` the node itself.

    ``dtype`` (see ``dtypes.describe``), ``shape`` and ``version`` are None in trees; ``dtype`` is
    None if the kind implies it.  ``same_as`` is the path of an earlier entry that is the same array
    or tree (tied: they change together); the entry has files of its own all the same.  ``key`` is
    the JSON of its key in the tree that holds it, if that is not the last level of ``path``.
    ``note`` names the adapter of the value, of which this is the plain form.  ``value`` is the
    ``fill_value`` of the ``zarr.json`` of a leaf without chunks; None if it stands in that file
    alone.  ``codec`` is the codec that compressed the chunks, as it stands there, if they have
    ``raw``.
    """

    path: str
    kind: str
    files: tuple[File, ...]
    dtype: Any = None
    shape: tuple[int, ...] | None = None
    version: int | None = None
    same_as: str | None = None
    key: str | None = None
    note: Note | None = None
    value: Any = None
    codec: dict[str, Any] | None = None

    @property
    def is_tree(self) -> bool:
        """Whether the entry holds others."""
        return self.kind in TREES


@dataclass(frozen=True, slots=True)
class Manifest:
    """The entries of one node's part of checkpoint ``id``."""

    id: int
    node: str
    entries: Sequence[Entry]

    def files(self) -> Iterator[tuple[str, File, Entry]]:
        """Yield every file with its path below the checkpoint, and the entry it belongs to."""
        for entry in self.entries:
            folder = f"{self.node}/{entry.path}" if entry.path else self.node
            for file in entry.files:
                yield f"{folder}/{file.name}", file, entry

    def sizes(self, checkpoint: str) -> dict[str, int]:
        """Return the length of every file by its path; the checkpoint is at ``checkpoint``.

        Not of what ``files`` yields: that would be thousands of objects for the garbage collector.
        """
        found = {}
        for entry in self.entries:
            folder = f"{checkpoint}/{self.node}{'/' * bool(entry.path)}{entry.path}"
            for file in entry.files:
                found[f"{folder}/{file.name}"] = file.size
        return found


def manifest_name(node: str) -> str:
    """Return the name of a node's manifest in the checkpoint."""
    return f"manifest.{node}.json"


def group_meta(attributes: Mapping[str, Any]) -> bytes:
    """Return the bytes of a zarr group's ``zarr.json``; ``attributes`` are jobrun's own."""
    meta = {"zarr_format": 3, "node_type": "group", "attributes": {"jobrun": dict(attributes)}}
    return json.dumps(meta, separators=(",", ":")).encode("ascii")


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of the file: JSON, one entry a line.

    Raises SaveError if it would be too long to be read back.
    """
    head = {"format": FORMAT, "id": manifest.id, "node": manifest.node}
    lines = ",\n".join([_line(entry) for entry in manifest.entries])
    data = f'{json.dumps(head)[:-1]}, "entries": [\n{lines}\n]}}\n'.encode("ascii")
    try:
        check_length(data)
    except JsonLimitError as error:
        raise SaveError(
            f"checkpoint {manifest.id} was not saved: of the manifest of node {manifest.node!r}, "
            f"{error}",
            hint="keep many small values in one array",
        ) from None
    return data


def _line(entry: Entry) -> str:
    """Return the JSON of an entry, formatted by hand: in a third of the time of an encoder."""
    files = ", ".join([f'[{_text(f.name)}, {f.length}, "{f.crc:08x}"]' for f in entry.files])
    line = f'{{"path": {_text(entry.path)}, "kind": {_text(entry.kind)}, '
    if entry.shape is not None:
        dtype = entry.dtype
        described = _text(dtype) if isinstance(dtype, str) else json.dumps(dtype)
        version = "null" if entry.version is None else entry.version
        line += f'"dtype": {described}, "shape": {[*entry.shape]}, "version": {version}, '
    if entry.same_as is not None:
        line += f'"same_as": {_text(entry.same_as)}, '
    if entry.key is not None:
        line += f'"key": {entry.key}, '
    if len(entry.files) > 1:
        line += _sums(entry.files[1:])
    raw = [f.raw for f in entry.files if f.raw is not None]
    if entry.codec is not None and len(raw) == len(entry.files) - 1:
        crcs = ", ".join([f'"{f.crc:08x}"' for f in raw])
        line += f'"raw": {{"codec": {json.dumps(entry.codec)}, "length": {raw[0].length}, '
        line += f'{_sums(raw)}"crc32c": [{crcs}]}}, '
    if entry.value is not None:
        line += f'"value": {_json(entry.value)}, '
    if entry.note is not None:
        line += f'"adapter": {json.dumps(asdict(entry.note))}, '
    return f'{line}"files": [{files}]}}'


def _sums(chunks: Sequence[File]) -> str:
    """Return the fields for the blocks and digests of chunks, where there are any."""
    fields = ""
    if any(f.blocks for f in chunks):
        crcs = ", ".join([f'"{f.blocks}"' for f in chunks])
        fields += f'"blocks": {{"length": {BLOCK}, "crc32c": [{crcs}]}}, '
    if any(f.digest for f in chunks):
        digests = ", ".join([f'"{f.digest}"' for f in chunks])
        fields += f'"digests": {{"algorithm": "{ALGORITHM}", "chunks": [{digests}]}}, '
    return fields


def _json(value: Any) -> str:
    if type(value) is float or type(value) is int:
        return repr(value)
    return _text(value) if type(value) is str else json.dumps(value)


def decode_manifest(data: bytes, where: str, names: Iterable[str] | None = None) -> Manifest:
    """Return the manifest in the bytes of its file; ``where`` is its path, for errors.

    With ``names``, only the entries of these paths and of what they hold need be in it: one blob of
    thousands costs no more than one of a few.  Raises DamagedError if it is not a manifest, or
    names files outside of its node's directory.
    """
    try:
        some = None if names is None else _lines_of(data, names)
        with paused(len(data) > _LARGE):
            return _decode(data if some is None else some, where, whole=some is None)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise DamagedError(f"it is not a manifest: {error!r}", where=where) from error


def _decode(data: bytes, where: str, *, whole: bool) -> Manifest:
    fields = parse_json(data, max_depth=None)
    if fields["format"] != FORMAT:
        raise DamagedError(
            f"it is of format {fields['format']}; this jobrun reads format {FORMAT}",
            where=where,
        )
    if wrong := misfit(fields, _HEAD):
        raise ValueError(f"{wrong!r} cannot be {fields[wrong]!r}")
    entries = [_entry(e) for e in fields["entries"]]
    if entries:
        _check_values(entries)
        _check_names(entries)
    if whole:
        _check_tree(entries)
    return Manifest(fields["id"], fields["node"], entries)


def _lines_of(data: bytes, names: Iterable[str]) -> bytes | None:
    """Return a manifest with only the lines of some paths and of what they hold, in their order.

    Return None if one is not found.  Only the line of an entry begins like one: strings in JSON
    have no line ends.
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
    files = tuple(
        [
            _new(File, (name, size, int(crc, 16), "", "", None))
            for name, size, crc in fields["files"]
        ]
    )
    if not files or files[0].name != META:
        raise ValueError(f"{path!r} has no {META}")
    key = None
    if "key" in fields:
        decode_key(fields["key"])
        key = json.dumps(fields["key"])
    note = _note(path, fields["adapter"]) if "adapter" in fields else None
    same_as = fields.get("same_as")
    if same_as is not None and type(same_as) is not str:
        raise ValueError(f"'same_as' of {path!r} is not a path")
    if kind in TREES:
        return Entry(path, kind, files, same_as=same_as, key=key, note=note)
    if type(fields["shape"]) is not list:
        raise ValueError(f"the shape of {path!r} is not a list")
    shape = tuple(fields["shape"])
    codec = None
    if len(files) > 1:
        chunks = _with_sums(files[1:], fields)
        if "raw" in fields:
            codec, chunks = _with_raw(chunks, fields["raw"])
        files = (files[0], *chunks)
    value = fields.get("value")
    if value is not None and (shape or len(files) > 1):
        raise ValueError(f"{path!r} has a value and elements or chunks")
    dtype, version = fields["dtype"], fields["version"]
    every = (path, kind, files, dtype, shape, version, same_as, key, note, value, codec)
    return _new(Entry, every)


def _with_raw(chunks: tuple[File, ...], fields: Any) -> tuple[dict[str, Any], tuple[File, ...]]:
    """Return the codec, and the chunks with what is known of their bytes before compression."""
    codec, length = fields["codec"], fields["length"]
    if type(codec) is not dict or type(length) is not int or not 0 <= length < _LARGEST:
        raise ValueError("the codec or the length of chunks before compression is impossible")
    check_depth([codec], MAX_DEPTH)
    pairs = zip(chunks, fields["crc32c"], strict=True)
    raws = _with_sums(
        tuple([File(chunk.name, length, int(crc, 16)) for chunk, crc in pairs]), fields
    )
    return codec, tuple([c._replace(raw=raw) for c, raw in zip(chunks, raws, strict=True)])


def _with_sums(chunks: tuple[File, ...], fields: Any) -> tuple[File, ...]:
    """Return the chunks with the checksums of their blocks and their digests, if there are any."""
    if "blocks" in fields:
        chunks = _with_blocks(chunks, fields["blocks"])
    if "digests" in fields:
        chunks = _with_digests(chunks, fields["digests"])
    return chunks


def _with_blocks(chunks: tuple[File, ...], fields: Any) -> tuple[File, ...]:
    """Return the chunks with the checksums of their blocks, if these are of a known length."""
    if fields["length"] != BLOCK:
        return chunks
    found = []
    for file, crcs in zip(chunks, fields["crc32c"], strict=True):
        if type(file.length) is not int or len(crcs) not in (0, _digits(file.length)):
            raise ValueError(f"the checksums of the blocks of {file.name!r} are not those of all")
        found.append(file._replace(blocks=crcs + ""))
    return tuple(found)


def _with_digests(chunks: tuple[File, ...], fields: Any) -> tuple[File, ...]:
    """Return the chunks with the digests of their payloads, if the algorithm is known."""
    if fields["algorithm"] != ALGORITHM:
        return chunks
    pairs = zip(chunks, fields["chunks"], strict=True)
    return tuple([file._replace(digest=digest + "") for file, digest in pairs])


def _digits(length: int) -> int:
    return -(-length // BLOCK) * DIGITS


def _note(path: str, fields: Any) -> Note:
    name, version, meta = fields["name"], fields["version"], fields["meta"]
    if type(name) is not str or type(version) is not int or type(meta) is not dict:
        raise ValueError(f"'adapter' of {path!r} does not name an adapter")
    if len(name) > _LONGEST_NAME:
        raise ValueError(f"the name of an adapter has more than {_LONGEST_NAME} characters")
    return Note(name, version, meta)


def _check_names(entries: Sequence[Entry]) -> None:
    """Raise ValueError if a path or file is not below the directory it belongs to.

    All are checked together: one by one would take as long as everything else.
    """
    paths = [entry.path for entry in entries if entry.path]
    names = {file.name for entry in entries for file in entry.files}
    lines, files = "\n".join(paths), "\n".join(names)
    if paths and _OUTSIDE.search(lines):
        raise ValueError("a path leads out of its node")
    if names and (_OUTSIDE.search(files) or "/" in files):
        raise ValueError("a file is not in the directory of its entry")
    if _STRANGE.search(lines) or lines.count("\n") >= max(len(paths), 1):
        raise ValueError("a path is not the name of a blob")
    if _STRANGE.search(files) or files.count("\n") >= max(len(names), 1):
        raise ValueError("a file is not the name of a chunk")


def _check_values(entries: Sequence[Entry]) -> None:
    """Raise ValueError if a field of an entry has an impossible type or range.

    So callers can compute with the fields of entries.
    """
    _, kinds, files, dtypes, shapes, versions, _, _, notes, values, _ = zip(*entries, strict=True)
    own = [shape for shape in shapes if shape is not None]
    numbers = [
        *(version for version in versions if version is not None),
        *chain.from_iterable(own),
        *(file.length for file in chain.from_iterable(files)),
    ]
    if not {*map(type, numbers)} <= {int}:
        raise ValueError("a version, shape or length is not an integer")
    if numbers and not (min(numbers) >= 0 and max(numbers) < _LARGEST):
        raise ValueError("a version, shape or length is below 0 or above 63 bits")
    if not {*kinds} <= _KINDS:
        raise ValueError("a kind is unknown")
    if not {*map(type, dtypes)} <= _DTYPES:
        raise ValueError("a dtype is neither a name nor a list of fields")
    check_depth([dtype for dtype in dtypes if type(dtype) is list], MAX_DEPTH)
    check_depth([value for value in values if type(value) in (dict, list)], MAX_DEPTH)
    check_depth([note.meta for note in notes if note is not None], MAX_DEPTH)
    if own and max(map(len, own)) > _MOST_DIMENSIONS:
        raise ValueError(f"a shape has more than {_MOST_DIMENSIONS} dimensions")


def _check_tree(entries: Sequence[Entry]) -> None:
    """Raise ValueError unless each tree comes right before what it holds, and each path once."""
    if not entries or entries[0].path or entries[0].kind != "group":
        raise ValueError("the first entry is not the node")
    if len({entry.path for entry in entries}) != len(entries):
        raise ValueError("a path occurs twice")
    counts: dict[str, int | None] = {}
    before = ""
    for entry in entries[1:]:
        path = entry.path
        if "/" in path:
            above, _, name = path.rpartition("/")
            if above not in counts or not f"{before}/".startswith(f"{above}/"):
                raise ValueError(f"{path!r} is not in a tree that comes before it")
            count = counts[above]
            if count is not None:
                if name != str(count):
                    raise ValueError(f"{path!r} is not item {count} of its list")
                counts[above] = count + 1
        if entry.kind in TREES:
            counts[path] = 0 if entry.kind == "list" else None
            if path.count("/") >= _MOST_LEVELS:
                raise ValueError(f"{path[:40]!r}… has more than {_MOST_LEVELS} levels")
        before = path
