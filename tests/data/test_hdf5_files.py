"""Datasets of HDF5 files as tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jobrun.data.chunked_table import ChunkedTable
from jobrun.data.opening import open_files
from jobrun.data.source import TEXT, Table
from jobrun.data.tables import ArrayTable
from jobrun.errors import DataError

h5py = pytest.importorskip("h5py")

X = np.arange(60.0).reshape(20, 3)


@pytest.fixture(params=["d.h5", "d.hdf5"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / request.param
    with h5py.File(path, "w") as file:
        file["whole"] = X
        file.create_dataset("packed", data=X, chunks=(6, 2), compression="gzip", fletcher32=True)
        file["inner/n"] = np.arange(20, dtype=">i2")
        file["inner/flag"] = np.arange(20) % 2 == 0
        file["one"] = 3
        file["words"] = ["a", "b"]
        file["inner/names"] = [f"nä{n}" for n in range(20)]
        file.create_dataset("inner/packed", data=[f"b{n}" for n in range(20)], chunks=6)
        file.create_dataset("inner/lists", 20, h5py.vlen_dtype(np.int32))
        file.create_dataset("inner/latin", data=[b"\xe4"] * 20, dtype=h5py.string_dtype("ascii"))
    return path


def table(path: Path, **wanted: str) -> Table:
    found = open_files(path, wanted)
    assert isinstance(found, Table)
    return found


def test_datasets_are_found_by_their_paths(path: Path) -> None:
    assert table(path, a="inner/n", b="whole").columns == ("a", "b")
    with pytest.raises(DataError, match="holds no dataset 'wole'") as caught:
        table(path, a="wole")
    assert "'whole'" in caught.value.hint


@pytest.mark.parametrize("name", ["whole", "packed"])
@pytest.mark.parametrize(("low", "high", "step"), [(0, 20, 1), (5, 7, 1), (19, 20, 1), (1, 18, 3)])
def test_rows_are_those_of_the_dataset(
    path: Path, name: str, low: int, high: int, step: int
) -> None:
    found = table(path, x=name, n="inner/n", flag="inner/flag")
    rows = found.slice(low, high, step)
    assert rows["x"].tolist() == X[low:high:step].tolist()
    assert rows["n"].tolist() == list(range(20))[low:high:step]
    assert rows["flag"].dtype == bool
    order = np.random.default_rng(0).permutation(20)
    assert found.take(order[3:15])["x"].tolist() == X[order[3:15]].tolist()
    assert not any(a.flags.writeable for a in rows.values())


def test_strings_are_texts(path: Path) -> None:
    found = table(path, name="inner/names", packed="inner/packed", x="whole")
    assert found.dtypes["name"] == found.dtypes["packed"] == TEXT
    rows = found.slice(5, 9, 2)
    assert (rows["name"].tolist(), rows["packed"].tolist()) == (["nä5", "nä7"], ["b5", "b7"])
    taken = found.take(np.array([7, 0, 7]))
    assert taken["name"].tolist() == ["nä7", "nä0", "nä7"]
    assert [rows["name"].dtype, taken["name"].dtype] == ["<U3", "<U3"]


def test_a_dataset_in_one_piece_is_mapped(path: Path) -> None:
    assert isinstance(table(path, whole="whole"), ArrayTable)
    assert isinstance(table(path, packed="packed"), ChunkedTable)


def test_what_cannot_be_read_is_an_error(path: Path) -> None:
    with pytest.raises(DataError, match="column 'inner/lists' is of dtype object"):
        table(path, x="inner/lists")
    with pytest.raises(DataError, match="column 'inner/latin' cannot be read: 'ascii' codec"):
        table(path, x="inner/latin").slice(0, 2)
    with pytest.raises(DataError, match="the columns differ in rows"):
        table(path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DataError, match="cannot be read"):
        table(path, whole="whole")


def test_damage_to_a_chunk_is_found(path: Path) -> None:
    with h5py.File(path) as file:
        place = file["packed"].id.get_chunk_info(0).byte_offset
    content = bytearray(path.read_bytes())
    content[place + 10] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="column 'packed' cannot be read"):
        table(path, packed="packed").slice(0, 20)
