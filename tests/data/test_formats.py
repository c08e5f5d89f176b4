"""The table of formats: what it promises holds for each row."""

from __future__ import annotations

from importlib import import_module
from inspect import signature

import pytest

from jobrun.core.text import either
from jobrun.data.column_types import CELL_KINDS, VALUE_KINDS
from jobrun.data.formats import COLUMN_TYPES, FORMATS, FileFormat, endings, format_of
from jobrun.docs import page
from jobrun.model.rows import FileOptions


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.endings[0])
def test_each_row_names_an_opener_and_options_that_exist(form: FileFormat) -> None:
    module, _, name = form.opener.partition(":")
    assert len(signature(getattr(import_module(module), name)).parameters) == 3
    assert set(form.options) <= set(FileOptions.__dataclass_fields__)
    assert all(e.startswith(".") and e == e.lower() for e in form.endings)


def test_no_ending_belongs_to_two_formats() -> None:
    assert len(set(endings())) == len(endings())


def test_each_ending_is_in_the_table_of_the_documentation() -> None:
    text = page("data")
    assert [e for e in endings() if f"d{e}`" not in text] == []


@pytest.mark.parametrize(
    ("path", "ending"),
    [
        ("d.csv", ".csv"),
        ("a/D.TSV", ".csv"),
        ("part-*.jsonl", ".jsonl"),
        ("d.zarr", ".zarr"),
        ("a/d.zarr/group/x", ".zarr"),
        ("d.zarr/x.npy", ".npy"),
        ("d.csv/x", None),
        ("d.csv.gz", ".csv"),
        ("a.b/D.v2.JSONL.GZ", ".jsonl"),
        ("d.gz", None),
        ("d.npy.gz", None),
        ("d.parquet", ".parquet"),
        ("csv", None),
        (".csv", None),
        ("", None),
    ],
)
def test_the_format_is_that_of_the_ending(path: str, ending: str | None) -> None:
    found = format_of(path)
    assert (None if found is None else found.endings[0]) == ending


def test_types_are_those_that_the_readers_know() -> None:
    assert tuple(CELL_KINDS) == tuple(VALUE_KINDS) == COLUMN_TYPES
    assert either(endings("types")) == (".csv, .tsv, .jsonl, .txt, .parquet, .feather or .arrow")
