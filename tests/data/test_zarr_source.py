"""Zarr arrays and groups as tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from jobrun.data.opening import open_files
from jobrun.data.source import Table
from jobrun.errors import DataError

X = np.arange(60.0).reshape(20, 3)


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "d.zarr"
    group = zarr.open_group(str(path), mode="w", zarr_format=request.param)
    group.create_array("x", data=X, chunks=(6, 2))
    group.create_array("y", data=np.arange(20, dtype=">i2"), chunks=(7,))
    inner = group.create_group("inner")
    inner.create_array("z", data=np.arange(20), chunks=(20,))
    return path


def table(path: Path, wanted: dict[str, str] | None = None) -> Table:
    found = open_files(path, wanted or {})
    assert isinstance(found, Table)
    return found


def test_a_group_gives_its_arrays(store: Path) -> None:
    found = table(store)
    assert (found.rows, sorted(found.columns)) == (20, ["x", "y"])
    assert table(store, {"a": "y"}).columns == ("a",)
    assert table(store / "inner").columns == ("z",)
    assert table(store / "x", {"any": "name"}).columns == ("any",)


@pytest.mark.parametrize(("low", "high", "step"), [(0, 20, 1), (5, 7, 1), (19, 20, 1), (1, 18, 3)])
def test_rows_are_those_of_the_array(store: Path, low: int, high: int, step: int) -> None:
    columns = table(store).slice(low, high, step)
    assert (columns["x"] == X[low:high:step]).all()
    assert (columns["y"] == np.arange(20)[low:high:step]).all()
    assert all(not a.flags.writeable and a.flags.c_contiguous for a in columns.values())


def test_any_rows_in_any_order(store: Path) -> None:
    order = np.random.default_rng(0).permutation(20)
    columns = table(store).take(order[3:15])
    assert (columns["x"] == X[order[3:15]]).all()


def test_a_chunk_is_decoded_once_for_the_batches_within(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Any] = []
    found = table(store, {"x": "x"})
    real = zarr.Array.__getitem__
    monkeypatch.setattr(zarr.Array, "__getitem__", lambda a, s: (read.append(s), real(a, s))[1])
    for low in range(20):
        assert found.slice(low, low + 1)["x"].tolist() == X[low : low + 1].tolist()
    assert len(read) == 4


def test_a_pattern_gives_a_matrix(store: Path) -> None:
    found = table(store, {"m": "*"})
    assert found.slice(2, 4)["m"].tolist() == np.c_[X, np.arange(20)][2:4].tolist()


def test_what_is_not_there(store: Path) -> None:
    with pytest.raises(DataError, match="holds no array 'xx'"):
        table(store, {"a": "xx"})
    with pytest.raises(DataError, match="there is no file"):
        table(store.parent / "e.zarr")
    with pytest.raises(DataError, match="'from' names 2 columns"):
        table(store / "x", {"a": "a", "b": "b"})
    (store.parent / "f.zarr").mkdir()
    with pytest.raises(DataError, match=r"f\.zarr is neither a zarr array nor a group"):
        table(store.parent / "f.zarr")


def test_a_damaged_chunk_is_an_error_that_names_the_column(tmp_path: Path) -> None:
    array = zarr.create_array(str(tmp_path / "a.zarr"), shape=(8,), chunks=(4,), dtype="i8")
    array[:] = np.arange(8)
    chunk = tmp_path / "a.zarr" / "c" / "1"
    chunk.write_bytes(chunk.read_bytes()[:-3])
    found = table(tmp_path / "a.zarr")
    assert found.slice(0, 2)["a"].tolist() == [0, 1]
    with pytest.raises(DataError, match="column 'a' cannot be read"):
        found.slice(5, 6)


def test_unequal_columns(tmp_path: Path) -> None:
    group = zarr.open_group(str(tmp_path / "d.zarr"), mode="w")
    group.create_array("x", data=np.zeros(3))
    group.create_array("y", data=np.zeros(4))
    with pytest.raises(DataError, match="differ in rows"):
        table(tmp_path / "d.zarr")
    assert json.loads((tmp_path / "d.zarr" / "zarr.json").read_text())["node_type"] == "group"
