"""Columns of ``.npy`` and ``.npz`` files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine import same

from jobrun.data import numpy_files
from jobrun.data.opening import open_files
from jobrun.data.source import Columns, Table
from jobrun.data.tables import ArrayTable
from jobrun.errors import DataError
from jobrun.model.rows import FileOptions
from jobrun.values.adoption import adopt


def file_columns(path: Path, wanted: dict[str, str]) -> Columns:
    table = open_files(path, wanted)
    assert isinstance(table, ArrayTable)
    return table.arrays


def test_an_npz_gives_all_its_arrays_or_those_that_are_wanted(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, a=np.arange(3), b=np.arange(6.0).reshape(3, 2))
    assert list(file_columns(path, {})) == ["a", "b"]
    columns = file_columns(path, {"y": "a"})
    assert list(columns) == ["y"]
    assert columns["y"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(6.0).reshape(3, 2)),
        np.arange(3, dtype=">i4"),
        np.array(["a", "bc"]),
        np.zeros(2, np.dtype([("a", "u1"), ("b", "f8")], align=True)),
        np.zeros((2, 0)),
    ],
    ids=lambda a: a.dtype.str,
)
@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_columns_of_files_are_plain_contiguous_and_read_only(
    tmp_path: Path, array: Any, suffix: str
) -> None:
    path = tmp_path / f"d{suffix}"
    if suffix == ".npz":
        np.savez(path, d=array)
    else:
        np.save(path, array)
    (column,) = file_columns(path, {"x": "d"}).values()
    assert type(column) is np.ndarray
    assert column.flags.c_contiguous
    assert not column.flags.writeable
    assert same(column, adopt([array]).value)


def test_an_npy_is_mapped_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "d.npy"
    np.save(path, np.arange(6).reshape(3, 2))
    assert list(file_columns(path, {})) == ["d"]
    column = file_columns(path, {"x": "anything"})["x"]
    assert isinstance(column.base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 1


def test_a_missing_file_is_named_with_its_neighbours(tmp_path: Path) -> None:
    np.savez(tmp_path / "digits.npz", a=1)
    with pytest.raises(DataError, match=r"there is no file .*digit\.npz") as caught:
        file_columns(tmp_path / "digit.npz", {})
    assert "digits.npz" in caught.value.hint
    with pytest.raises(DataError, match="there is no file"):
        file_columns(tmp_path / "no" / "such" / "x.npy", {})


def test_a_missing_array_is_named_with_the_nearest(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", train=1, test=2)
    with pytest.raises(DataError, match="holds no array 'trian'") as caught:
        file_columns(tmp_path / "d.npz", {"x": "trian"})
    assert "'train'" in caught.value.hint
    with pytest.raises(DataError) as caught:
        file_columns(tmp_path / "d.npz", {"x": "quite another"})
    assert caught.value.hint == "there are train, test"


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_nothing_is_ever_unpickled(tmp_path: Path, suffix: str) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (pytest.fail, ("unpickled",))

    array = np.array([Trap()], object)
    path = tmp_path / f"d{suffix}"
    if suffix == ".npz":
        np.savez(path, d=array)
    else:
        np.save(path, array, allow_pickle=True)
    with pytest.raises(DataError, match="never unpickled") as caught:
        file_columns(path, {"x": "d"})
    assert caught.value.hint


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
@pytest.mark.parametrize(
    "content", [b"", b"not a file of numpy", b"PK\x03\x04broken", b"\x80\x04."]
)
def test_a_damaged_file_is_an_error_that_names_it(
    tmp_path: Path, suffix: str, content: bytes
) -> None:
    path = tmp_path / f"d{suffix}"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"d{suffix}"):
        file_columns(path, {"x": "d"})


def test_a_cut_file_is_an_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", d=np.arange(1000))
    data = (tmp_path / "d.npz").read_bytes()
    (tmp_path / "d.npz").write_bytes(data[: len(data) // 2])
    np.save(tmp_path / "e.npy", np.arange(1000))
    (tmp_path / "e.npy").write_bytes((tmp_path / "e.npy").read_bytes()[:300])
    for name in ("d.npz", "e.npy"):
        with pytest.raises(DataError, match=name):
            file_columns(tmp_path / name, {"x": "d"})


def test_a_flipped_bit_in_an_npz_is_found(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", d=np.zeros(1000))
    data = bytearray((tmp_path / "d.npz").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "d.npz").write_bytes(data)
    with pytest.raises(DataError, match=r"d\.npz cannot be read"):
        file_columns(tmp_path / "d.npz", {"x": "d"})


def test_an_npy_holds_one_column(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.arange(3))
    with pytest.raises(DataError, match="holds one array, but 'from' names 2 columns"):
        file_columns(tmp_path / "d.npy", {"x": "a", "y": "b"})


def test_an_npy_under_the_name_of_an_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.arange(3))
    (tmp_path / "d.npy").rename(tmp_path / "d.npz")
    with pytest.raises(DataError, match=r"not a \.npz archive"):
        file_columns(tmp_path / "d.npz", {})


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_single_values_are_no_columns(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"d{suffix}"
    if suffix == ".npz":
        np.savez(path, d=np.array(3.0))
    else:
        np.save(path, np.array(3.0))
    with pytest.raises(DataError, match="single value"):
        file_columns(path, {"x": "d"})


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "d.npz").mkdir()
    with pytest.raises(DataError, match=r"d\.npz cannot be read"):
        file_columns(tmp_path / "d.npz", {})


# Matrices, types, large members, patterns.


def test_a_pattern_over_the_arrays_of_an_npz_gives_a_matrix(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, p1=np.arange(3), p2=np.arange(3) / 2, m=np.ones((3, 2)), t=np.array(list("abc")))
    table = open_files(path, {"x": "p*", "y": "p1", "z": "[mp]*"})
    assert isinstance(table, Table)
    assert table.dtypes == {"x": "<f8", "y": "<i8", "z": "<f8"}
    columns = table.take(np.array([2, 1]))
    assert columns["x"].tolist() == [[2, 1], [1, 0.5]]
    assert columns["y"].tolist() == [2, 1]
    assert columns["z"].tolist() == [[2, 1, 1, 1], [1, 0.5, 1, 1]]
    assert table.slice(0, 3, 2)["x"].tolist() == [[0, 0], [2, 1]]
    assert not any(a.flags.writeable for a in columns.values())
    with pytest.raises(DataError, match="a matrix is of numbers, which column 't' is not"):
        open_files(path, {"x": "*"})


def test_types_are_for_text_files(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.arange(3))
    with pytest.raises(DataError, match=r"d\.npy: 'types' is for \.csv, .* or \.arrow files"):
        open_files(tmp_path / "d.npy", {}, FileOptions({"d": "int"}))


def test_a_large_array_of_an_npz_is_mapped_once_it_is_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numpy_files, "_MAPPED_BYTES", 1000)
    path = tmp_path / "d.npz"
    arrays = {
        "plain": np.arange(400).reshape(200, 2),
        "fortran": np.asfortranarray(np.arange(400.0).reshape(200, 2)),
        "named": np.zeros(200, [("a", "<i8"), ("b", "<f8")]),
        "small": np.arange(200, dtype=np.int8),
    }
    np.savez(path, **arrays)
    table = open_files(path, {})
    assert isinstance(table, ArrayTable)
    assert isinstance(table.arrays["plain"].base, np.memmap)
    assert not isinstance(table.arrays["fortran"].base, np.memmap)
    columns = table.slice(3, 50)
    for name, array in arrays.items():
        assert same(columns[name], np.ascontiguousarray(array[3:50]))
        assert columns[name].flags.aligned
        assert not columns[name].flags.writeable
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"d\.npz cannot be read"):
        open_files(path, {})


def test_files_of_a_pattern_are_one_table(tmp_path: Path) -> None:
    for number, rows in enumerate((3, 1, 4)):
        np.save(tmp_path / f"{number}.npy", np.arange(rows) + 10 * number)
    table = open_files(tmp_path / "*.npy", {"x": "x"})
    assert isinstance(table, Table)
    assert table.slice(1, 7)["x"].tolist() == [1, 2, 10, 20, 21, 22]
    np.save(tmp_path / "3.npy", np.zeros(2))
    with pytest.raises(DataError, match=r"dtype <f8 in .*3\.npy, but of <i8"):
        open_files(tmp_path / "*.npy", {"x": "x"})
