"""Bringing a run back from another place: its spec and one checkpoint, proven, as a run here."""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jobrun.checkpoint.fs import DEFAULT, Fs
from jobrun.checkpoint.publish import publish, staged
from jobrun.checkpoint.record import SUCCESS, Record, decode_record
from jobrun.checkpoint.verify import check_payload, check_root, read_manifest, read_record
from jobrun.errors import DamagedError, NotFoundError
from jobrun.remote.store import Store, join, open_store, split
from jobrun.remote.upload import THREADS
from jobrun.rundir import RunDir
from jobrun.runs import claim

__all__ = ["RUN_FILES", "checkpoints_at", "fetch"]

RUN_FILES = ("run.json", "spec.yaml", "spec.resolved.yaml")
"""What makes checkpoints a run: kept beside them wherever they go."""

_CHECKPOINT = re.compile(r"checkpoint_(0|[1-9][0-9]*)")


def fetch(
    url: str,
    runs_dir: str | os.PathLike[str],
    *,
    epoch: int | None = None,
    id: int | None = None,
    fs: Fs = DEFAULT,
) -> RunDir:
    """Make a run in ``runs_dir`` of the one at ``url``, with one of its checkpoints.

    ``url`` is that of a run, of which the newest checkpoint is taken (or that of ``epoch`` or
    ``id``), or of a checkpoint.  Everything is proven before it has its name.  The run gets the
    name that it has there, with a number where that is taken.  Raises NotFoundError, DamagedError
    and StoreError.
    """
    above, name = split(url)
    named = _CHECKPOINT.fullmatch(name)
    store = open_store(above if named else url)
    record = _chosen(store, int(named[1]) if named else id, epoch)
    files = {name: data for name in RUN_FILES if (data := _read(store, name)) is not None}
    if "run.json" not in files:
        hint = "an upload puts it beside the checkpoints; 'load-blobs' reads them without it"
        raise NotFoundError("there is no run.json", where=store.place, hint=hint)
    run = claim(runs_dir, _name(files["run.json"], split(store.place)[1]), fs=fs)
    try:
        _copy(store, record, run, fs)
        for file, data in reversed(files.items()):  # run.json last: with it, it is a run
            run.put(file, data)
    finally:
        run.unlock()
    return run


def checkpoints_at(store: Store) -> dict[int, Record]:
    """The checkpoints at a place that have a ``_SUCCESS``, by id."""
    found = {}
    for name in store.folders():
        match = _CHECKPOINT.fullmatch(name)
        if match and (record := _record(store, int(match[1]))) is not None:
            found[record.id] = record
    return dict(sorted(found.items()))


def _record(store: Store, id: int) -> Record | None:
    name = f"checkpoint_{id}/{SUCCESS}"
    data = _read(store, name)
    if data is None:
        return None
    try:
        record = decode_record(data, join(store.place, name))
    except DamagedError:
        return None
    return record if record.id == id else None


def _chosen(store: Store, id: int | None, epoch: int | None) -> Record:
    """The checkpoint that is meant; of an epoch, the newest at its end."""
    if id is not None:
        record = _record(store, id)
        if record is None:
            raise NotFoundError(f"no whole checkpoint_{id}", where=store.place)
        return record
    found = checkpoints_at(store)
    if epoch is not None:
        found = {i: r for i, r in found.items() if r.epoch == epoch and r.at_boundary}
    if not found:
        what = "no checkpoint" if epoch is None else f"no checkpoint of epoch {epoch}"
        raise NotFoundError(what, where=store.place)
    return found[max(found)]


def _read(store: Store, name: str) -> bytes | None:
    try:
        return store.read(name)
    except NotFoundError:
        return None


def _name(run_json: bytes, fallback: str) -> str:
    """The name of the run, if it is one that a directory can have."""
    try:
        name = str(json.loads(run_json)["name"]).rpartition("/")[2]  # of a sweep: its last part
    except (ValueError, KeyError, TypeError):
        name = fallback
    return name if re.fullmatch(r"\w[\w.,=+@-]*", name) else "run"


def _copy(store: Store, record: Record, run: RunDir, fs: Fs) -> Path:
    """Copy a checkpoint beside its name, prove it, and give it its name."""
    folder = f"checkpoint_{record.id}"
    names = sorted(store.sizes(folder))
    run_dir = str(run.path)
    with staged(run_dir, record.id, fs) as partial:
        for above in sorted({above for name in names for above in _above(name)}):
            fs.mkdir(f"{partial}/{above}")

        def bring(name: str) -> None:
            fs.write(f"{partial}/{name}", [store.read(f"{folder}/{name}")], sync=True)

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(bring, names))
        _prove(partial, join(store.place, folder), fs)
        for above in sorted({above for name in names for above in _above(name)}, reverse=True):
            fs.sync_dir(f"{partial}/{above}")
        return publish(partial, record.id, fs)


def _above(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[: n + 1]) for n in range(len(parts))]


def _prove(partial: str, place: str, fs: Fs) -> None:
    """Every byte is what the manifests say."""
    try:
        record = read_record(fs, partial)
        check_root(fs, partial, record)
        for node in record.nodes:
            for entry in read_manifest(fs, partial, record, node).entries:
                base = f"{partial}/{node}/{entry.path}".rstrip("/")
                for file in entry.files:
                    check_payload(fs, f"{base}/{file.name}", file)
    except DamagedError as error:
        where = str(error.where or "").replace(partial, place)
        raise DamagedError(error.message, where=where, hint=error.hint) from error
