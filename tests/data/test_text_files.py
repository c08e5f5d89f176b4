"""Text files as streams: what columns hold, positions, and files of awkward kinds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.data.opening import open_files
from jobrun.data.source import Columns, Stream, finished
from jobrun.data.text_files import CsvFile
from jobrun.errors import DataError
from jobrun.model.rows import FileOptions


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def stream(path: Path, wanted: dict[str, str] | None = None, types: Any = None) -> Stream:
    source = open_files(path, wanted or {}, FileOptions(types or {}))
    assert isinstance(source, Stream)
    assert source.rows is None
    return source


def rows(source: Stream, count: int = 1 << 20) -> dict[str, Any]:
    """All rows of a stream as lists by column."""
    return {c: a.tolist() for c, a in finished(source.open().read(count)).items()}


def read(path: Path, content: str | bytes, **how: Any) -> dict[str, Any]:
    return rows(stream(write(path, content), **how))


# What columns hold.


def test_numbers_are_int64_or_float64_and_all_else_is_text(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv", "a,b,c,d\n1,1.5,x,1\n-2,nan,1e3,2.0\n")
    source = stream(path)
    assert source.columns == ("a", "b", "c", "d")
    assert source.dtypes == {"a": "<i8", "b": "<f8", "c": "text", "d": "<f8"}
    columns = finished(source.open().read(5))
    assert [columns[c].dtype.str for c in columns] == ["<i8", "<f8", "<U3", "<f8"]
    assert columns["c"].tolist() == ["x", "1e3"]
    assert not any(a.flags.writeable for a in columns.values())


@pytest.mark.parametrize("missing", ["", "NA", "nan", "NaN", "null", " "])
def test_a_missing_number_is_nan_in_a_column_of_floats(tmp_path: Path, missing: str) -> None:
    found = read(tmp_path / "d.csv", f"a,b\n1,2\n{missing},3\n")
    assert found["b"] == [2, 3]
    assert found["a"][0] == 1.0
    assert np.isnan(found["a"][1])


def test_a_missing_text_is_an_empty_one(tmp_path: Path) -> None:
    assert read(tmp_path / "d.csv", "a,b\nx,1\n,2\n")["a"] == ["x", ""]


def test_what_looks_like_a_number_and_is_none(tmp_path: Path) -> None:
    found = read(tmp_path / "d.csv", "a,b,c\n1_000,99999999999999999999,\u0966\n")
    assert found == {"a": ["1_000"], "b": ["99999999999999999999"], "c": ["\u0966"]}


def test_types_say_what_a_column_holds(tmp_path: Path) -> None:
    found = read(tmp_path / "d.csv", "id,x\n007,1\n", types={"id": "text", "x": "float"})
    assert found == {"id": ["007"], "x": [1.0]}
    with pytest.raises(DataError, match="no column of") as caught:
        stream(tmp_path / "d.csv", types={"ids": "text"})
    assert "'id'" in caught.value.hint


def test_a_value_unlike_the_first_thousand_is_an_error_with_its_row(tmp_path: Path) -> None:
    for value, what in (("1.5", "'1.5' is not a whole number"), ("", "expected a whole number")):
        path = write(tmp_path / "d.csv", "a,b\n" + "1,x\n" * 1000 + f"{value},x\n")
        with pytest.raises(DataError, match=rf"d\.csv: row 1001, column 'a': .*{what}") as caught:
            rows(stream(path))
        assert "types: {a: float}" in caught.value.hint
    assert rows(stream(path, types={"a": "float"}))["a"][:2] == [1.0, 1.0]


def test_columns_are_chosen_and_a_pattern_gives_a_matrix(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv", "id,pixel 1,pixel 2,y\n1,2,3.5,a\n4,5,6,b\n")
    source = stream(path, {"x": "pixel *", "label": "y"})
    assert source.columns == ("x", "label")
    assert source.dtypes["x"] == "<f8"
    assert rows(source) == {"x": [[2.0, 3.5], [5.0, 6.0]], "label": ["a", "b"]}
    assert rows(stream(path, {"x": "i*"})) == {"x": [[1], [4]]}
    cursor = source.open(2)
    assert [a.shape for a in cursor.read(3).values()] == [(0, 2), (0,)]
    with pytest.raises(DataError, match="no column 'pixle 1'") as caught:
        stream(path, {"x": "pixle 1"})
    assert "'pixel 1'" in caught.value.hint
    with pytest.raises(DataError, match="column 'y' is not"):
        stream(path, {"x": "*"})


def test_tsv(tmp_path: Path) -> None:
    assert read(tmp_path / "d.tsv", "a\tb\n1\tx,y\n") == {"a": [1], "b": ["x,y"]}


def test_jsonl(tmp_path: Path) -> None:
    lines = [
        {"i": 1, "f": 1, "t": "a", "b": True, "v": [1, 2], "m": 1},
        {"i": 2, "f": 2.5, "t": "bc", "b": False, "v": [3, 4], "m": None},
    ]
    path = write(tmp_path / "d.jsonl", "\n".join(map(json.dumps, lines)) + "\n\n")
    source = stream(path)
    dtypes = {"i": "<i8", "f": "<f8", "t": "text", "b": "|b1", "v": "<i8", "m": "<f8"}
    assert source.dtypes == dtypes
    found = rows(source)
    assert np.isnan(found.pop("m")[1])
    assert found == {k: [r[k] for r in lines] for k in ("i", "f", "t", "b", "v")}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"a": 1.5}', "row 1001, column 'a': 1.5 is not a whole number"),
        ('{"a": "1"}', "row 1001, column 'a': '1' is not a whole number"),
        ("{}", "row 1001, column 'a': there is no value"),
        ("[1]", "row 1001 cannot be read: a line is an object"),
        ('{"a": 1', "row 1001 cannot be read"),
    ],
)
def test_lines_of_json_that_are_unlike_the_others(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "d.jsonl", '{"a": 1}\n' * 1000 + line + "\n")
    with pytest.raises(DataError, match=rf"d\.jsonl: {message}"):
        rows(stream(path))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"a": {"b": 1}}\n', "not of one kind"),
        ('{"a": 1}\n{"a": "x"}\n', "not of one kind"),
        ('{"a": [1]}\n{"a": [1, 2]}\n', "column 'a'"),
        ('{"a": ["x"]}\n', "not of numbers"),
        ('{"a": 99999999999999999999}\n', "64 bits"),
    ],
)
def test_columns_of_json_that_are_none(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        stream(write(tmp_path / "d.jsonl", lines))


def test_lists_of_another_shape_or_type_are_found(tmp_path: Path) -> None:
    for bad in ("[1]", "[1, 2.5]", "[1, null]", "1"):
        path = write(tmp_path / "d.jsonl", '{"v": [1, 2]}\n' * 1000 + f'{{"v": {bad}}}\n')
        with pytest.raises(DataError, match="row 1001, column 'v'"):
            rows(stream(path))


def test_lines_of_text(tmp_path: Path) -> None:
    path = write(tmp_path / "d.txt", "one\r\n\n  two\nthree")
    assert rows(stream(path)) == {"line": ["one", "", "  two", "three"]}
    assert list(rows(stream(path, {"word": "word"}))) == ["word"]
    with pytest.raises(DataError, match="one column, but 'from' names 2"):
        stream(path, {"a": "a", "b": "b"})


# Awkward files.


def test_quotes_line_ends_within_them_and_crlf(tmp_path: Path) -> None:
    text = 'a,b\r\n"x, ""y""",1\r\n"two\r\nlines",2\r\n'
    assert read(tmp_path / "d.csv", text) == {"a": ['x, "y"', "two\r\nlines"], "b": [1, 2]}


