"""Bringing a run back from another place: its spec and one checkpoint, proven, as a run here."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial as partial_call
from typing import TypeVar

from jobrun.checkpoint.catalog import Catalog
from jobrun.checkpoint.integrity import check_payload, check_root, read_manifest, read_record
from jobrun.checkpoint.publish import clean_leftovers, publish, staged
from jobrun.errors import DamagedError, NotFoundError
from jobrun.remote.files import RemoteFs
from jobrun.remote.find import RemoteCheckpoint
from jobrun.remote.store import Store, join, split
from jobrun.runs.rundir import RunDir
from jobrun.runs.series import claim
from jobrun.storage.bounded_json import parse_json
from jobrun.storage.fs import DEFAULT
from jobrun.storage.threads import THREADS_FAR

__all__ = ["RUN_FILES", "fetch"]

T = TypeVar("T")

RUN_FILES = ("run.json", "spec.yaml", "spec.resolved.yaml")
"""The files that make checkpoints a run: kept beside them wherever they go."""


def fetch(found: RemoteCheckpoint, runs_dir: str | os.PathLike[str]) -> RunDir:
    """Make a run in ``runs_dir`` of one elsewhere, with one of its checkpoints: see ``find_at``.

    Everything is proven before it has its name.  The run gets the name that it has there, with a
    number where that is taken.  Raises NotFoundError, DamagedError, StoreError and SaveError.
    """
    store = found.store
    files = {name: data for name in RUN_FILES if (data := _read(store, name)) is not None}
    if "run.json" not in files:
        hint = "an upload puts it beside the checkpoints; 'load-blobs' reads them without it"
        raise NotFoundError("there is no run.json", where=store.place, hint=hint)
    run = claim(runs_dir, _name(files["run.json"], split(store.place)[1]))
    run_json = _above_all(files.pop("run.json"), store)
    try:
        clean_leftovers(run.path)  # of a fetch that was killed
        with staged(run.path, found.record.id) as partial:
            _copy(found, partial)
            for name, data in files.items():
                run.put(name, data)
            publish(partial, found.record.id)
        run.put("run.json", run_json)
    finally:
        run.unlock()
    return run


_READS = 5


def _read(store: Store, name: str) -> bytes | None:
    """Return a file that has no checksum, or None if it is missing.

    It is read until two reads are equal, since a network may damage what it carries.
    """
    try:
        before = store.read(name)
        for _ in range(_READS):
            data = store.read(name)
            if data == before:
                return data
            before = data
    except NotFoundError:
        return None
    raise DamagedError("it reads differently each time", where=join(store.place, name))


def _name(run_json: bytes, fallback: str) -> str:
    """Return the name of the run, if it is one that a directory can have."""
    try:
        name = str(parse_json(run_json)["name"]).rpartition("/")[2]  # of a sweep: its last part
    except (ValueError, KeyError, TypeError):
        name = fallback
    return name if re.fullmatch(r"\w[\w.,=+@-]*", name) else "run"


def _above_all(run_json: bytes, store: Store) -> bytes:
    """Return run.json with a ``next_id`` above all checkpoints there: nothing is overwritten."""
    try:
        data = parse_json(run_json)
        ids = Catalog(store.place, RemoteFs()).ids()
        data["next_id"] = max([data["next_id"], *(id + 1 for id in ids)])
    except (ValueError, KeyError, TypeError):
        return run_json  # torn, and rebuilt when it is read
    return (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode("utf-8")


def _copy(found: RemoteCheckpoint, partial: str) -> None:
    """Copy a checkpoint into a new directory, durably, and prove it."""
    store = found.store
    sizes = store.sizes(found.name)
    names = sorted(filter(_is_ours, sizes))
    folders = sorted({above for name in names for above in _above(name)})
    for folder in folders:
        DEFAULT.mkdir(f"{partial}/{folder}")

    def bring(name: str) -> None:
        DEFAULT.write(
            f"{partial}/{name}", [store.read(f"{found.name}/{name}", sizes[name])], sync=True
        )

    def bring_again(path: str) -> None:
        name = os.path.relpath(path, partial)
        if name in sizes:
            DEFAULT.unlink(path)
            bring(name)

    with ThreadPoolExecutor(THREADS_FAR) as pool:
        list(pool.map(bring, names))
    _prove(partial, found.url, bring_again)
    for folder in reversed(folders):
        DEFAULT.sync_dir(f"{partial}/{folder}")


def _is_ours(name: str) -> bool:
    """Return whether a file can be one of a checkpoint.

    Others are what a killed upload left, and names of an object store that lead out of here.
    """
    return all(part.isprintable() and not part.startswith(".") and part for part in name.split("/"))


def _above(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[: n + 1]) for n in range(len(parts))]


def _prove(partial: str, place: str, bring_again: Callable[[str], None]) -> None:
    """Raise DamagedError unless every byte is as in the manifests.

    A damaged file is brought again once: a network may have damaged it.
    """

    def proven(call: Callable[[], T]) -> T:
        try:
            return call()
        except DamagedError as error:
            bring_again(str(error.where))
        return call()

    try:
        record = proven(lambda: read_record(DEFAULT, partial))
        proven(lambda: check_root(DEFAULT, partial, record))
        for node in record.nodes:
            for entry in proven(
                partial_call(read_manifest, DEFAULT, partial, record, node)
            ).entries:
                base = f"{partial}/{node}/{entry.path}".rstrip("/")
                for file in entry.files:
                    proven(partial_call(check_payload, DEFAULT, f"{base}/{file.name}", file))
    except DamagedError as error:
        where = str(error.where or "").replace(partial, place)
        raise DamagedError(error.message, where=where, hint=error.hint) from error
