"""Blobs out of a run or checkpoint, here or at a URL."""

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
    fs = RemoteFs() if is_url(run_or_checkpoint) else DEFAULT
    return read_blobs.load_blobs(run_or_checkpoint, names, epoch, id, fallback=fallback, fs=fs)
