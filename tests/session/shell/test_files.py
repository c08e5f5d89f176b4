"""Blobs as files: every ending, back and forth, and what cannot be."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine import same
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

from jobrun.errors import TaskError
from jobrun.model.shell import FileForm
from jobrun.session.shell.files import read_file, write_file

NO_FORM = FileForm()


def through(path: Path, value: Any, form: FileForm = NO_FORM) -> Any:
    write_file(path, value, form)
    return read_file(path, form)


@settings(deadline=None, max_examples=50)
@given(hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, min_side=2)))
def test_numbers_come_back_bit_for_bit(tmp_path_factory: Any, array: Any) -> None:
    folder = tmp_path_factory.mktemp("files")
    array = np.where(np.isnan(array), np.nan, array)  # one NaN: text keeps no payload
    for name, form in (
        ("a.txt", NO_FORM),
        ("a.csv", NO_FORM),
        ("a.npy", NO_FORM),
        ("a.raw", FileForm("float64", array.shape)),
    ):
        assert same(through(folder / name, array, form), array), name


@pytest.mark.parametrize("ending", [".txt", ".csv"])
@pytest.mark.parametrize(
    ("value", "form", "expected"),
    [
        (3, NO_FORM, 3.0),
        (0.1, NO_FORM, 0.1),
        (np.float32(0.1), FileForm("float32"), np.float32(0.1)),
        (7, FileForm("int64"), np.int64(7)),
        (True, NO_FORM, 1.0),
        (np.arange(3), NO_FORM, np.arange(3.0)),
        (np.arange(3), FileForm("int32"), np.arange(3, dtype=np.int32)),
        (np.ones((1, 1)), FileForm(shape=(1, 1)), np.ones((1, 1))),
        (np.arange(6.0).reshape(2, 3), FileForm(shape=(-1, 2)), np.arange(6.0).reshape(3, 2)),
        (np.array([True, False]), NO_FORM, np.array([1.0, 0.0])),
        (np.zeros((0,)), NO_FORM, np.zeros(0)),
        ([1, 2], NO_FORM, np.array([1.0, 2.0])),
        (math.inf, NO_FORM, math.inf),
    ],
)
def test_text(tmp_path: Path, ending: str, value: Any, form: FileForm, expected: Any) -> None:
    assert same(through(tmp_path / f"a{ending}", value, form), expected)


def test_text_is_written_as_people_write_it(tmp_path: Path) -> None:
    write_file(tmp_path / "a.txt", np.array([[0.1, 2.0], [3.0, 1e300]]), NO_FORM)
    assert (tmp_path / "a.txt").read_text() == "0.1 2.0\n3.0 1e+300\n"
    write_file(tmp_path / "b.txt", np.float32([0.1]), NO_FORM)
    assert (tmp_path / "b.txt").read_text() == "0.1\n"
    write_file(tmp_path / "c.csv", np.arange(4).reshape(2, 2), NO_FORM)
    assert (tmp_path / "c.csv").read_text() == "0,1\n2,3\n"


def test_a_text_is_a_text(tmp_path: Path) -> None:
    assert through(tmp_path / "a.txt", "x y\nz", FileForm("str")) == "x y\nz"


def test_a_text_keeps_its_line_ends(tmp_path: Path) -> None:
    assert through(tmp_path / "a.txt", "x\r\ny\rz", FileForm("str")) == "x\r\ny\rz"


@pytest.mark.parametrize("ending", [".txt", ".csv"])
@pytest.mark.parametrize("number", [2**53 + 1, -(2**63) + 1, 2**64 - 1, 10**30 + 1])
def test_a_whole_number_is_never_rounded(tmp_path: Path, ending: str, number: int) -> None:
    """It was read as the nearest float64."""
    path = tmp_path / f"a{ending}"
    path.write_text(f"1\n{number}\n")
    with pytest.raises(TaskError, match=f"float64 would round {number}: name a dtype"):
        read_file(path, NO_FORM)
    path.write_text(f"{2**53}\n{2**60}\n1e300\n")
    assert read_file(path, NO_FORM).tolist() == [2.0**53, 2.0**60, 1e300]
    path.write_text(f"{2**53 + 1}\n")
    assert read_file(path, FileForm("int64")) == 2**53 + 1


def test_a_column_of_identifiers_is_one_of_strings(tmp_path: Path) -> None:
    """Python's float takes 2020_01 for a number, and rounds the other one."""
    (tmp_path / "t.csv").write_text(f"month,user,n\n2020_01,{2**53 + 1},1\n2020_02,5,2\n")
    found = read_file(tmp_path / "t.csv", NO_FORM)
    assert found["month"].tolist() == ["2020_01", "2020_02"]
    assert found["user"].tolist() == [str(2**53 + 1), "5"]
    assert found["n"].tolist() == [1.0, 2.0]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,a\n1,2,3\n")
    with pytest.raises(TaskError, match="two columns are named 'a'"):
        read_file(tmp_path / "t.csv", NO_FORM)


def test_a_table_has_a_header(tmp_path: Path) -> None:
    table = {"x": np.array([1.5, 2.0]), "name": np.array(["a,b", 'q"'])}
    write_file(tmp_path / "t.csv", table, NO_FORM)
    assert (tmp_path / "t.csv").read_text() == 'x,name\n1.5,"a,b"\n2.0,"q"""\n'
    found = read_file(tmp_path / "t.csv", NO_FORM)
    assert list(found) == ["x", "name"]
    assert all(same(found[k], table[k]) for k in table)


