"""Jobs of the pages that need other libraries: resumed, they have the same bytes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from examples import ROOT, Page, run
from whole_runs import bytes_of_checkpoints


@pytest.mark.parametrize(
    ("page", "job", "packages"),
    [
        ("libraries", "boost", ["lightgbm", "catboost"]),
        ("coming-from", "fit", ["keras", "torch"]),
    ],
)
def test_a_job_of_a_page_continues_bit_for_bit(
    page: str, job: str, packages: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing := [package for package in packages if find_spec(package) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    Page(ROOT / f"jobrun/docs/{page}.md").write_files(tmp_path)
    run(f"jobrun train {job}.yaml -q --runs-dir whole", tmp_path)
    run(f"jobrun train {job}.yaml -q --runs-dir cut --epochs 2", tmp_path)
    run(f"jobrun train {job}.yaml -q --runs-dir cut", tmp_path)
    whole, cut = (bytes_of_checkpoints(tmp_path / name / job) for name in ("whole", "cut"))
    assert whole == cut
    assert whole
