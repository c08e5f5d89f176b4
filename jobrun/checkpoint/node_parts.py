"""The blobs that the nodes of a checkpoint do not hold alike, found in the manifests alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobrun.checkpoint.integrity import read_manifest
from jobrun.checkpoint.manifest import Entry
from jobrun.checkpoint.record import Record
from jobrun.model.job import GENERATORS
from jobrun.storage.fs import DEFAULT

__all__ = ["unequal_blobs"]


def unequal_blobs(path: Path, record: Record) -> list[str]:
    """Return the names of the blobs, or the first level of their trees, that differ between nodes.

    Their lengths and checksums are compared.  The global generators, which are each node's own, are
    left out.  Raises DamagedError, naming the file.
    """
    first, *others = (_contents(path, record, node) for node in record.nodes)
    unequal = [
        name
        for name in dict.fromkeys(name for part in (first, *others) for name in part)
        if any(part.get(name) != first.get(name) for part in others)
    ]
    return [name for name in dict.fromkeys(n.partition("/")[0] for n in unequal) if name]


def _contents(path: Path, record: Record, node: str) -> dict[str, Sequence[Any]]:
    """Return what tells the content of each leaf and tree of a node, by its path."""
    return {
        entry.path: _content(entry)
        for entry in read_manifest(DEFAULT, str(path), record, node).entries
        if not entry.path.startswith(GENERATORS)
    }


def _content(entry: Entry) -> Sequence[Any]:
    files = [(file.name, file.length, file.crc) for file in entry.files]
    return entry._replace(version=None, files=()), files
