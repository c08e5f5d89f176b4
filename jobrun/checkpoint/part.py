"""One node's part of a checkpoint: blobs to files and a manifest.  ``reading.py`` is the way back.

Writing makes everything durable before it returns: what is left for the publisher is ``_SUCCESS``
and the rename.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial

import crc32c

from jobrun.checkpoint.fs import DEFAULT, Fs
from jobrun.checkpoint.links import Sources, remember
from jobrun.checkpoint.manifest import Manifest, encode_manifest, manifest_name
from jobrun.checkpoint.pool import THREADS, run_calls
from jobrun.checkpoint.record import SUCCESS
from jobrun.checkpoint.writing import Item, Writer
from jobrun.errors import ValueRefusedError
from jobrun.names import check_name
from jobrun.policy import Compress
from jobrun.storable import check_storable
from jobrun.values import Box, Tree, Value, leaves

__all__ = ["PartSummary", "check_part", "mark_saved", "write_part"]

Blobs = Mapping[str, Value]

SYNC_EACH = 64
"""With more files than this, one ``syncfs`` instead of an ``fsync`` of each file and directory.

Measured, 4 KiB blobs of two files each, fsync by 4 threads : syncfs: 8 blobs 9.6 : 6.9 ms, 200
blobs 130 : 62 ms, 2,000 blobs 630 : 190 ms.  For a few files fsync is the better neighbour: syncfs
also waits for other programs' unwritten data.
"""


@dataclass(frozen=True, slots=True)
class PartSummary:
    """What was written: ``digest`` is the manifest's crc32c, for ``_SUCCESS``.

    ``bytes`` and ``files`` count all files of the part, ``linked`` the bytes of those that are
    shared with an earlier checkpoint.  ``sync`` is what of ``seconds`` was waited at the end, until
    all of it was durable.
    """

    node: str
    digest: str
    bytes: int
    files: int
    seconds: float
    linked: int = 0
    sync: float = 0.0


# What may be written.


def check_part(node: str, blobs: Blobs) -> list[Item]:
    """The entries of a node's part, each tree before what it holds.

    Raises ValueRefusedError if a name or a value cannot be in a checkpoint.
    """
    items = list(_flatten(node, blobs))
    for name, value in blobs.items():
        check_storable(value, name)
    return items


def mark_saved(blobs: Blobs, id: int) -> None:
    """Give what had no version the id of the checkpoint that holds it, now that it is durable."""
    for value in blobs.values():
        for _, box in leaves(value):
            if box.version < 0:
                box.version = id


@dataclass(slots=True)
class _Level:
    """A level of names that only the paths of blobs make."""

    items: dict[str, _Level | Value] = field(default_factory=dict)


def _flatten(node: str, blobs: Blobs) -> Iterator[Item]:
    """Path, kind and leaf of all there is, each tree before what it holds."""
    if check_name(node) or "/" in node or node == SUCCESS or node.startswith("manifest."):
        raise ValueRefusedError(f"{node!r} cannot name a node")
    top = _Level()
    for path, value in blobs.items():
        wrong = check_name(path)
        if wrong:
            raise ValueRefusedError(wrong)
        _place(top, path, value)
    return _walk("", top)


def _place(top: _Level, path: str, value: Value) -> None:
    *parents, name = path.split("/")
    level = top
    for depth, parent in enumerate(parents):
        below = level.items.setdefault(parent, _Level())
        if not isinstance(below, _Level):
            above = "/".join(parents[: depth + 1])
            raise ValueRefusedError(f"blob {path!r} lies under the blob {above!r}")
        level = below
    if name in level.items:
        raise ValueRefusedError(f"there are blobs under {path!r}, which is a blob itself")
    level.items[name] = value


def _walk(path: str, item: _Level | Value) -> Iterator[Item]:
    if isinstance(item, Box):
        yield path, item.kind, item
        return
    yield path, item.kind if isinstance(item, Tree) else "group", None
    folded: dict[str, str] = {}
    for name, below in item.items.items():
        inner = f"{path}/{name}" if path else name
        wrong = check_name(name)
        if wrong or "/" in name:
            raise ValueRefusedError(wrong or f"a key of {path!r} holds a slash: {name!r}")
        twin = folded.setdefault(inner.casefold(), inner)
        if twin != inner:
            raise ValueRefusedError(
                f"blobs {inner!r} and {twin!r} differ only in case",
                hint="some file systems cannot tell them apart; rename one",
            )
        yield from _walk(inner, below)


# Writing.


def write_part(
    directory: str | os.PathLike[str],
    node: str,
    blobs: Blobs,
    *,
    id: int,
    share_with: Sequence[str | os.PathLike[str]] = (),
    compress: Sequence[Compress] = (),
    fs: Fs = DEFAULT,
) -> PartSummary:
    """Write a node's blobs and their manifest into a checkpoint's (partial) directory, durably.

    ``blobs`` maps a path (``"model/w1"``) to a value; ``id`` is the checkpoint's, which becomes the
    version of boxes that have none.  The boxes are not changed: see ``mark_saved``.  What has not
    changed is hard-linked from the checkpoints ``share_with``, the preferred one first; of what is
    written, that which ``compress`` names is compressed.
    Raises ValueRefusedError before anything is written, FsError when an operation fails.
    """
    start = time.perf_counter()
    root = os.fspath(directory)
    items = check_part(node, blobs)
    sources = Sources(fs, share_with, node)
    whole = fs.sync_all(root) if len(items) > SYNC_EACH // 2 else None
    with whole or nullcontext(), ThreadPoolExecutor(THREADS) as pool:
        writer = Writer(fs, root, node, id, sources, compress, sync=whole is None)
        entries = writer.write(pool, items)
        data = encode_manifest(Manifest(id, node, entries))
        fs.write(f"{root}/{manifest_name(node)}", [data], sync=whole is None)
        written = time.perf_counter()
        if whole is not None:
            whole()
        else:
            folders = [root, *(writer.folder(entry.path) for entry in entries)]
            run_calls(pool, [(True, partial(fs.sync_dir, folder)) for folder in folders])
        synced = time.perf_counter()
    digest = f"{crc32c.crc32c(data):08x}"
    remember(node, digest, entries)
    return PartSummary(
        node,
        digest,
        len(data) + sum(file.size for entry in entries for file in entry.files),
        1 + sum(len(entry.files) for entry in entries),
        time.perf_counter() - start,
        writer.linked,
        synced - written,
    )
