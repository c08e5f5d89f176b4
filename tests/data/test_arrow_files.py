"""Parquet and Feather files as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun.data import arrow_files
from jobrun.data.opening import open_files
from jobrun.data.source import TEXT, Table
from jobrun.errors import DataError
from jobrun.model.rows import FileOptions

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = 20
X = np.arange(ROWS) * 0.5


def columns() -> dict[str, Any]:
    return {
        "x": X,
        "n": np.arange(ROWS, dtype=np.int16),
        "name": [f"r{n}" for n in range(ROWS)],
        "kind": pa.array(["u", "v"] * (ROWS // 2)).dictionary_encode(),
        "day": pa.array([0, 1] * (ROWS // 2), pa.date32()),
        "at": pa.array(range(ROWS), pa.timestamp("ms", "Europe/Berlin")),
        "flag": [n % 3 == 0 for n in range(ROWS)],
        "pixels": [[n, n + 1, n + 2] for n in range(ROWS)],
        "gap": pa.array([None if n == 7 else n for n in range(ROWS)]),
        "hole": pa.array([None if n == 7 else n / 2 for n in range(ROWS)]),
    }


@pytest.fixture(params=["d.parquet", "d.feather", "d.arrow"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return write(tmp_path / request.param, pa.table(columns()))


def write(path: Path, table: Any, rows: int = 6) -> Path:
    """Write a table in groups of ``rows`` rows."""
    if path.suffix == ".parquet":
        pq.write_table(
            table, path, row_group_size=rows, write_page_checksum=True, use_dictionary=False
        )
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
    return path


def table(path: Path, *names: str, types: dict[str, str] | None = None) -> Table:
    found = open_files(path, {n: n for n in names}, FileOptions(types or {}))
    assert isinstance(found, Table)
    return found


def test_columns_have_the_dtypes_of_the_file(path: Path) -> None:
    found = table(path, *(n for n in columns() if n != "gap"))
    assert found.rows == ROWS
    assert dict(found.dtypes) == {
        "x": "<f8",
        "n": "<i2",
        "name": TEXT,
        "kind": TEXT,
        "day": "<M8[D]",
        "at": "<M8[ms]",
        "flag": "|b1",
        "pixels": "<i8",
        "hole": "<f8",
    }
    rows = found.slice(4, 9)
    assert rows["name"].tolist() == ["r4", "r5", "r6", "r7", "r8"]
    assert rows["kind"].tolist() == ["u", "v", "u", "v", "u"]
    assert rows["pixels"].tolist() == [[n, n + 1, n + 2] for n in range(4, 9)]
    assert rows["at"].astype(int).tolist() == [4, 5, 6, 7, 8]
    assert str(rows["day"][1]) == "1970-01-02"
    assert np.isnan(rows["hole"][3])
    assert not any(a.flags.writeable for a in rows.values())
    assert all(a.flags.c_contiguous for a in rows.values())


@pytest.mark.parametrize(
    ("low", "high", "step"), [(0, 20, 1), (5, 7, 1), (19, 20, 1), (1, 18, 3), (20, 20, 1)]
)
def test_rows_are_those_of_the_file(path: Path, low: int, high: int, step: int) -> None:
    rows = table(path, "x", "n").slice(low, high, step)
    assert rows["x"].tolist() == X[low:high:step].tolist()
    assert rows["n"].tolist() == list(range(ROWS))[low:high:step]


def test_any_rows_in_any_order(path: Path) -> None:
    order = np.random.default_rng(0).permutation(ROWS)
    assert table(path, "x").take(order[3:15])["x"].tolist() == X[order[3:15]].tolist()


def test_a_group_is_decoded_once_for_the_batches_within(path: Path) -> None:
    found: Any = table(path, "x")
    read, numbers = found._read, []
    found._read = lambda number, names: (numbers.append(number), read(number, names))[1]
    for low in range(0, ROWS, 2):
        found.slice(low, low + 2)
    assert numbers == [0, 1, 2, 3]


def test_what_is_too_large_is_not_read_in_any_order(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_files, "MOST_WHOLE", 20)
    with pytest.raises(DataError, match="in any order") as caught:
        table(path, "x").take(np.arange(3))
    assert "shuffle: {buffer:" in caught.value.hint


def test_missing_numbers_are_refused_with_their_row_unless_types_make_them_nan(path: Path) -> None:
    with pytest.raises(DataError, match=r"row 8, column 'gap': there is no value") as caught:
        table(path, "gap").slice(0, ROWS)
    assert "types: {gap: float}" in caught.value.hint
    rows = table(path, "gap", types={"gap": "float"}).slice(6, 9)
    assert (rows["gap"][0], rows["gap"][2]) == (6.0, 8.0)
    assert np.isnan(rows["gap"][1])
    with pytest.raises(DataError, match="'types' names 'gaps'"):
        table(path, "x", types={"gaps": "float"})


def test_a_pattern_makes_a_matrix(path: Path) -> None:
    found = open_files(path, {"m": "[xn]", "y": "x"})
    assert isinstance(found, Table)
    assert found.slice(2, 4)["m"].tolist() == [[1.0, 2.0], [1.5, 3.0]]


def test_lists_of_several_lengths_and_other_types_are_refused(tmp_path: Path) -> None:
    odd = pa.table({"l": [[1], [1, 2]], "s": [{"a": 1}, {"a": 2}], "b": [b"x", b"y"]})
    path = write(tmp_path / "o.parquet", odd)
    with pytest.raises(DataError, match="its lists are of 1 to 2 elements"):
        table(path, "l").slice(0, 2)
    with pytest.raises(DataError, match=r"column 's' is of type struct"):
        table(path, "s")
    with pytest.raises(DataError, match="no column 'z'"):
        table(path, "z")


@pytest.mark.parametrize("cut", [0, 3, 50, -20, -1])
def test_a_file_that_is_cut_is_an_error(path: Path, cut: int) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:cut])
    with pytest.raises(DataError, match="cannot be read"):
        table(path, "x")


def test_damage_to_a_page_is_found(tmp_path: Path) -> None:
    path = write(tmp_path / "d.parquet", pa.table({"x": np.random.default_rng(0).random(99)}), 99)
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read"):
        table(path, "x").slice(0, 99)


def test_files_of_a_pattern_are_one_table(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"p-{number}.parquet", pa.table({"x": X + number}))
    found = open_files(tmp_path / "p-*.parquet", {})
    assert isinstance(found, Table)
    assert found.rows == 3 * ROWS
    assert found.slice(18, 22)["x"].tolist() == [9.0, 9.5, 1.0, 1.5]


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "e.parquet", pa.table({"x": pa.array([], pa.int8())}))
    with pytest.raises(DataError, match="there are no rows"):
        table(path, "x")
