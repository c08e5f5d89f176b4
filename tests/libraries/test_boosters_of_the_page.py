"""The job of LightGBM and CatBoost on the page ``libraries``: resumed, it has the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples import ROOT, Page, run
from whole_runs import bytes_of_checkpoints

pytest.importorskip("lightgbm")
pytest.importorskip("catboost")


def test_the_boosters_of_the_page_continue_bit_for_bit(tmp_path: Path) -> None:
    Page(ROOT / "jobrun/docs/libraries.md").write_files(tmp_path)
    run("jobrun train boost.yaml -q --runs-dir whole", tmp_path)
    run("jobrun train boost.yaml -q --runs-dir cut --epochs 2", tmp_path)
    run("jobrun train boost.yaml -q --runs-dir cut", tmp_path)
    whole, cut = (bytes_of_checkpoints(tmp_path / name / "boost") for name in ("whole", "cut"))
    assert whole == cut
    assert whole
