"""``metrics.csv`` is read back as it was written, and from its end."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.core.events import EpochFinished, RunStarted
from jobrun.report.metrics_file import MetricsFile
from jobrun.runs.metrics_csv import EpochRow, column, parse, read_rows, tail


def written(folder: Path, rows: list[dict[str, Any]], names: list[str]) -> Path:
    """The file that a run writes, one row an epoch."""
    path = folder / "metrics.csv"
    keep = MetricsFile(path, folder / "events.jsonl")
    keep(RunStarted("j", "j", None, 1, 0, None, None, "", dict.fromkeys(names)))
    for number, metrics in enumerate(rows, 1):
        keep(EpochFinished(number, 0.5, 0.5 * number, metrics))
    return path


@given(st.lists(st.one_of(st.floats(), st.integers(), st.booleans()), min_size=1, max_size=8))
@settings(deadline=None, max_examples=50)
def test_values_come_back(tmp_path_factory: pytest.TempPathFactory, values: list[Any]) -> None:
    names = [f"m{n}" for n in range(len(values))]
    path = written(tmp_path_factory.mktemp("rows"), [dict(zip(names, values, strict=True))], names)
    (row,) = read_rows(path)
    assert (row.epoch, row.seconds, row.elapsed) == (1, 0.5, 0.5)
    for name, value in zip(names, values, strict=True):
        found = row.metrics[name]
        assert type(found) is type(value)
        assert found == value or (math.isnan(found) and math.isnan(value))


def test_metrics_named_like_columns_and_metrics_without_a_value(tmp_path: Path) -> None:
    path = written(tmp_path, [{"seconds": 3}, {"acc[val], x": 1.5}], ["seconds", "acc[val], x"])
    assert column("seconds") == "metric:seconds"
    assert read_rows(path) == [
        EpochRow(1, 0.5, 0.5, {"seconds": 3}),
        EpochRow(2, 0.5, 1.0, {"acc[val], x": 1.5}),
    ]


def test_no_file_and_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    assert read_rows(path) == []
    for text in ("", "a,b\n1,2\n", "epoch,seconds,elapsed\nx,y,z\n1\n"):
        path.write_text(text)
        assert read_rows(path) == []


def test_a_torn_last_line_is_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path, [{"loss": 0.123}, {"loss": 0.5}], ["loss"])
    path.write_bytes(path.read_bytes()[:-2])
    assert [row.epoch for row in read_rows(path)] == [1]


@pytest.mark.parametrize("epoch", [-1, 0, 1, 2500, 4998, 4999, 5000, 9999])
def test_the_end_holds_all_that_is_asked_for(epoch: int, tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    lines = [f"{n},0.5,{n / 2},{n}\n" for n in range(1, 5001)]
    path.write_text("epoch,seconds,elapsed,loss\n" + "".join(lines))
    rows = tail(path, epoch)
    assert [row.epoch for row in rows] == list(range(rows[0].epoch, 5001))
    assert rows[0].epoch <= max(epoch + 1, 1)
    assert all(row.metrics == {"loss": row.epoch} for row in rows)
    if epoch > 4000:
        assert len(rows) < 1000


def test_texts_stay_texts() -> None:
    assert [parse(t) for t in ("1", "-1.5", "True", "NaN+", "1_0 x")] == [
        1,
        -1.5,
        True,
        "NaN+",
        "1_0 x",
    ]
