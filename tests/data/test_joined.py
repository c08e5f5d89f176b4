"""Sources joined side by side and one after another."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.data.joined import concat, zipped
from jobrun.data.source import TEXT, Columns, Source, Stream, Table, TableStream, finished
from jobrun.data.tables import ArrayTable
from jobrun.data.text_files import TextLines
from jobrun.errors import DataError


def table(column: str, *values: Any) -> ArrayTable:
    return ArrayTable({column: np.array(values)}, f"{column}{len(values)}")


def streamed(*tables: Table) -> list[Source]:
    return [TableStream(t) for t in tables]


def everything(source: Source) -> dict[str, list[Any]]:
    if isinstance(source, Table):
        return {c: a.tolist() for c, a in source.slice(0, source.rows).items()}
    assert isinstance(source, Stream)
    return {c: a.tolist() for c, a in finished(source.open().read(10_000)).items()}


def test_a_zip_is_as_long_as_the_shortest() -> None:
    five, three = table("x", *range(5)), table("y", *range(3))
    for sources in ([five, three], [three, five]):
        found = zipped(sources, "z")
        assert found.rows == 3
        assert everything(found) == {"x": [0, 1, 2], "y": [0, 1, 2]}
        assert everything(zipped(streamed(*sources), "z")) == {"x": [0, 1, 2], "y": [0, 1, 2]}
        mixed = zipped([sources[0], *streamed(sources[1])], "z")
        assert everything(mixed) == {"x": [0, 1, 2], "y": [0, 1, 2]}


def test_a_concat_has_the_rows_of_all() -> None:
    parts = [table("x", *range(30)), table("x", *range(30, 130))]
    found = concat(parts, "c")
    assert found.rows == 130
    assert everything(found) == {"x": list(range(130))}
    assert everything(concat(streamed(*parts), "c")) == {"x": list(range(130))}


class Texts(Table):
    """As items of a function: the dtype of a column is as wide as its longest text in a batch."""

    def __init__(self, *values: str) -> None:
        self.name = "texts"
        self.rows = len(values)
        self.dtypes = {"t": TEXT}
        self._values = np.array(values, object)

    @property
    def columns(self) -> tuple[str, ...]:
        return ("t",)

    def slice(self, low: int, high: int, step: int = 1) -> Columns:
        return finished({"t": self._values[low:high:step]})

    def take(self, rows: Any) -> Columns:
        return finished({"t": self._values[rows]})


@pytest.mark.parametrize("texts", [["a", "b", "longer", "c"], ["longer", "a", "b", "c"]])
def test_texts_of_several_tables_are_kept_whole(texts: list[str]) -> None:
    found = concat([Texts(*texts[:2]), Texts(*texts[2:])], "c")
    assert isinstance(found, Table)
    assert found.slice(1, 3)["t"].tolist() == texts[1:3]
    assert found.take(np.array([2, 0, 3]))["t"].tolist() == [texts[2], texts[0], texts[3]]
    assert not found.take(np.array([2, 0]))["t"].flags.writeable


def test_columns_of_one_name_cannot_be_zipped() -> None:
    with pytest.raises(DataError, match="both x1 and x2 have a column 'x'"):
        zipped([table("x", 1), table("x", 1, 2)], "z")


def test_sources_that_differ_cannot_be_put_one_after_another() -> None:
    with pytest.raises(DataError, match="y1 has the columns y, but x1 has x"):
        concat([table("x", 1), table("y", 1)], "c")
    with pytest.raises(DataError, match="dtype <f8 in x2, but of <i8 in x1"):
        concat([table("x", 1), table("x", 1.0, 2.0)], "c")
    wide = ArrayTable({"x": np.zeros((2, 3))}, "wide")
    other = ArrayTable({"x": np.zeros((2, 4))}, "other")
    for sources in ([wide, other], streamed(wide, other)):
        with pytest.raises(DataError, match=r"of shape \(4,\), but those before .* \(3,\)"):
            everything(concat(sources, "c"))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.data())
def test_any_rows_of_a_concat(sizes: list[int], data: st.DataObject) -> None:
    total = sum(sizes)
    starts = np.cumsum([0, *sizes])
    parts = [table("x", *range(starts[i], starts[i + 1])) for i in range(len(sizes))]
    found = concat(parts, "c")
    assert isinstance(found, Table)
    low = data.draw(st.integers(0, total - 1))
    high, step = data.draw(st.integers(low + 1, total)), data.draw(st.integers(1, 3))
    assert found.slice(low, high, step)["x"].tolist() == list(range(low, high, step))
    rows = np.array(data.draw(st.permutations(range(total))))
    assert found.take(rows)["x"].tolist() == rows.tolist()
    assert not found.take(rows)["x"].flags.writeable


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.lists(st.integers(1, 5), max_size=6))
def test_any_place_of_a_join_is_found_again(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], reads: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("d")
    texts = [[f"{n}.{i}" for i in range(size)] for n, size in enumerate(sizes)]
    for number, lines in enumerate(texts):
        (folder / f"{number}.txt").write_text("".join(f"{line}\n" for line in lines))
    wanted = [line for lines in texts for line in lines]

    def source() -> Stream:
        files = [TextLines(folder / f"{n}.txt", {}) for n in range(len(sizes))]
        found = zipped([table("x", *range(len(wanted))), concat(files, "c")], "z")
        assert isinstance(found, Stream)
        return found

    row, mark, seen = 0, None, []
    for count in [*reads, len(wanted)]:
        cursor = source().open(row, mark)
        columns = cursor.read(count)
        seen += list(zip(columns["x"].tolist(), columns["line"].tolist(), strict=True))
        row, mark = cursor.row, json.loads(json.dumps(cursor.mark()))
    assert seen == list(enumerate(wanted))
