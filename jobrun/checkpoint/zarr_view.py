"""A checkpoint as zarr-python sees it: the only place here that knows zarr."""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from jobrun.checkpoint.integrity import read_manifest, read_record
from jobrun.checkpoint.manifest import META
from jobrun.core.late_imports import importing
from jobrun.errors import NotFoundError
from jobrun.storage.fs import DEFAULT

if TYPE_CHECKING:
    import zarr

__all__ = ["open_checkpoint"]


def open_checkpoint(path: str | os.PathLike[str]) -> zarr.Group:
    """The checkpoint at ``path`` as a read-only ``zarr.Group``: a group for each node in it.

    As ``zarr.open_group(path, mode="r")``, but without zarr's warnings about the files beside the
    groups that are jobrun's own; and a file that is not there any more is an error (NotFoundError),
    where zarr reads zeros: a writer's retention may remove the checkpoint while it is open.

    Raises NotFoundError if there is no checkpoint, DamagedError if its manifest is not whole.
    """
    if not os.path.isfile(os.path.join(path, META)):
        raise NotFoundError("there is no checkpoint", where=os.fspath(path))
    with importing(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # packages that zarr imports have their own
        import zarr
        from zarr.storage import LocalStore

    written = _files_of(os.fspath(path))

    class CheckpointStore(LocalStore):
        """A local store that lists groups only, and misses what was written and is not there."""

        async def get(self, key: str, *how: Any, **hows: Any) -> Any:
            found = await super().get(key, *how, **hows)
            if found is None and key in written:
                raise NotFoundError(
                    "it is not there any more: the checkpoint was damaged, or removed while open",
                    where=str(self.root / key),
                )
            return found

        async def list_dir(self, prefix: str) -> AsyncIterator[str]:
            async for name in super().list_dir(prefix):
                if prefix.strip("/") or os.path.isdir(self.root / name) or name == META:
                    yield name

    return zarr.open_group(CheckpointStore(os.fspath(path), read_only=True), mode="r")


def _files_of(path: str) -> frozenset[str]:
    """All files of the groups and arrays of a checkpoint, by their keys in the store."""
    record = read_record(DEFAULT, path)
    files = (read_manifest(DEFAULT, path, record, node).files() for node in record.nodes)
    return frozenset({META, *(name for part in files for name, _, _ in part)})
