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
    """Return what ``checkpoint.read_blobs.load_blobs`` does, also for a URL of a run or checkpoint.

    Of ``s3://bucket/run`` only the files of the named blobs are fetched.  Raises StoreError too,
    for a store that fails.
    """
    fs = RemoteFs() if is_url(run_or_checkpoint) else DEFAULT
    return read_blobs.load_blobs(run_or_checkpoint, names, epoch, id, fallback=fallback, fs=fs)
