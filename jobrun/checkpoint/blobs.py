"""Blobs out of a run or a checkpoint, for whoever wants the numbers and not the run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from jobrun.checkpoint.catalog import Catalog, removal_is_said
from jobrun.checkpoint.fs import DEFAULT, Fs
from jobrun.checkpoint.loading import find
from jobrun.checkpoint.reading import read_part
from jobrun.checkpoint.record import SUCCESS, Record
from jobrun.checkpoint.verify import read_manifest, read_record
from jobrun.errors import DamagedError, JobrunError, NotFoundError, UsageError, did_you_mean
from jobrun.values import plain

__all__ = ["find_checkpoint", "load_blobs", "load_from", "match_names"]

_GLOB = frozenset("*?[")
_TRIES = 100
"""How often a checkpoint is looked for again that a writer removed while it was read."""


def load_blobs(
    run_or_checkpoint: str | os.PathLike[str],
    names: Iterable[str] | str | None = None,
    epoch: int | None = None,
    id: int | None = None,
    *,
    fs: Fs = DEFAULT,
) -> dict[str, Any]:
    """The values of blobs by name: read-only arrays, numbers, strings; a tree gives a dict or list.

    ``names`` are those of blobs, of leaves (``model/w1``) or trees (``model``), or globs over the
    leaves; without them all leaves are loaded.  If there are several nodes, the names have the node
    in front: ``trainer_1:total``.  ``run_or_checkpoint`` is a run directory, of which the newest
    checkpoint is read or that of ``epoch`` or ``id``, or one checkpoint's directory.

    Every byte read is proven.  Where blobs are named, nothing else is looked at, so that one costs
    the same among thousands; without ``epoch`` and ``id`` they are then of the newest checkpoint,
    or, if they are not whole there, of the newest of which all files are there, as ``list`` has it.
    Raises NotFoundError for names or checkpoints that are not there and DamagedError for what is
    not as written; then nothing is loaded.
    """
    wanted = [names] if isinstance(names, str) else None if names is None else list(names)
    if wanted is not None and (epoch is None or id is None):
        catalog = Catalog(run_or_checkpoint, fs)
        with suppress(JobrunError):  # what is wrong is said below
            record = catalog.glance(epoch, id)
            return load_from(catalog.path(record.id), record, wanted, fs)
    for _ in range(_TRIES):
        path, record = find_checkpoint(run_or_checkpoint, epoch, id, fs=fs)
        named = epoch is not None or id is not None or path == Path(run_or_checkpoint)
        try:
            with removal_is_said(path) if named else nullcontext():
                return load_from(path, record, wanted, fs)
        except DamagedError:
            # A writer's retention may have removed it while we read: there is a newer one then.
            if path.exists():
                raise
    raise NotFoundError("checkpoints vanish faster than they can be read", where=str(path))


def find_checkpoint(
    run_or_checkpoint: str | os.PathLike[str],
    epoch: int | None = None,
    id: int | None = None,
    *,
    fs: Fs = DEFAULT,
) -> tuple[Path, Record]:
    """Path and record of a checkpoint: of the directory itself, or of one in the run directory.

    Raises NotFoundError if there is none.
    """
    root = Path(run_or_checkpoint)
    if (root / SUCCESS).exists():
        if epoch is not None or id is not None:
            raise UsageError(f"{root} is one checkpoint: no epoch or id can be chosen in it")
        return root, read_record(fs, str(root))
    if not root.is_dir():
        raise NotFoundError("there is no run or checkpoint", where=str(root))
    catalog = Catalog(root, fs)
    record = find(catalog, epoch, id)
    return catalog.path(record.id), record


def match_names(wanted: Iterable[str] | None, entries: Mapping[str, bool]) -> list[str]:
    """The names that are wanted, in order and once.

    ``entries`` maps every name to whether it is a leaf.  A glob gives the leaves it matches.
    Raises NotFoundError, with the nearest names, for one that matches nothing.
    """
    leaves = [name for name, leaf in entries.items() if leaf]
    if wanted is None:
        return leaves
    found: dict[str, None] = {}
    for name in wanted:
        matches = [name] if name in entries else []
        if not matches and _GLOB & set(name):
            matches = [leaf for leaf in leaves if fnmatchcase(leaf, name)]
        if not matches:
            hint = did_you_mean(name, list(entries)) or f"there are {_some(leaves)}"
            raise NotFoundError(f"there is no blob {name!r}", hint=hint)
        found |= dict.fromkeys(matches)
    return list(found)


def load_from(
    checkpoint: str | os.PathLike[str],
    record: Record,
    names: Sequence[str] | None,
    fs: Fs = DEFAULT,
) -> dict[str, Any]:
    """What ``load_blobs`` gives, of a checkpoint that is known with its record."""
    path = os.fspath(checkpoint)
    if names is not None and not _GLOB & set("".join(names)):
        with suppress(NotFoundError):  # said below, with the nearest names
            return _load_named(path, record, names, fs)
    places: dict[str, tuple[str, str]] = {}
    entries: dict[str, bool] = {}
    for node in record.nodes:
        for entry in read_manifest(fs, path, record, node).entries:
            if entry.path:
                name = f"{node}:{entry.path}" if len(record.nodes) > 1 else entry.path
                places[name] = (node, entry.path)
                entries[name] = not entry.is_tree
    chosen = match_names(names, entries)
    loaded: dict[tuple[str, str], Any] = {}
    for node in record.nodes:
        below = [places[name][1] for name in chosen if places[name][0] == node]
        if below:
            for blob, value in read_part(path, node, below, fs=fs, record=record).items():
                loaded[node, blob] = plain(value)
    return {name: loaded[places[name]] for name in chosen}


def _load_named(path: str, record: Record, names: Sequence[str], fs: Fs) -> dict[str, Any]:
    """Blobs by their very names: the manifests of their nodes alone are read."""
    places = {name: _place(name, record) for name in names}
    found: dict[tuple[str, str], Any] = {}
    for node in dict.fromkeys(node for node, _ in places.values()):
        below = [blob for place, blob in places.values() if place == node]
        for blob, value in read_part(path, node, below, fs=fs, record=record).items():
            found[node, blob] = plain(value)
    return {name: found[place] for name, place in places.items()}


def _place(name: str, record: Record) -> tuple[str, str]:
    """Node and path of a blob; with several nodes its name has that of the node in front."""
    if len(record.nodes) == 1:
        return record.nodes[0], name
    node, _, path = name.partition(":")
    if node not in record.manifests:
        raise NotFoundError(f"there is no node {node!r}")
    return node, path


def _some(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(names[:most]) or "none"
    return f"{shown}, …" if len(names) > most else shown
