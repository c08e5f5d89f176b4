"""Code that has changed since a job imported it is imported again, and nothing else is."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from jobrun.model.job import Job, Task
from jobrun.usercode import imported
from jobrun.usercode.bind import bind_job


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)


def a_job(fn: str) -> Job:
    with Job("j") as job:
        Task(fn, out="x")
    job.stop(epochs=1)
    return job


def test_changed_code_is_imported_again(tmp_path: Path) -> None:
    """A notebook that ran its job again after a change ran the old code, and recorded the new."""
    text = "import again_q, again_r\n\n\ndef step():\n    return again_q.n, again_r.n\n"
    write(tmp_path, again_p=text, again_q="n = 1\n", again_r="n = 1\n")
    sys.path.insert(0, str(tmp_path))
    own = importlib.import_module("again_r")  # by the user's own code, to which it belongs
    job = a_job("again_p:step")
    assert bind_job(job, tmp_path)["again_p:step"]() == (1, 1)
    loaded = sys.modules["again_q"]
    bind_job(job, tmp_path)
    assert sys.modules["again_q"] is loaded
    write(tmp_path, again_q="n = 2000\n", again_r="n = 2000\n")
    assert bind_job(job, tmp_path)["again_p:step"]() == (2000, 1)
    assert sys.modules["again_r"] is own


def test_packages_of_an_environment_below_the_folder_are_left_alone(tmp_path: Path) -> None:
    """They are thousands of files, and a library such as PyTorch cannot be imported twice."""
    installed = tmp_path / ".venv/lib/python3/site-packages"
    write(installed, again_library="n = 1\n")
    sys.path.append(str(installed))
    write(tmp_path, again_s="import again_library\n\n\ndef step():\n    return 1\n")
    job = a_job("again_s:step")
    bind_job(job, tmp_path)
    library = sys.modules["again_library"]
    assert imported._imported[str(tmp_path)] == {"again_s": "again_s.py"}
    write(tmp_path, again_s="import again_library\n\n\ndef step():\n    return 2000\n")
    assert bind_job(job, tmp_path)["again_s:step"]() == 2000
    assert sys.modules["again_library"] is library
