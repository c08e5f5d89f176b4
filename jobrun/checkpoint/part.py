"""Nodes' parts of a checkpoint: blobs to files and manifests.  ``reading.py`` is the inverse.

Everything is durable when writing returns: only ``_SUCCESS`` and the rename are left to the
publisher.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

from jobrun.checkpoint.hardlinks import Sources, remember
from jobrun.checkpoint.manifest import Entry, Manifest, encode_manifest, manifest_name
from jobrun.checkpoint.record import SUCCESS
from jobrun.checkpoint.writing import Item, Writer
from jobrun.core import crc32c
from jobrun.core.names import CASE_HINT, case_twins, check_name
from jobrun.core.tree_keys import Key, encode_key
from jobrun.errors import ValueRefusedError
from jobrun.model.policy import Compress
from jobrun.storage.fs import DEFAULT, Fs, SyncAll
from jobrun.storage.threads import THREADS, ended_by_errors, run_calls
from jobrun.values.boxes import Box, Tree, Value, leaves
from jobrun.values.storable import check_storable

__all__ = ["PartSummary", "check_part", "mark_saved", "write_part", "write_parts"]

Blobs = Mapping[str, Value]

SYNC_EACH = 64
"""With more files than this, one ``syncfs`` instead of an ``fsync`` of each file and directory.

Measured, 4 KiB blobs of two files each, fsync by 4 threads : syncfs: 8 blobs 9.6 : 6.9 ms, 200
blobs 130 : 62 ms, 2,000 blobs 630 : 190 ms.  For a few files fsync disturbs others less: syncfs
also waits for the unwritten data of other programs.
"""

FLUSH_EACH = 1000
"""The number of entries after which the disk starts to write what there is so far.

Measured, a save of 10,000 scalars and one of 2,000 x 4 KiB, with one syncfs at the end : with this:
375 : 328 ms, 90 : 81 ms.
"""


@dataclass(frozen=True, slots=True)
class PartSummary:
    """The summary of a written part; ``digest`` is the manifest's crc32c, for ``_SUCCESS``.

    ``bytes`` and ``files`` count all files of the part, ``linked`` the bytes of those that are
    shared with an earlier checkpoint, or with another place of the same array.  ``sync`` is the
    part of ``seconds`` that was spent at the end, until this part and those written with it were
    durable.
    """

    node: str
    digest: str
    bytes: int
    files: int
    seconds: float
    linked: int = 0
    sync: float = 0.0


# Checks.


def check_part(node: str, blobs: Blobs) -> None:
    """Raise ValueRefusedError if a name or a value cannot be in a checkpoint."""
    for _ in _flatten(node, blobs):
        pass
    for name, value in blobs.items():
        check_storable(value, name)


def _items(node: str, blobs: Blobs) -> list[Item]:
    """Return the entries of a part, each tree before what it holds; raises as ``check_part``."""
    items = list(_flatten(node, blobs))
    for name, value in blobs.items():
        check_storable(value, name)
    return items


def mark_saved(blobs: Blobs, id: int) -> None:
    """Give values without a version the id of the checkpoint that holds them durably."""
    for value in blobs.values():
        for _, box in leaves(value):
            if box.version < 0:
                box.version = id


@dataclass(slots=True)
class _Level:
    """A level of names that exists only in the paths of blobs."""

    items: dict[str, _Level | Value] = field(default_factory=dict)


def _flatten(node: str, blobs: Blobs) -> Iterator[Item]:
    """Yield the path, kind and leaf of every entry, each tree before what it holds."""
    if check_name(node) or "/" in node or node == SUCCESS or node.startswith("manifest."):
        raise ValueRefusedError(f"{node!r} cannot name a node")
    top = _Level()
    for path, value in blobs.items():
        wrong = check_name(path)
        if wrong:
            raise ValueRefusedError(wrong)
        _place(top, path, value)
    yield Item("", "group")
    yield from _below("", top.items)


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


def _below(
    path: str,
    items: Mapping[str, _Level | Value],
    keys: Mapping[str, Key] | None = None,
    tied: dict[int, str] | None = None,
) -> Iterator[Item]:
    """Yield the entries that the tree or level at a path holds.

    ``tied`` is the first place of each tied tree of the same blob, by its id; None for a level.
    """
    if twins := case_twins(items):
        one, other = (f"{path}/{name}" if path else name for name in twins)
        raise ValueRefusedError(f"blobs {one!r} and {other!r} differ in case only", hint=CASE_HINT)
    for name, item in items.items():
        inner = f"{path}/{name}" if path else name
        wrong = check_name(name)
        if wrong or "/" in name:
            raise ValueRefusedError(wrong or f"a key of {path!r} holds a slash: {name!r}")
        key = None if keys is None else _json_key(name, keys[name])
        if isinstance(item, Box):
            yield Item(inner, item.kind, item, key, item.note)
        elif isinstance(item, Tree):
            known = {} if tied is None else tied
            first = known.setdefault(id(item), inner) if item.tied else inner
            same_as = None if first == inner else first
            yield Item(inner, item.kind, None, key, item.note, same_as)
            own = None if item.keys is None else dict(zip(item.items, item.keys, strict=True))
            yield from _below(inner, item.items, own, known)
        else:
            yield Item(inner, "group")
            yield from _below(inner, item.items)


def _json_key(name: str, key: Key) -> str | None:
    return None if key == name and type(key) is str else json.dumps(encode_key(key))


# Writing.


@dataclass(slots=True)
class _Part:
    """A part being written: its writer, and the seconds that this thread spent on it."""

    run_dir: str
    node: str
    writer: Writer
    seconds: float = 0.0
    entries: Sequence[Entry] = ()
    manifest: bytes = b""

    def summary(self, sync: float) -> PartSummary:
        """Return the summary; ``sync`` is the time that making all parts durable took."""
        digest = f"{crc32c.crc32c(self.manifest):08x}"
        remember(self.run_dir, self.node, digest, self.entries)
        return PartSummary(
            self.node,
            digest,
            len(self.manifest) + sum(file.size for entry in self.entries for file in entry.files),
            1 + sum(len(entry.files) for entry in self.entries),
            self.seconds + sync,
            self.writer.linked,
            sync,
        )


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
    """Write one node's part: see ``write_parts``."""
    parts = {node: blobs}
    return write_parts(directory, parts, id=id, share_with=share_with, compress=compress, fs=fs)[0]


