"""A checkpoint as zarr-python sees it: the only place here that knows zarr."""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from jobrun.checkpoint.manifest import META
from jobrun.errors import NotFoundError

if TYPE_CHECKING:
    import zarr

__all__ = ["open_checkpoint"]


def open_checkpoint(path: str | os.PathLike[str]) -> zarr.Group:
    """The checkpoint at ``path`` as a read-only ``zarr.Group``: a group for each node in it.

    The same as ``zarr.open_group(path, mode="r")``, without zarr's warnings about the files beside
    the groups that are jobrun's own.  Raises NotFoundError if there is no zarr group.
    """
    if not os.path.isfile(os.path.join(path, META)):
        raise NotFoundError("there is no checkpoint", where=os.fspath(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # packages that zarr imports have their own
        import zarr
        from zarr.storage import LocalStore

    class CheckpointStore(LocalStore):
        """A local store that lists groups only."""

        async def list_dir(self, prefix: str) -> AsyncIterator[str]:
            async for name in super().list_dir(prefix):
                if prefix.strip("/") or os.path.isdir(self.root / name) or name == META:
                    yield name

    return zarr.open_group(CheckpointStore(os.fspath(path), read_only=True), mode="r")
