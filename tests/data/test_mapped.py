"""Arrays in files: any rows of any kind, what is touched is given back, and what goes wrong."""

from __future__ import annotations

import gc
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun.data.mapped import MANY, FileRows, Pages, map_of, take_mapped
from jobrun.data.numpy_files import npy_table
from jobrun.errors import DataError


def file_of(path: Path, array: np.ndarray, offset: int = 0) -> FileRows:
    path.write_bytes(b"x" * offset + array.tobytes())
    return FileRows(path, array.dtype, array.shape, offset)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(60).reshape(20, 3),
        np.arange(20, dtype=">f4"),
        np.arange(20).astype("M8[s]"),
        np.array([f"é{i}" for i in range(20)]),
        np.array([b"%d" % i for i in range(20)]),
        np.arange(40, dtype=np.complex64).reshape(20, 1, 2) * 1j,
        np.arange(20) % 2 == 0,
    ],
    ids=lambda array: array.dtype.str,
)
@pytest.mark.parametrize("offset", [0, 7])
def test_any_rows_of_any_kind(tmp_path: Path, array: np.ndarray, offset: int) -> None:
    found = file_of(tmp_path / "d", array, offset)
    for rows in ([3, 0, 19, 3], [], list(range(20))):
        taken = found.take(np.array(rows, np.intp))
        assert taken.dtype == array.dtype
        assert taken.tolist() == array[rows].tolist()
        assert taken.shape == array[rows].shape
        assert taken.flags.c_contiguous
        assert taken.flags.aligned
    assert found.array.tolist() == array.tolist()


def test_the_file_that_was_opened_is_read_though_another_took_its_name(tmp_path: Path) -> None:
    found = file_of(tmp_path / "d", np.arange(5))
    (tmp_path / "e").write_bytes(np.zeros(5, np.int64).tobytes())
    os.replace(tmp_path / "e", tmp_path / "d")
    assert found.take(np.array([4, 2])).tolist() == [4, 2]
    assert found.array.tolist() == [0, 1, 2, 3, 4]


def test_a_file_that_becomes_shorter_is_an_error_and_no_crash(tmp_path: Path) -> None:
    found = file_of(tmp_path / "d", np.arange(5000))
    os.truncate(tmp_path / "d", 8000)
    assert found.take(np.array([999])).tolist() == [999]
    with pytest.raises(DataError, match="d became shorter while it was read"):
        found.take(np.array([1, 4000]))


def test_a_row_that_comes_in_pieces_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = file_of(tmp_path / "d", np.arange(50).reshape(10, 5))
    whole = os.preadv

    def piece(file: int, buffers: list[Any], place: int) -> int:
        return whole(file, [buffers[0][:7]], place)

    monkeypatch.setattr(os, "preadv", piece)
    assert found.take(np.array([9, 1])).tolist() == [[*range(45, 50)], [*range(5, 10)]]


def test_what_the_disk_says_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> int:
        raise OSError(5, "Input/output error")

    found = file_of(tmp_path / "d", np.arange(5))
    monkeypatch.setattr(os, "preadv", fails)
    with pytest.raises(DataError, match=r"d cannot be read: .*Input/output error"):
        found.take(np.array([1]))


def test_nothing_stays_open(tmp_path: Path) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    gc.collect()  # what other tests have left would be closed at any time
    before = opened()
    for _ in range(5):
        file_of(tmp_path / "d", np.arange(5)).take(np.array([1]))
    assert opened() <= before


# Pages.


class Mapping(mmap.mmap):
    """A mapping that counts how often its pages are given back."""

    given = 0

    def madvise(self, option: int, *range: int) -> None:  # type: ignore[override]
        assert option == mmap.MADV_DONTNEED
        self.given += 1


def test_pages_are_given_back_once_they_are_many() -> None:
    pages, one = Pages(most=100), Mapping(-1, 4096)
    for _ in range(4):
        pages.touch(one, 30)
    assert one.given == 1
    pages.touch(one, 99)
    assert one.given == 1
    pages.touch(one, 1)
    assert one.given == 2


def test_pages_of_many_files_are_counted_together() -> None:
    pages, many = Pages(most=20_000), [Mapping(-1, 4096) for _ in range(10)]
    for mapped in many:
        pages.touch(mapped, 10**9)  # of each there is no more than 4096
    assert [m.given for m in many] == [1] * 10


def test_a_small_file_is_never_given_back_by_itself() -> None:
    pages, one = Pages(), Mapping(-1, MANY // 2)
    for _ in range(100):
        pages.touch(one, MANY)
    assert one.given == 0


def test_only_what_nobody_writes_by_its_mapping_is_given_back(tmp_path: Path) -> None:
    """Pages of a private mapping hold what is in no file: given back, they would be lost."""
    np.save(tmp_path / "d.npy", np.arange(10))
    for mode in ("r", "c", "r+"):
        mapped = np.load(tmp_path / "d.npy", mmap_mode=mode)  # type: ignore[arg-type]
        assert (map_of(np.asarray(mapped)) is not None) == (mode == "r")
        assert (map_of(mapped[2:4]) is not None) == (mode == "r")
    assert map_of(np.arange(3)) is None


@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 100])
def test_rows_by_way_of_a_mapping(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "large.npy"
    wide = np.lib.format.open_memmap(path, mode="w+", dtype=np.int64, shape=(2100, 2048))
    wide[:, 0] = np.arange(2100)
    del wide
    array = np.load(path, mmap_mode="r")
    mapped = map_of(array)
    assert mapped is not None
    assert len(mapped) > MANY
    chosen = np.random.default_rng(rows).integers(0, 2100, rows)
    assert take_mapped(array, mapped, chosen)[:, 0].tolist() == chosen.tolist()
    table = npy_table(path, {"x": "x"})
    assert table.take(chosen)["x"][:, 0].tolist() == chosen.tolist()
