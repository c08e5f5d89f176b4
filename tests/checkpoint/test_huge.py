"""A blob of more than 2 GiB, which no single system call takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from jobrun.checkpoint.catalog import prove
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.slices import read_slice
from tests.support.chunks import cut_into

pytestmark = pytest.mark.skipif(
    not os.environ.get("JOBRUN_LONG"), reason="needs 7 GiB of memory and a minute: JOBRUN_LONG=1"
)
GIB = 1 << 30


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory that is emptied afterwards: pytest keeps those of the last runs."""
    with TemporaryDirectory(dir=tmp_path) as place:
        yield Path(place)


@pytest.mark.parametrize("chunk", [16 << 20, 4 * GIB], ids=["usual chunks", "one file"])
def test_it_comes_back(place: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    cut_into(monkeypatch, chunk)
    whole = np.arange((2 * GIB + GIB // 8) // 8, dtype=np.int64)
    with CheckpointManager(place) as manager:
        manager.save(0, {"main": {"x": whole}})
        prove(place, manager.find())
        path = manager.path(0)
        sizes = [p.stat().st_size for p in (path / "main/x").iterdir() if p.name != "zarr.json"]
        assert sum(sizes) >= whole.nbytes + 4 * len(sizes)
        assert (len(sizes) == 1) == (chunk > whole.nbytes)
        last = read_slice(path, "main", "x", slice(-3, None))
        assert last.tolist() == [whole.size - 3, whole.size - 2, whole.size - 1]
        found = manager.load().blobs["main"]["x"]
    assert found.nbytes > 2 * GIB
    assert np.array_equal(found, whole)
