"""Blobs of a run or a checkpoint, for callers that need the values and not the run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from jobrun.checkpoint.integrity import read_manifest
from jobrun.checkpoint.leaf_keys import LeafKeys, leaf_keys
from jobrun.checkpoint.loading import read_at
from jobrun.checkpoint.manifest import Entry
from jobrun.checkpoint.reading import read_part
from jobrun.checkpoint.record import Record
from jobrun.core.gc_tuning import paused
from jobrun.core.patterns import Blob, full_name, is_pattern, select
from jobrun.errors import NotFoundError
from jobrun.storage.fs import DEFAULT, Fs
from jobrun.values.boxes import leaves
from jobrun.values.views import view_plain

__all__ = ["blobs_and_keys", "blobs_of", "load_blobs", "load_from", "place_of"]

_FALLBACK_HINT = "fallback=True takes the newest checkpoint in which it is whole"


def load_blobs(
    run_or_checkpoint: str | os.PathLike[str],
    names: Iterable[str] | str | None = None,
    epoch: int | None = None,
    id: int | None = None,
    *,
    fallback: bool = False,
    fs: Fs = DEFAULT,
) -> dict[str, Any]:
    """Return the values of blobs by name, of a run or a checkpoint at a path or a URL of ``fs``.

    The names, the errors and ``fallback`` are those of ``jobrun.load_blobs``.  If blobs are named,
    nothing else is read, so that one costs the same among thousands.
    """
    wanted = [names] if isinstance(names, str) else None if names is None else list(names)
    return read_at(
        os.fspath(run_or_checkpoint),
        lambda place, record: load_from(place, record, wanted, fs),
        epoch,
        id,
        whole=wanted is None,
        fallback=fallback,
        hint=_FALLBACK_HINT,
        fs=fs,
    ).value


@paused()  # of 10,000 numbers, a seventh of the time
def load_from(
    checkpoint: str | os.PathLike[str],
    record: Record,
    names: Sequence[str] | None,
    fs: Fs = DEFAULT,
) -> dict[str, Any]:
    """Return what ``load_blobs`` does, from a checkpoint whose record is known."""
    path = os.fspath(checkpoint)
    if names is None:
        return _load_all(path, record, fs)
    if not any(map(is_pattern, names)):
        with suppress(NotFoundError):  # reported below, with the nearest names
            return _load_named(path, record, names, fs)
    blobs = blobs_of(path, record, fs)
    chosen: dict[Blob, None] = {}
    for name in names:
        chosen.update((blob, None) for blob in select(name, blobs, where=path))
    loaded: dict[tuple[str, str], Any] = {}
    for node in record.nodes:
        if below := [blob.path for blob in chosen if blob.node == node]:
            for name, value in read_part(path, node, below, fs=fs, record=record).items():
                loaded[node, name] = view_plain(value)
    return {blob.name: loaded[blob.node, blob.path] for blob in chosen}


def blobs_of(checkpoint: str | os.PathLike[str], record: Record, fs: Fs = DEFAULT) -> list[Blob]:
    """Return the leaves and trees of a checkpoint, in its order; no value is read."""
    return [blob for blob, _ in _entries(checkpoint, record, fs)]


def blobs_and_keys(
    checkpoint: str | os.PathLike[str], record: Record, fs: Fs = DEFAULT
) -> dict[Blob, LeafKeys]:
    """Return the leaves and trees of a checkpoint, in its order, and the keys that lead to each."""
    found: dict[Blob, LeafKeys] = {}
    entries = [*_entries(checkpoint, record, fs)]
    for node in record.nodes:
        own = {blob: entry for blob, entry in entries if blob.node == node}
        keys = leaf_keys(own.values())
        found |= {blob: keys[blob.path] for blob in own}
    return found


def _entries(
    checkpoint: str | os.PathLike[str], record: Record, fs: Fs
) -> Iterator[tuple[Blob, Entry]]:
    """Yield the leaves and trees of a checkpoint, in its order."""
    several = len(record.nodes) > 1
    for node in record.nodes:
        for entry in read_manifest(fs, os.fspath(checkpoint), record, node).entries:
            if entry.path:
                name = full_name(node, entry.path, several)
                yield Blob(name, node, entry.path, not entry.is_tree), entry


def _load_all(path: str, record: Record, fs: Fs) -> dict[str, Any]:
    """Return all leaves, in the order of the checkpoint."""
    several = len(record.nodes) > 1
    return {
        full_name(node, leaf, several): view_plain(box)
        for node in record.nodes
        for name, value in read_part(path, node, fs=fs, record=record).items()
        for leaf, box in leaves(value, name)
    }


def _load_named(path: str, record: Record, names: Sequence[str], fs: Fs) -> dict[str, Any]:
    """Return blobs by their exact names: only the manifests of their nodes are read."""
    places = {name: place_of(name, record) for name in names}
    found: dict[tuple[str, str], Any] = {}
    for node in dict.fromkeys(node for node, _ in places.values()):
        below = [blob for place, blob in places.values() if place == node]
        for blob, value in read_part(path, node, below, fs=fs, record=record).items():
            found[node, blob] = view_plain(value)
    return {name: found[place] for name, place in places.items()}


def place_of(name: str, record: Record) -> tuple[str, str]:
    """Return the node and path of a blob; with several nodes its name begins with the node."""
    if len(record.nodes) == 1:
        return record.nodes[0], name
    node, _, path = name.partition(":")
    if node not in record.manifests:
        raise NotFoundError(f"there is no node {node!r}")
    return node, path
