"""Blobs and states of a run's checkpoints, for callers outside of any run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeVar

from jobrun.checkpoint.loading import is_checkpoint, read_at
from jobrun.checkpoint.read_blobs import place_of
from jobrun.checkpoint.reading import read_part
from jobrun.checkpoint.record import Record
from jobrun.core.paths import is_url
from jobrun.engine.best_metric import best_of
from jobrun.errors import NotFoundError, UsageError, ValueRefusedError
from jobrun.remote import blobs
from jobrun.runs.find import find_run
from jobrun.runs.rundir import RunDir
from jobrun.session.live_objects import tree_adapter
from jobrun.tools.past_runs import PastRun
from jobrun.values.adapters.base import LiveAdapter
from jobrun.values.adapters.pytree import PYTREE, is_pytree, live_adapter_of
from jobrun.values.boxes import Value
from jobrun.values.plain import put_back

__all__ = ["load_blobs", "load_state"]

T = TypeVar("T")


def load_blobs(
    run_or_checkpoint: str | os.PathLike[str] | PastRun,
    names: Iterable[str] | str | None = None,
    epoch: int | None = None,
    id: int | None = None,
    *,
    best: bool = False,
    by: str | None = None,
    fallback: bool = False,
) -> dict[str, Any]:
    """Return the values of blobs by name: read-only arrays, numbers, strings, dicts and lists.

    ``names`` are names of leaves (``model/w1``) or trees (``model``), or patterns, which mean the
    leaves that they match and those of the trees that they match; without names all leaves are
    loaded.  If there are several nodes, the names in the result have the node in front,
    ``trainer_1:total``; ``total`` means that of every node.

    ``run_or_checkpoint`` is a run, of which the newest checkpoint is read or that of ``epoch`` or
    ``id``, or one checkpoint: a directory, a run of ``list_runs``, what the commands take in
    ``./runs`` (a name, a spec, ``@latest``, ``@best``), or a URL such as ``s3://bucket/run``, of
    which only the files of the named blobs are fetched.  ``best`` reads the
    best checkpoint of a run directory by the metric that the job keeps the best of, or its only one
    with a direction; ``by`` names another: ``loss``, ``accuracy:max``.

    Every byte read is verified.  If blobs are named, nothing else is read; without names the files
    of all blobs must exist.  Raises NotFoundError for missing names or checkpoints, DamagedError
    for data that is not what was written, StoreError for a store that fails; then nothing is
    loaded.  With ``fallback``, an older checkpoint replaces a newest one that is damaged, for all
    names together; UsageError if one checkpoint is named.
    """
    place = _place(run_or_checkpoint, epoch, id, best=best, by=by)
    return blobs.load_blobs(place, names, epoch, id, fallback=fallback)


def load_state(
    run_or_checkpoint: str | os.PathLike[str] | PastRun,
    name: str,
    into: T,
    epoch: int | None = None,
    id: int | None = None,
    *,
    best: bool = False,
    by: str | None = None,
    adapter: LiveAdapter | None = None,
) -> T:
    """Restore the state of an object under ``state`` into an object like it, and return that.

    ``into`` is what ``setup`` makes: a module, an optimizer, an estimator, a tree of arrays of JAX.
    It is changed in place where its type allows it; use what is returned.  ``name`` is that of the
    blob, with several nodes ``node:name``.  ``adapter`` is needed if the job names one.  The rest
    is as for ``load_blobs``.

    Raises NotFoundError, DamagedError, and ValueRefusedError if the state is that of another type
    of object; what the library itself raises for another structure is not caught.
    """
    place = os.fspath(_place(run_or_checkpoint, epoch, id, best=best, by=by))

    def read(checkpoint: str, record: Record) -> Value:
        node, path = place_of(name, record)
        return read_part(checkpoint, node, [path], record=record)[path]

    value = read_at(place, read, epoch, id, whole=False).value
    own = adapter or live_adapter_of(into) or (PYTREE if is_pytree(into) else None)
    if own is None or value.note is None or not value.note.meta.get("live"):
        what = f"a {type(into).__qualname__} has none" if own is None else f"{name!r} has none"
        hint = "load_blobs reads the values of all blobs"
        raise ValueRefusedError(f"no state of an object to restore: {what}", hint=hint)
    if own is PYTREE:
        own = tree_adapter(value)
    restored: T = put_back(own, into, {name: value}, name)
    return restored


def _place(
    run_or_checkpoint: str | os.PathLike[str] | PastRun,
    epoch: int | None,
    id: int | None,
    *,
    best: bool,
    by: str | None,
) -> str | os.PathLike[str]:
    """Return the path of the best checkpoint of a run if it is asked for, else where it is."""
    place = _found(run_or_checkpoint)
    if not best and by is None:
        return place
    if epoch is not None or id is not None:
        raise UsageError("a checkpoint is named by its epoch, its id or as the best: one of them")
    if is_url(place):
        hint = "name it by its epoch; the metrics of a run are in its directory"
        raise UsageError("the best is known of a run's directory, not at a URL", hint=hint)
    return best_of(RunDir(place), by)


def _found(run: str | os.PathLike[str] | PastRun) -> str | os.PathLike[str]:
    """Return the path or URL of a run or checkpoint, which may be named as in the commands.

    Raises NotFoundError if there is none, UsageError for a sweep.
    """
    if isinstance(run, PastRun):
        return run.path
    if is_url(run) or RunDir(run).holds_run() or is_checkpoint(os.fspath(run)):
        return run
    try:
        return find_run("runs", os.fspath(run)).path
    except NotFoundError:
        if os.path.isdir(run):
            return run  # what it lacks is reported by its reader
        raise
