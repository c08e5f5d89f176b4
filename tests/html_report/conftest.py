"""Runs to report on: trained once, copied and edited."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from report_runs import HOSTILE, trained

from jobrun.runs.rundir import RunDir


@pytest.fixture(scope="session")
def three(tmp_path_factory: pytest.TempPathFactory) -> list[RunDir]:
    """Three runs: two of other vars, and one whose process was killed after its first epochs.

    The first has a metric and a line of its log that try to become HTML.
    """
    folder = tmp_path_factory.mktemp("three")
    first = trained(folder, 8, 2, "label=<b>bold</b>")
    second = trained(folder, 8, 2, "rate=0.2")
    third = trained(folder, 8, 2, "rate=0.5")
    _killed(third)
    rows = (first / "metrics.csv").read_text().splitlines()
    named = [f"{rows[0]},{HOSTILE}", *(f"{row},{n}" for n, row in enumerate(rows[1:]))]
    (first / "metrics.csv").write_text("\n".join(named) + "\n")
    with (first / "log.txt").open("a") as log:
        log.write(f"2026-11-28T10:00:00Z [step, epoch 8] {HOSTILE}\n")
    return [RunDir(path) for path in (first, second, third)]


def _killed(path: Path) -> None:
    """Take the end of a run away from its events, as a kill does."""
    lines = (path / "events.jsonl").read_text().splitlines(keepends=True)
    (path / "events.jsonl").write_text("".join(x for x in lines if '"RunEnded"' not in x))
    text = (path / "run.json").read_text()
    (path / "run.json").write_text(text.replace('"state": "finished"', '"state": "running"'))


@pytest.fixture(scope="session")
def twenty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunDir]]:
    """Twenty runs of 1,000 epochs each."""
    folder = tmp_path_factory.mktemp("twenty")
    first = trained(folder, 1000, 500)
    paths = [first, *(first.with_name(f"many-{n}") for n in range(2, 21))]
    for path in paths[1:]:
        shutil.copytree(first, path)
    yield [RunDir(path) for path in paths]
    shutil.rmtree(folder)
