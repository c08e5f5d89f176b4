"""A checkpoint opened by zarr-python: the only module of the package that imports zarr."""

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
    """Return the checkpoint at ``path`` as a read-only ``zarr.Group``, with a group for each node.

    Like ``zarr.open_group(path, mode="r")``, but without zarr's warnings about jobrun's own files
    beside the groups; and a file that has vanished is an error (NotFoundError), where zarr reads
    zeros: a writer's retention may remove the checkpoint while it is open.

    Raises NotFoundError if there is no checkpoint, DamagedError if its manifest is damaged.
    """
    if not os.path.isfile(os.path.join(path, META)):
        raise NotFoundError("there is no checkpoint", where=os.fspath(path))
    with importing(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that zarr imports
        import zarr
        from zarr.storage import LocalStore

    written = _files_of(os.fspath(path))

    class CheckpointStore(LocalStore):
        """A local store that lists groups only, and raises NotFoundError for missing files."""

        async def get(self, key: str, *how: Any, **hows: Any) -> Any:
            found = await super().get(key, *how, **hows)
            if found is None and key in written:
                raise NotFoundError(
                    "it has vanished: the checkpoint was damaged, or removed while it was open",
                    where=str(self.root / key),
                )
            return found

        async def list_dir(self, prefix: str) -> AsyncIterator[str]:
            async for name in super().list_dir(prefix):
                if prefix.strip("/") or os.path.isdir(self.root / name) or name == META:
                    yield name

    return zarr.open_group(CheckpointStore(os.fspath(path), read_only=True), mode="r")


def _files_of(path: str) -> frozenset[str]:
    """Return the keys of all files of the groups and arrays of a checkpoint."""
    record = read_record(DEFAULT, path)
    files = (read_manifest(DEFAULT, path, record, node).files() for node in record.nodes)
    return frozenset({META, *(name for part in files for name, _, _ in part)})