def test_a_table_of_another_program(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfa,b\r\n1,2\r\n\r\n3,4\r\n")
    found = read_file(tmp_path / "t.csv", NO_FORM)
    assert {k: v.tolist() for k, v in found.items()} == {"a": [1, 3], "b": [2, 4]}
    (tmp_path / "e.csv").write_text("a,b\n")
    assert {k: v.shape for k, v in read_file(tmp_path / "e.csv", NO_FORM).items()} == {
        "a": (0,),
        "b": (0,),
    }


def test_json(tmp_path: Path) -> None:
    value = {"a": [1, 2.5, None, True, "t"], "b": {"c": np.arange(2), "d": np.float32(2)}}
    expected = {"a": [1, 2.5, None, True, "t"], "b": {"c": [0, 1], "d": 2.0}}
    assert through(tmp_path / "a.json", value) == expected
    assert json.loads((tmp_path / "a.json").read_text()) == expected


@pytest.mark.parametrize(
    ("form", "data"),
    [(FileForm("float32"), b"\0\0\x80?"), (FileForm(">f4"), b"?\x80\0\0"), (FileForm("u1"), b"\1")],
)
def test_raw_bytes(tmp_path: Path, form: FileForm, data: bytes) -> None:
    write_file(tmp_path / "a.raw", np.array([1], form.dtype), form)
    assert (tmp_path / "a.raw").read_bytes() == data
    found = read_file(tmp_path / "a.raw", form)
    assert found.tolist() == [1]
    assert found.dtype.isnative
    assert found.flags.writeable


def test_raw_without_a_dtype_is_what_the_blob_is(tmp_path: Path) -> None:
    write_file(tmp_path / "a.raw", np.array([1, 2], ">i2"), NO_FORM)
    assert (tmp_path / "a.raw").read_bytes() == b"\1\0\2\0"


def test_folders_are_made(tmp_path: Path) -> None:
    assert through(tmp_path / "deep" / "er" / "a.txt", 1.0) == 1.0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("a.txt", None, "a.txt: it cannot be written: a NoneType is not an array of numbers"),
        ("a.txt", np.zeros((2, 2, 2)), "3 dimensions has no rows and columns; use .npy"),
        ("a.txt", 1j, "values of dtype complex128 cannot be written as text"),
        ("a.npy", {"a": 1}, "a dict is not an array of numbers"),
        ("a.npy", object(), "not an array of numbers"),
        ("a.json", object(), "not a JSON value"),
        ("a.csv", {"a": np.zeros((2, 2))}, "a column of a table is one-dimensional"),
        ("a.csv", {"a": np.zeros(2), "b": 1.0}, "equally long: 'a' has 2, 'b' has 1"),
    ],
)
def test_what_cannot_be_written(tmp_path: Path, name: str, value: Any, message: str) -> None:
    with pytest.raises(TaskError) as caught:
        write_file(tmp_path / name, value, NO_FORM)
    assert message in caught.value.message


@pytest.mark.parametrize(("name", "number"), [("a.raw", 300), ("a.txt", -129), ("a.csv", 128)])
def test_a_number_that_does_not_fit_is_refused(tmp_path: Path, name: str, number: int) -> None:
    """It was written modulo 256."""
    with pytest.raises(TaskError, match="do not fit into int8"):
        write_file(tmp_path / name, np.array([1, number]), FileForm("int8"))
    (tmp_path / "t.csv").write_text(f"a\n{number}\n")
    with pytest.raises(TaskError, match=r"t.csv, written by the program, cannot be read"):
        read_file(tmp_path / "t.csv", FileForm("int8"))


def test_a_dtype_that_would_change_a_value_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="Cannot cast"):
        write_file(tmp_path / "a.raw", np.array([1.5]), FileForm("int64"))


@pytest.mark.parametrize(
    ("name", "data", "form"),
    [
        ("a.txt", b"1 2\n3\n", NO_FORM),
        ("a.txt", b"one\n", NO_FORM),
        ("a.txt", b"1.5\n", FileForm("int64")),
        ("a.txt", b"1 2 3\n", FileForm(shape=(2, 2))),
        ("a.csv", b"a,b\n1\n", NO_FORM),
        ("a.csv", b"a,b\n\xff,1\n", NO_FORM),
        ("a.json", b"{", NO_FORM),
        ("a.raw", b"123", FileForm("float32")),
        ("a.npy", b"", NO_FORM),
        ("a.npy", b"\x93NUMPY\1\0", NO_FORM),
        ("a.txt", b"\xff\xfe", FileForm("str")),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, name: str, data: bytes, form: FileForm) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TaskError, match=f"^{name}, written by the program, cannot be read: "):
        read_file(tmp_path / name, form)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(TaskError, match="cannot be read"):
        read_file(tmp_path / "a.npy", NO_FORM)


@pytest.mark.parametrize(("dtype", "cell"), [("float64", "x4.5"), ("int64", "1.5")])
def test_a_cell_that_is_not_of_the_dtype_is_named(tmp_path: Path, dtype: str, cell: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"day,cases\n1,2\n3,{cell}\n")
    with pytest.raises(TaskError) as caught:
        read_file(path, FileForm(dtype))
    assert caught.value.message == (
        "t.csv, written by the program, cannot be read: "
        f"column 'cases' holds {cell!r}, which is not {dtype}"
    )
