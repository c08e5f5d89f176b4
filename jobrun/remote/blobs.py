"""Blobs out of a run or checkpoint, here or at a URL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from jobrun.checkpoint import read_blobs
from jobrun.checkpoint.loading import Chosen, Place, read_newest
from jobrun.checkpoint.record import Record
from jobrun.core.paths import is_url
from jobrun.errors import UsageError
from jobrun.remote.files import RemoteFs
from jobrun.remote.find import StoreRun, checkpoint_at, find_at
from jobrun.remote.store import open_store

__all__ = ["load_blobs", "read_at"]

T = TypeVar("T")


def read_at(
    url: str,
    read: Callable[[Place, Record], T],
    *,
    epoch: int | None = None,
    id: int | None = None,
    whole: bool,
    fallback: bool = False,
    hint: str = "",
) -> Chosen[T]:
    """Return what ``read`` gives of the checkpoint at a URL, or of one of the run there.

    Without ``epoch`` and ``id`` it is the newest of the run: see ``read_newest``.  Raises what that
    and ``find_at`` raise.
    """
    found = find_at(url, epoch=epoch, id=id) if id is not None or epoch is not None else None
    found = found or checkpoint_at(url)
    if found is None:
        run = StoreRun(open_store(url))
        return read_newest(run, read, whole=whole, fallback=fallback, hint=hint)
    if fallback:
        raise UsageError("fallback is for the newest checkpoint of a run, and this names one")
    return Chosen(read(found.url, found.record), found.url, found.record)


def load_blobs(
    run_or_checkpoint: str | os.PathLike[str],
    names: Iterable[str] | str | None = None,
    epoch: int | None = None,
    id: int | None = None,
    *,
    fallback: bool = False,
) -> dict[str, Any]:
    """The values of blobs by name: read-only arrays, numbers, strings; a tree gives a dict or list.

    ``names`` are those of leaves (``model/w1``) or trees (``model``), or patterns, which give the
    leaves that they match, or that a tree holds which they match; without names all leaves are
    loaded.  If there are several nodes, the names in the result have the node in front,
    ``trainer_1:total``; ``total`` means that of every node.

    ``run_or_checkpoint`` is a run, of which the newest checkpoint is read or that of ``epoch`` or
    ``id``, or one checkpoint: a directory, or a URL such as
    ``s3://bucket/run``, of which only the files of the blobs that are named are fetched.

    Every byte read is proven.  Where blobs are named, nothing else is looked at; without names the
    files of all are there.  Raises NotFoundError for names or checkpoints that are not there,
    DamagedError for what is not as written, StoreError for a store that fails; then nothing is
    loaded.  With ``fallback``, of a newest checkpoint that is damaged an older one is read in its
    place, for all names together; UsageError where one checkpoint is named.
    """
    if not is_url(run_or_checkpoint):
        return read_blobs.load_blobs(run_or_checkpoint, names, epoch, id, fallback=fallback)
    wanted = [names] if isinstance(names, str) else None if names is None else list(names)
    return read_at(
        str(run_or_checkpoint),
        lambda place, record: read_blobs.load_from(place, record, wanted, RemoteFs()),
        epoch=epoch,
        id=id,
        whole=wanted is None,
        fallback=fallback,
        hint=read_blobs.FALLBACK_HINT,
    ).value
