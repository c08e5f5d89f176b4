"""Checkpoints: what is on disk of a run.  FORMAT.md holds the layout, byte by byte.

::

    fs.py         every file operation      direct.py   large files past the page cache
    record.py     _SUCCESS            manifest.py   what a part consists of
    dtypes.py  fill.py  grid.py  compression.py  layout.py    values as zarr arrays
    part.py       one node's blobs to files         reading.py  and back
    writing.py  links.py  pool.py                   how the files are made
    verify.py     is a file what was written?       catalog.py  which checkpoints are there?
    publish.py    whole and durable, or not at all  loading.py  find one, read it proven
    retention.py  which of them stay?               removal.py  and away with the others
    manager.py  saved.py  unasked.py  CheckpointManager         blobs.py    load_blobs
    survey.py  compare.py  contents.py              what is damaged, what differs, what is there
    oracle.py     open_checkpoint, by zarr-python

The names here are imported when they are used: listing needs neither numpy nor zarr.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobrun.checkpoint.blobs import load_blobs
    from jobrun.checkpoint.catalog import Catalog
    from jobrun.checkpoint.manager import CheckpointManager, Loaded
    from jobrun.checkpoint.oracle import open_checkpoint
    from jobrun.checkpoint.part import PartSummary, write_part
    from jobrun.checkpoint.reading import read_part, read_slice
    from jobrun.checkpoint.record import Record, RecordFields
    from jobrun.checkpoint.saved import Saved

_HOMES = {
    "Catalog": "catalog",
    "CheckpointManager": "manager",
    "Loaded": "manager",
    "PartSummary": "part",
    "Record": "record",
    "RecordFields": "record",
    "Saved": "saved",
    "load_blobs": "blobs",
    "open_checkpoint": "oracle",
    "read_part": "reading",
    "read_slice": "reading",
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