@pytest.mark.parametrize("ending", ["csv", "jsonl", "txt"])
def test_a_byte_order_mark_is_no_part_of_the_data(tmp_path: Path, ending: str) -> None:
    text = {"csv": "a\n1\n", "jsonl": '{"a": 1}\n', "txt": "1\n"}[ending]
    plain = read(tmp_path / f"p.{ending}", text)
    path = write(tmp_path / f"b.{ending}", b"\xef\xbb\xbf" + text.encode())
    assert rows(stream(path)) == plain
    cursor = stream(path).open()
    cursor.read(1)
    assert cursor.mark() == path.stat().st_size


def test_one_row_and_no_line_end(tmp_path: Path) -> None:
    assert read(tmp_path / "d.csv", "a,b\n1,2") == {"a": [1], "b": [2]}


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    assert read(tmp_path / "d.csv", "a\n\n1\n\n\n2\n\n") == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.csv", b"", "d.csv is empty"),
        ("d.csv", b"a,b\n", "no rows"),
        ("d.jsonl", b"", "no rows"),
        ("d.txt", b"", "no rows"),
        ("d.csv", b"a,a\n1,2\n", "names 'a' twice"),
        ("d.csv", b"a,\n1,2\n", "a column without a name"),
        ("d.csv", b"a,b\n1,2\n3\n", "row 2 has 1 cells, but the header names 2"),
        ("d.csv", b"a,b\n1,2\n3,4,5\n", "row 2 has 3 cells, but the header names 2"),
        ("d.csv", b'a,b\n1,2\n3,"4\n', "row 2 cannot be read: unexpected end of data"),
        ("d.csv", b"a,b\n1,2\n3,\xff\n", "row 2 is not UTF-8"),
        ("d.csv", b"a,\xff\n1,2\n", "the header cannot be read"),
        ("d.txt", b"one\ntwo\n\xe9t\xe9\n", "row 3 is not UTF-8"),
        ("d.jsonl", b'{"a": 1}\n{"a": "\xff"}\n', "row 2 is not UTF-8"),
        ("d.csv", "a\n1\n".encode("utf-16"), "UTF-16"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        rows(stream(write(tmp_path / name, content)))
    assert name in str(caught.value)


def test_a_row_that_cannot_be_read_far_down_has_its_number(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv", b"a\n" + b"1\n" * 5000 + b"\xff\n")
    cursor = stream(path).open()
    cursor.read(4990)
    with pytest.raises(DataError, match="row 5001 is not UTF-8"):
        cursor.read(100)


# Many files.


def test_the_files_of_a_pattern_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    write(tmp_path / "b.csv", "a,b\n3,z\n")
    write(tmp_path / "a.csv", "b,a\nx,1\ny,2\n")
    write(tmp_path / "c.csv", "a,b\n4,5\n")
    source = stream(tmp_path / "*.csv", {"a": "a", "b": "b"})
    assert rows(source) == {"a": [1, 2, 3, 4], "b": ["x", "y", "z", "5"]}


def test_a_pattern_that_matches_nothing_says_what_is_there(tmp_path: Path) -> None:
    write(tmp_path / "part_1.csv", "a\n1\n")
    with pytest.raises(DataError, match=r"no file matches .*part-\*\.csv") as caught:
        stream(tmp_path / "part-*.csv")
    assert "part_1.csv" in caught.value.hint
    with pytest.raises(DataError, match="no file matches"):
        stream(tmp_path / "none" / "*.csv")


def test_files_of_a_pattern_must_be_alike(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "a,b\n1,2\n")
    write(tmp_path / "b.csv", "a,c\n1,2\n")
    with pytest.raises(DataError, match=r"b\.csv"):
        stream(tmp_path / "*.csv")
    write(tmp_path / "b.csv", "a,b\n1,x\n")
    with pytest.raises(DataError, match=r"b\.csv: row 1, column 'b': 'x'"):
        rows(stream(tmp_path / "*.csv"))


def test_a_file_whose_name_looks_like_a_pattern(tmp_path: Path) -> None:
    assert read(tmp_path / "d[1].csv", "a\n1\n") == {"a": [1]}


# Positions.


def concatenated(parts: list[Columns]) -> list[Any]:
    return [row for p in parts for row in p["a"].tolist()]


@settings(deadline=None, max_examples=40)
@given(
    texts=st.lists(
        st.text(st.sampled_from('ab",\n\rée '), min_size=1, max_size=6), min_size=1, max_size=12
    ),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    files=st.integers(1, 3),
)
def test_any_place_is_found_again(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], sizes: list[int], files: int
) -> None:
    folder = tmp_path_factory.mktemp("d")
    for number in range(files):
        cells = ['"' + t.replace('"', '""') + '"' for t in [*texts, f"file {number}"]]
        lines = "a,b\r\n" + "".join(f"{c},{i}\r\n" for i, c in enumerate(cells))
        (folder / f"{number}.csv").write_bytes(lines.encode())
    wanted = [t for n in range(files) for t in [*texts, f"file {n}"]]
    parts: list[Columns] = []
    row, mark = 0, None
    for size in [*sizes, len(wanted)]:
        source = stream(folder / "*.csv")
        assert source.dtypes["a"] == "text"
        cursor = source.open(row, mark)
        parts.append(cursor.read(size))
        row, mark = cursor.row, json.loads(json.dumps(cursor.mark()))
    assert concatenated(parts) == wanted
    assert row == len(wanted)
    skipped = stream(folder / "*.csv").open(sizes[0] if sizes[0] < row else row - 1, None)
    assert skipped.read(1)["a"].tolist() == [wanted[skipped.row - 1]]


def test_a_file_that_became_shorter(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv", "a\n" + "1\n" * 10)
    cursor = stream(path).open()
    cursor.read(8)
    write(path, "a\n1\n")
    with pytest.raises(DataError, match="shorter than it was"):
        stream(path).open(8, cursor.mark())
    with pytest.raises(DataError, match="ended after 1 rows, but 8"):
        stream(path).open(8, None)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(DataError, match=r"d\.csv cannot be read"):
        CsvFile(tmp_path / "d.csv", {})


def test_long_cells_are_read_if_the_limit_allows_them(tmp_path: Path) -> None:
    cell = "x" * 140_000
    path = write(tmp_path / "d.csv", f"id,t\n1,a\n2,{cell}\n3,b\n")
    with pytest.raises(DataError, match="row 2 cannot be read: a cell has more than 131072 char"):
        rows(stream(path))
    source = open_files(path, {}, FileOptions(cell_limit=140_000))
    assert isinstance(source, Stream)
    cursor = source.open()
    cursor.read(1)
    mark = cursor.mark()
    assert finished(source.open(1, mark).read(9))["t"].tolist() == [cell, "b"]


def test_a_long_header_needs_the_limit_too(tmp_path: Path) -> None:
    name = "n" * 140_000
    path = write(tmp_path / "d.tsv", f"id\t{name}\n1\t2\n")
    with pytest.raises(DataError, match=r"header cannot be read: .*raise 'cell_limit'"):
        stream(path)
    assert open_files(path, {}, FileOptions(cell_limit=1 << 20)).columns == ("id", name)


@pytest.mark.parametrize("ending", ["jsonl", "txt", "npy"])
def test_the_limit_is_for_tables_alone(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"d.{ending}", "x\n")
    with pytest.raises(DataError, match=r"'cell_limit' is for \.csv or \.tsv files"):
        open_files(path, {}, FileOptions(cell_limit=10))


# Compressed files.


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "txt"])
def test_a_compressed_file_is_read_as_its_content(tmp_path: Path, ending: str) -> None:
    row = {"csv": "{0},t{0}\n", "tsv": "{0}\tt{0}\n", "txt": "{0}\n"}
    lines = [
        json.dumps({"a": n, "b": f"t{n}"}) + "\n" if ending == "jsonl" else row[ending].format(n)
        for n in range(2500)
    ]
    header = {"csv": "a,b\n", "tsv": "a\tb\n"}.get(ending, "")
    content = header + "".join(lines)
    plain = stream(write(tmp_path / f"d.{ending}", content))
    packed = stream(write(tmp_path / f"d.{ending}.gz", gzip.compress(content.encode())))
    assert packed.columns == plain.columns
    assert rows(packed) == rows(plain)
    cursors = [plain.open(), packed.open()]
    for cursor in cursors:
        cursor.read(1234)
    assert cursors[0].mark() == cursors[1].mark()
    again = packed.open(1234, cursors[1].mark())
    assert finished(again.read(3)).keys() == finished(plain.open(1234).read(3)).keys()
    assert again.row == 1237
    left = finished(packed.open(1234, cursors[1].mark()).read(9))
    assert {c: a.tolist() for c, a in left.items()} == {
        c: a.tolist() for c, a in finished(cursors[0].read(9)).items()
    }


@pytest.mark.parametrize("damage", ["cut", "bits", "none of it"])
def test_a_damaged_compressed_file_is_an_error(tmp_path: Path, damage: str) -> None:
    text = "a\n" + "".join(f"{n * 7919 % 10007}\n" for n in range(30000))
    content = bytearray(gzip.compress(text.encode()))
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "bits":
        content[len(content) // 2] ^= 0xFF
    else:
        content = bytearray(text.encode())
    path = write(tmp_path / "d.csv.gz", bytes(content))
    with pytest.raises(DataError, match=r"d\.csv\.gz"):
        rows(stream(path))


def test_a_compressed_file_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv.gz", gzip.compress(b"a\n" + b"1\n" * 100))
    cursor = stream(path).open()
    cursor.read(90)
    write(path, gzip.compress(b"a\n" + b"1\n" * 50))
    with pytest.raises(DataError, match="shorter than it was"):
        stream(path).open(90, cursor.mark())
