"""Blobs of a run or checkpoint, in a directory or at a URL."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from jobrun.checkpoint import read_blobs
from jobrun.core.paths import is_url
from jobrun.remote.files import RemoteFs
from jobrun.storage.fs import DEFAULT

__all__ = ["load_blobs"]


def load_blobs(
    run_or_checkpoint: str | os.PathLike[str],
    names: Iterable[str] | str | None = None,
    epoch: int | None = None,
    id: int | None = None,
    *,
    fallback: bool = False,
) -> dict[str, Any]:
    """Return the values of blobs by name: read-only arrays, numbers, strings, dicts and lists.

    ``names`` are names of leaves (``model/w1``) or trees (``model``), or patterns, which mean the
    leaves that they match and those of the trees that they match; without names all leaves are
    loaded.  If there are several nodes, the names in the result have the node in front,
    ``trainer_1:total``; ``total`` means that of every node.

    ``run_or_checkpoint`` is a run, of which the newest checkpoint is read or that of ``epoch`` or
    ``id``, or one checkpoint: a directory, or a URL such as
    ``s3://bucket/run``, of which only the files of the named blobs are fetched.

    Every byte read is verified.  If blobs are named, nothing else is read; without names the files
    of all blobs must exist.  Raises NotFoundError for missing names or checkpoints, DamagedError
    for data that is not what was written, StoreError for a store that fails; then nothing is
    loaded.  With ``fallback``, an older checkpoint replaces a newest one that is damaged, for all
    names together; UsageError if one checkpoint is named.
    """
    fs = RemoteFs() if is_url(run_or_checkpoint) else DEFAULT
    return read_blobs.load_blobs(run_or_checkpoint, names, epoch, id, fallback=fallback, fs=fs)
