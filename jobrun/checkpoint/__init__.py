"""Checkpoints: the state of a run on disk.  FORMAT.md defines the layout, byte by byte.

::

    manager.py  save_result.py  pending_saves.py   CheckpointManager: saves, loads, retains
    save_rules.py                                  the rules of a save
    part.py  part_source.py  writing.py            write a node's blobs
    reading.py                                     read them
    zarr_metadata.py  dtypes.py  fill_value.py     values as zarr arrays
    chunk_grid.py  codecs.py  hardlinks.py         chunks: their shapes, compression, sharing;
    chunk_links.py  chunk_sums.py                  which are shared; their checksums
    manifest.py  record.py  block_checksums.py     the content of a part; _SUCCESS; proof of slices
    publish.py                                     whole and durable, or not at all
    integrity.py  scrub.py                         verify a file; verify whole checkpoints
    catalog.py  loading.py  read_blobs.py          list checkpoints; find and read one; its blobs
    retention.py  trash.py                         which to keep; remove the others
    diff.py  contents.py                           compare two; list the blobs of one
    zarr_view.py                                   open_checkpoint, by zarr-python

The names here are imported on first use: listing needs neither numpy nor zarr.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobrun.checkpoint.catalog import Catalog
    from jobrun.checkpoint.manager import CheckpointManager, Loaded
    from jobrun.checkpoint.part import PartSummary, write_part
    from jobrun.checkpoint.read_blobs import load_blobs
    from jobrun.checkpoint.reading import read_part
    from jobrun.checkpoint.record import Record, RecordFields
    from jobrun.checkpoint.save_result import Saved
    from jobrun.checkpoint.slices import read_slice
    from jobrun.checkpoint.zarr_view import open_checkpoint

_HOMES = {
    "Catalog": "catalog",
    "CheckpointManager": "manager",
    "Loaded": "manager",
    "PartSummary": "part",
    "Record": "record",
    "RecordFields": "record",
    "Saved": "save_result",
    "load_blobs": "read_blobs",
    "open_checkpoint": "zarr_view",
    "read_part": "reading",
    "read_slice": "slices",
    "write_part": "part",
}

__all__ = [
    "Catalog",
    "CheckpointManager",
    "Loaded",
    "PartSummary",
    "Record",
    "RecordFields",
    "Saved",
    "load_blobs",
    "open_checkpoint",
    "read_part",
    "read_slice",
    "write_part",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
