"""The archive of the code, and where a worker unpacks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobrun.core.template import template
from jobrun.model.job import Job, Task
from jobrun.session.base import Places

pytest.importorskip("distributed")

from jobrun.session.dask.code import CodeMissingError, archive, packed_job, place_code
from jobrun.session.dask.messages import Setup


@pytest.mark.parametrize("code", [".", "src"])
def test_code_and_data_in_two_folders(code: str, tmp_path: Path) -> None:
    """The spec is in ``configs/``, its code above or beside it."""
    root, configs = tmp_path / "project" / code, tmp_path / "project/configs"
    for folder in (root, configs):
        folder.mkdir(parents=True, exist_ok=True)
    (root / "mine.py").write_text("x = 1\n")
    (configs / "rows.txt").write_text("1\n")
    with Job("j") as job, job.epoch:
        Task("mine:f", with_={"file": template("${spec.dir}/rows.txt")}, out="x")
    places = Places(configs, tmp_path / "run", code_dir=root)
    sent = Setup(packed_job(job), places, ("main",), 1, {}, {"mine.py": "another"}, "0")
    with pytest.raises(CodeMissingError):
        place_code(sent, str(tmp_path))
    sent = Setup(sent.job, places, ("main",), 1, {}, sent.code, "0", archive(job, places))
    _, there = place_code(sent, str(tmp_path))
    assert there.code is not None
    assert there.code != root
    assert (there.code / "mine.py").read_text() == "x = 1\n"
    assert (there.folder / "rows.txt").read_text() == "1\n"
    assert there.run_dir == tmp_path / "run"
