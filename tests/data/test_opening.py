"""From a path to a source: by its ending, by a pattern; and awkward files of every kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from jobrun.data.opening import open_files
from jobrun.data.source import Stream, Table, count_rows
from jobrun.errors import DataError

ENDINGS = ("npy", "npz", "zarr", "csv", "tsv", "jsonl", "txt")


def write(path: Path, rows: list[int]) -> Path:
    """A file of one column ``x``."""
    array = np.asarray(rows, np.int64)
    match path.suffix:
        case ".npy":
            np.save(path, array)
        case ".npz":
            np.savez(path, x=array)
        case ".zarr":
            zarr.create_group(str(path)).create_array("x", data=array, chunks=(2,))
        case ".csv" | ".tsv":
            path.write_text("x\n" + "".join(f"{i}\n" for i in rows))
        case ".jsonl":
            path.write_text("".join(json.dumps({"x": i}) + "\n" for i in rows))
        case ".txt":
            path.write_text("".join(f"{i}\n" for i in rows))
    return path


def read(path: Path, wanted: dict[str, str] | None = None) -> dict[str, list[Any]]:
    """All rows of a path, as lists."""
    source = open_files(path, wanted or {})
    if isinstance(source, Table):
        return {c: a.tolist() for c, a in source.slice(0, source.rows).items()}
    assert isinstance(source, Stream)
    cursor = source.open()
    try:
        found = {c: a.tolist() for c, a in cursor.read(10_000).items()}
        assert count_rows(cursor.read(1)) == 0
    finally:
        cursor.close()
    return found


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_ending_says_what_a_file_is(tmp_path: Path, ending: str) -> None:
    (rows,) = read(write(tmp_path / f"d.{ending}", [3, 1, 2]), {"x": "x"}).values()
    assert [int(row) for row in rows] == [3, 1, 2]


@pytest.mark.parametrize("ending", ENDINGS)
def test_one_row_is_enough(tmp_path: Path, ending: str) -> None:
    (rows,) = read(write(tmp_path / f"d.{ending}", [7]), {"x": "x"}).values()
    assert [int(row) for row in rows] == [7]


@pytest.mark.parametrize("ending", ENDINGS)
def test_without_rows_there_is_nothing_to_read(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"d.{ending}"
    if ending == "zarr":
        zarr.create_group(str(path)).create_array("x", shape=(0,), dtype="i8", chunks=(1,))
    else:
        write(path, [])
    with pytest.raises(DataError, match=rf"d\.{ending}: .*no rows"):
        read(path)


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_files_of_a_pattern_are_one_source(tmp_path: Path, ending: str) -> None:
    write(tmp_path / f"b.{ending}", [4])
    write(tmp_path / f"a.{ending}", [1, 2, 3])
    write(tmp_path / f"c.{ending}", [5, 6])
    (rows,) = read(tmp_path / f"?.{ending}", {"x": "x"}).values()
    assert [int(row) for row in rows] == [1, 2, 3, 4, 5, 6]


def test_endings_may_be_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "D.TSV").write_text("a\tb\n1\t2\n")
    assert read(tmp_path / "D.TSV") == {"a": [1], "b": [2]}


def test_a_pattern_goes_into_folders(tmp_path: Path) -> None:
    for number, name in enumerate(["a", "a/e", "c"]):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "d.csv", [number])
    assert read(tmp_path / "**/d.csv") == {"x": [0, 1, 2]}


# What is not there, or something else.


def test_a_file_that_is_missing_has_the_nearest_names_or_the_missing_folder(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", [1])
    with pytest.raises(DataError, match=r"there is no file .*tran\.csv") as caught:
        read(tmp_path / "tran.csv")
    assert "'train.csv'" in caught.value.hint
    with pytest.raises(DataError, match=r"there is no file .*d\.csv") as caught:
        read(tmp_path / "gone" / "d.csv")
    assert caught.value.hint == f"there is no folder {tmp_path / 'gone'}"


@pytest.mark.parametrize("pattern", ["part-*.csv", "gone/*.csv", "d[2-9].npy"])
def test_a_pattern_that_matches_nothing(tmp_path: Path, pattern: str) -> None:
    write(tmp_path / "d1.npy", [1])
    with pytest.raises(DataError, match="no file matches") as caught:
        read(tmp_path / pattern)
    assert pattern in caught.value.message
    assert ("d1.npy" in caught.value.hint) == ("gone" not in pattern)


@pytest.mark.parametrize(
    ("name", "message"),
    [("d.orc", "unknown ending '.orc'"), ("d.npy.gz", "'.gz'"), ("data", "without an end")],
)
def test_a_file_of_no_known_kind(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).write_bytes(b"PAR1")
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path / name)
    assert ".csv, .tsv, .jsonl" in caught.value.hint


def test_a_folder_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(DataError, match="data is neither a zarr array nor a group"):
        read(tmp_path / "data")


# Files that are cut: by a full disk, or by a copy that did not end.


@pytest.mark.parametrize("ending", ["npy", "npz", "zarr", "jsonl"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.95])
def test_a_file_that_is_cut_is_an_error_that_names_it(
    tmp_path: Path, ending: str, share: float
) -> None:
    path = whole = write(tmp_path / f"d.{ending}", list(range(1000, 1009)))
    if ending == "zarr":
        whole = next(p for p in sorted(path.rglob("c/*")))
    data = whole.read_bytes()
    cut = int(len(data) * share)
    if ending == "jsonl":  # not at the end of a line, which would be a shorter file
        cut = cut // 12 * 12 + 5
    whole.write_bytes(data[:cut])
    with pytest.raises(DataError, match=rf"d\.{ending}"):
        read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a,b\n1,"x\n', "row 1 cannot be read: unexpected end of data"),
        ("a,b\n1,2\n3", "row 2 has 1 cells, but the header names 2 columns"),
    ],
)
def test_a_table_that_is_cut_says_in_which_row(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "d.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=f"d.csv: {message}"):
        read(path)


def by_name(ending: str) -> Callable[[Path, dict[str, Any]], None]:
    def make(path: Path, columns: dict[str, Any]) -> None:
        if ending == "npz":
            np.savez(path, **columns)
            return
        group = zarr.create_group(str(path))
        for name, column in columns.items():
            group.create_array(name, data=column)

    return make


@pytest.mark.parametrize("ending", ["npz", "zarr"])
def test_columns_of_different_lengths(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"d.{ending}"
    by_name(ending)(path, {"a": np.zeros(3), "b": np.zeros((4, 2))})
    with pytest.raises(DataError, match=rf"d\.{ending}: the columns differ in rows: a 3, b 4"):
        read(path)
    assert len(read(path, {"x": "b"})["x"]) == 4


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('\ufeffa,b\r\n"x, y",1\r\n', {"a": ["x, y"], "b": [1]}),
        ('a,b\n"say ""hi""",\n', {"a": ['say "hi"'], "b": [""]}),
        ('a\n"two\r\nlines"\r\n"é"\r\n', {"a": ["two\r\nlines", "é"]}),
        ("a,b\n1,\n2,NA\n", {"a": [1, 2], "b": ["", "NA"]}),
    ],
)
def test_quotes_crlf_a_mark_and_missing_values(
    tmp_path: Path, text: str, rows: dict[str, Any]
) -> None:
    (tmp_path / "d.csv").write_bytes(text.encode())
    assert read(tmp_path / "d.csv") == rows


@pytest.mark.parametrize(
    ("name", "content", "row"),
    [
        ("d.csv", b"a,b\r\n1,x\r\n2,\xe9\r\n", 2),
        ("d.tsv", b"a\tb\n1\tx\n2\ty\n3\t\xff\n", 3),
        ("d.jsonl", b'{"a": "x"}\n{"a": "\xe9"}\n', 2),
        ("d.txt", b"one\n\xe9t\xe9\n", 2),
    ],
)
def test_bytes_that_are_no_utf8_have_file_and_row(
    tmp_path: Path, name: str, content: bytes, row: int
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}: row {row} is not UTF-8"):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["d.npy", "d.npz"])
def test_pickled_objects_are_refused_and_never_loaded(tmp_path: Path, name: str) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (pytest.fail, ("it was unpickled",))

    objects = np.array([Trap()], object)
    if name.endswith("npz"):
        np.savez(tmp_path / name, x=objects)
    else:
        np.save(tmp_path / name, objects, allow_pickle=True)
    with pytest.raises(DataError, match=rf"{name} holds Python objects, .* never unpickled"):
        read(tmp_path / name, {"x": "x"})
