"""Tables and sparse matrices as blobs of whole runs: read, updated, replaced, killed, resumed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine import Driver
from whole_runs import bytes_of_checkpoints, train, train_and_die

from jobrun.errors import DataError, TaskError
from jobrun.model.job import Job, Pipe, Task

ROWS = 50


def pandas_table() -> Any:
    import pandas as pd

    return pd.DataFrame(
        {"x": np.arange(ROWS) / 3, "name": [f"r{n}" for n in range(ROWS)], "n": np.arange(ROWS)}
    )


def pandas_step(table: Any) -> Any:
    table = table.assign(x=table["x"] * 1.1 + table["n"])
    return table.sort_values("x", ascending=False, kind="stable")


def polars_table() -> Any:
    import polars as pl

    return pl.DataFrame(
        {"x": np.arange(ROWS) / 3, "name": [f"r{n}" for n in range(ROWS)], "n": np.arange(ROWS)}
    )


def polars_step(table: Any) -> Any:
    import polars as pl

    return table.with_columns(pl.col("x") * 1.1 + pl.col("n")).sort("x", descending=True)


def arrow_table() -> Any:
    import pyarrow as pa

    names = [None if n % 7 == 0 else f"r{n}" for n in range(ROWS)]
    return pa.table({"x": np.arange(ROWS) / 3, "name": names})


def arrow_step(table: Any) -> Any:
    import pyarrow.compute as pc

    return table.set_column(0, "x", pc.multiply(table["x"], 1.1)).sort_by([("x", "descending")])


def sparse_matrix() -> Any:
    import scipy.sparse as sp

    return sp.random_array((ROWS, ROWS), density=0.1, format="csr", rng=np.random.default_rng(3))


def sparse_step(matrix: Any) -> Any:
    return (matrix @ matrix.T) * 0.1


KINDS = {
    "pandas": (pandas_table, pandas_step),
    "polars": (polars_table, polars_step),
    "pyarrow": (arrow_table, arrow_step),
    "scipy": (sparse_matrix, sparse_step),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    pytest.importorskip(request.param)
    return KINDS[request.param]


def job_of(make: Callable[[], Any], step: Callable[[Any], Any]) -> Job:
    """A job that replaces a table in each epoch, beside one that stays as it was."""
    job = Job("tables")
    with job.init:
        Task(make, out="table", name="make")
        Task(make, out="fixed", name="make_fixed")
    with job.epoch:
        Task(step, "table", out="table", name="step")
        Task(lambda table, fixed: table.shape[0], ["table", "fixed"], out="rows", name="count")
    job.stop(epochs=4)
    return job


def test_a_run_that_died_and_one_that_did_not_have_the_same_checkpoints(
    kind: tuple[Callable[[], Any], Callable[[Any], Any]], tmp_path: Path
) -> None:
    train(job_of(*kind), tmp_path / "alone")
    train_and_die(job_of(*kind), tmp_path / "died", 2)
    train(job_of(*kind), tmp_path / "died")
    one, other = (bytes_of_checkpoints(tmp_path / name) for name in ("alone", "died"))
    assert list(one) == list(other)
    assert [name for name in one if one[name] != other[name]] == []


def updating(make: Callable[[], Any], change: Callable[[Any], None], role: str) -> Job:
    job = Job("tables")
    with job.init:
        Task(make, out="table", name="make")
    with job.epoch:
        Task(lambda table: change(table), **{role: "table"}, name="change")
    return job


def set_column(table: Any) -> None:
    table["x"] = np.zeros(ROWS)


def set_element(table: Any) -> None:
    table.loc[3, "x"] = 7.0


@pytest.mark.parametrize("change", [set_column, set_element])
def test_a_data_frame_is_changed_under_update_alone(change: Callable[[Any], None]) -> None:
    pytest.importorskip("pandas")
    driver = Driver(updating(pandas_table, change, "update"), 1).start().epochs(1)
    assert driver.blob("table")["x"][3] == (0.0 if change is set_column else 7.0)
    with pytest.raises(TaskError, match=r"changed an input in place|read-only") as caught:
        Driver(updating(pandas_table, change, "in_"), 1).start().epochs(1)
    assert "'update'" in caught.value.hint


def test_a_series_of_polars_is_changed_under_update_alone() -> None:
    pl = pytest.importorskip("polars")

    def change(table: Any) -> None:
        table[0, "x"] = 7.0

    make = polars_table
    driver = Driver(updating(make, change, "update"), 1).start().epochs(1)
    assert driver.blob("table")["x"][0] == 7.0
    with pytest.raises(TaskError, match="changed an input in place"):
        Driver(updating(make, change, "in_"), 1).start().epochs(1)
    assert isinstance(driver.blob("table"), pl.DataFrame)


def by_pointer(table: Any) -> None:
    ctypes.memset(table["x"].to_numpy().ctypes.data, 1, 1)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_what_is_written_by_a_pointer_is_found_by_the_check(kind: str) -> None:
    pytest.importorskip(kind)
    job = updating(KINDS[kind][0], by_pointer, "in_")
    with pytest.raises(TaskError, match=r"changed one of its inputs \('table"):
        Driver(job, 1, check_inputs=True).start().epochs(2)


def test_a_pipe_reads_columns_of_a_table_by_their_paths() -> None:
    pytest.importorskip("pandas")
    seen: list[int] = []

    def job_of_path(path: str) -> Job:
        job = Job("tables")
        with job.setup:
            Task(pandas_table, out="table", name="make")
        with job.epoch:
            Pipe({"x": path}, 8, do=[Task(lambda x: seen.extend(x.tolist()), "x", name="take")])
        return job

    Driver(job_of_path("table/data/n"), 1).start().epochs(1)
    assert seen == list(range(ROWS))
    with pytest.raises(DataError, match=r"'table' is a pandas\.DataFrame, not an array") as caught:
        Driver(job_of_path("table"), 1).start().epochs(1)
    assert "name an array in it, e.g. 'table/data/x'" in caught.value.hint