def write_parts(
    directory: str | os.PathLike[str],
    parts: Mapping[str, Blobs],
    *,
    id: int,
    share_with: Sequence[str | os.PathLike[str]] = (),
    compress: Sequence[Compress] = (),
    fs: Fs = DEFAULT,
) -> list[PartSummary]:
    """Write nodes' blobs and their manifests into a checkpoint's (partial) directory, durably.

    All nodes are made durable together, after all is written.  ``parts`` has the blobs of each
    node: a path (``"model/w1"``) and a value.  ``id`` is the checkpoint's, which becomes the
    version of boxes that have none.  The boxes are not changed: see ``mark_saved``.  Unchanged
    blobs are hard-linked from the checkpoints ``share_with``, the preferred one first; ``compress``
    says which of the others are compressed.  Raises ValueRefusedError before anything is written,
    FsError if an operation fails.
    """
    root = os.fspath(directory)
    items = {node: _items(node, blobs) for node, blobs in parts.items()}
    many = sum(map(len, items.values())) > SYNC_EACH // 2
    whole = fs.sync_all(root) if many else None
    with whole or nullcontext(), ThreadPoolExecutor(THREADS) as pool, ended_by_errors(pool):
        flushes = None if whole is None else _Flushes(whole, pool)

        def begin(node: str) -> _Part:
            start = time.perf_counter()
            sources = Sources(fs, share_with, node)
            writer = Writer(fs, root, node, id, sources, compress, sync=whole is None)
            for first in range(0, len(items[node]), FLUSH_EACH):
                some = items[node][first : first + FLUSH_EACH]
                writer.begin(pool, some)
                if flushes is not None:
                    flushes.written(len(some))
            return _Part(os.path.dirname(root), node, writer, time.perf_counter() - start)

        def end(part: _Part) -> None:
            start = time.perf_counter()
            part.entries = part.writer.end()
            part.manifest = encode_manifest(Manifest(id, part.node, part.entries))
            fs.write(f"{root}/{manifest_name(part.node)}", [part.manifest], sync=whole is None)
            part.seconds += time.perf_counter() - start

        # Ending a part waits for files that were submitted before it, never for later ones.
        started = run_calls(pool, [(many, partial(begin, node)) for node in items])
        run_calls(pool, [(many, partial(end, part)) for part in started])
        written = time.perf_counter()
        if flushes is not None:
            flushes.end()
        else:
            _sync_names(fs, root, pool, started)
        synced = time.perf_counter()
    return [part.summary(synced - written) for part in started]


class _Flushes:
    """Calls of ``syncfs``: one at the end, and one at a time while files are being written.

    So the disk works meanwhile, and little is left to wait for.
    """

    def __init__(self, whole: SyncAll, pool: ThreadPoolExecutor) -> None:
        self._whole = whole
        self._pool = pool
        self._mutex = Lock()
        self._entries = 0
        self._flushes: list[Future[None]] = []

    def written(self, entries: int) -> None:
        """Count entries that are written, or submitted to other threads."""
        with self._mutex:
            self._entries += entries
            if self._entries >= FLUSH_EACH and all(flush.done() for flush in self._flushes[-1:]):
                self._flushes.append(self._pool.submit(self._whole))
                self._entries = 0

    def end(self) -> None:
        """Make durable all that is written; raises FsError, also of the earlier calls."""
        for flush in self._flushes:
            flush.result()
        self._whole()


def _sync_names(fs: Fs, root: str, pool: ThreadPoolExecutor, parts: Sequence[_Part]) -> None:
    """Make the names in all directories durable; the files are durable already."""
    folders = [part.writer.folder(entry.path) for part in parts for entry in part.entries]
    run_calls(pool, [(True, partial(fs.sync_dir, folder)) for folder in (root, *folders)])
