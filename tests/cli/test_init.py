"""``jobrun init``, and every template to its end, killed on the way too."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun import load_blobs
from jobrun.jobspec.schema import schema_text
from jobrun.jobspec.validate import validate_spec
from jobrun.templates import TEMPLATES, template_files

from .conftest import environment

NEEDS = {"torch": "torch", "jax": "optax", "sklearn": "sklearn", "xgboost": "xgboost"}
LONG = bool(os.environ.get("JOBRUN_LONG"))
SUPPORT = Path(__file__).parents[1] / "support"


def test_the_name_of_a_template_is_no_new_directory(call: Callable[..., Any], folder: Path) -> None:
    result = call("init", "kmeans")
    assert result.code == 2
    assert result.err == (
        "error: kmeans is a template, and there is no directory of that name\n"
        "  hint: jobrun init --template kmeans, or for a new directory: jobrun init ./kmeans\n"
    )
    assert list(folder.iterdir()) == []
    assert call("init", "./kmeans").code == 0
    assert (folder / "kmeans/mlp.yaml").is_file()
    assert call("init", "kmeans").code == 0, "the directory is there"
    assert call("init", "heat", "--template", "heat").code == 0, "both are said"
    assert call("init", "--list").out.endswith("\njobrun init --template NAME\n")


def test_what_it_writes_and_says(call: Callable[..., Any], folder: Path) -> None:
    result = call("init", "--template", "kmeans")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(
        "kmeans.py written\nkmeans.yaml written\njobrun.schema.json written\n\n"
    )
    assert result.out.rstrip().endswith("train kmeans.yaml")
    assert sorted(p.name for p in folder.iterdir()) == [
        *("jobrun.schema.json", "kmeans.py", "kmeans.yaml")
    ]
    assert (folder / "jobrun.schema.json").read_text(encoding="utf-8") == schema_text()
    first = (folder / "kmeans.yaml").read_text(encoding="utf-8").splitlines()[0]
    assert first == "# yaml-language-server: $schema=./jobrun.schema.json"


def test_a_directory_is_made(call: Callable[..., Any], folder: Path) -> None:
    result = call("init", "my jobs/first", "--json")
    assert json.loads(result.out) == {
        "template": "mlp",
        "written": [
            f"my jobs/first/{name}" for name in ("mlp.py", "mlp.yaml", "jobrun.schema.json")
        ],
    }
    assert call("init", "my jobs/first").out.rstrip().endswith("train 'my jobs/first/mlp.yaml'")


def test_files_that_are_there_are_not_touched(call: Callable[..., Any], folder: Path) -> None:
    assert call("init", "-q").out == ""
    assert call("init").code == 0, "the same files are no obstacle"
    (folder / "mlp.yaml").write_text("mine\n")
    (folder / "mlp.py").unlink()
    result = call("init")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "error: mlp.yaml already exists; nothing was written\n"
        "  hint: --force overwrites, or name another directory: jobrun init DIR\n"
    )
    assert (folder / "mlp.yaml").read_text() == "mine\n"
    assert not (folder / "mlp.py").exists()
    assert call("init", "--force").code == 0
    assert (folder / "mlp.yaml").read_bytes() == template_files("mlp")["mlp.yaml"]
    (folder / "jobrun.schema.json").write_text("{}")
    assert call("init").code == 0, "the schema is ours"
    (folder / "heat.py").mkdir()
    (folder / "heat.yaml").symlink_to("nowhere")
    result = call("init", "--template", "heat")
    assert "error: heat.py, heat.yaml already exist" in result.err


def test_a_directory_that_cannot_be_made(call: Callable[..., Any], folder: Path) -> None:
    (folder / "file").write_text("")
    result = call("init", "file/below")
    assert (result.code, result.out) == (2, "")
    assert result.err == "error: file/below cannot be written: Not a directory\n"


def test_runs_are_ignored_where_there_is_a_repository(
    call: Callable[..., Any], folder: Path
) -> None:
    (folder / ".git").mkdir()
    (folder / ".gitignore").write_text("*.pyc")
    result = call("init", "jobs/first", "--template", "minimal")
    assert (result.code, result.err) == (0, "")
    assert "\njobs/first/jobrun.schema.json written\n.gitignore written\n\n" in result.out
    assert (folder / ".gitignore").read_text() == "*.pyc\nruns/\n"
    assert ".gitignore" not in call("init", "jobs/second").out
    for line in ("/runs/\n", "runs\n"):
        (folder / ".gitignore").write_text(line)
        assert call("init", "jobs/first", "--template", "minimal").code == 0
        assert (folder / ".gitignore").read_text() == line
    (folder / ".gitignore").unlink()
    assert call("init", "jobs/first", "--template", "minimal").code == 0
    assert (folder / ".gitignore").read_text() == "runs/\n"
    (folder / ".gitignore").write_bytes(b"\xff")
    result = call("init", "jobs/first", "--template", "minimal")
    assert result.code == 2
    assert result.err == (
        "error: .gitignore cannot be changed: it is not UTF-8\n  hint: add a line: runs/\n"
    )


def test_the_list(call: Callable[..., Any], folder: Path) -> None:
    result = call("init", "--list")
    assert (result.code, result.err) == (0, "")
    assert [line.split()[0] for line in result.out.splitlines()[:-2]] == list(TEMPLATES)
    assert max(len(line) for line in result.out.splitlines()) <= 100
    assert [t["name"] for t in json.loads(call("init", "--list", "--json").out)] == list(TEMPLATES)
    assert not list(folder.iterdir())
    wrong = call("init", "--template", "mpl")
    assert wrong.code == 2
    assert "'minimal', 'mlp', 'kmeans', 'mcmc', 'heat', 'torch', 'jax'" in wrong.err


# The templates.


def test_every_template_is_listed_and_packed() -> None:
    folders = {entry.name for entry in files("jobrun.templates").iterdir() if entry.is_dir()}
    assert folders - {"__pycache__"} == set(TEMPLATES)
    for name in TEMPLATES:
        assert f"{name}.yaml" in template_files(name)
        assert "__pycache__" not in template_files(name)


@pytest.fixture(params=list(TEMPLATES))
def template(request: pytest.FixtureRequest, folder: Path) -> str:
    """A template, written to the current directory."""
    name: str = request.param
    if find_spec(NEEDS.get(name, "numpy")) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    if name == "shell" and not (shutil.which("awk") and shutil.which("bash")):
        pytest.skip("no awk")
    for file, data in template_files(name).items():
        (folder / file).write_bytes(data)
    return name


def test_a_template_is_good_style(template: str, folder: Path) -> None:
    job = validate_spec(folder / f"{template}.yaml", import_=True)
    assert job.metrics
    assert {"epochs", "when"} <= {c.kind for c in job.conditions}
    assert len(job.groups["exit"]) == (template != "minimal")
    for file in folder.iterdir():
        if file.suffix in (".yaml", ".py", ".awk"):
            lines = file.read_text(encoding="utf-8").splitlines()
            assert max(map(len, lines)) <= 100
            assert lines[0].startswith(("#", '"""'))


def test_a_template_runs_to_its_end_and_the_same_when_killed(
    template: str, jobrun: Callable[..., Any], folder: Path
) -> None:
    spec = f"{template}.yaml"
    whole = jobrun("train", spec, "--runs-dir", "whole")
    assert whole.code == 0, whole.err
    assert f"{template}: finished after " in whole.out
    assert "epochs done" not in whole.out, "a condition ends it before the limit"
    if template in NEEDS and not LONG:
        return  # tests/libraries kills such jobs
    killed = subprocess.run(
        [sys.executable, "-m", "killed_at", "5", "train", spec, "--runs-dir", "killed"],
        cwd=folder,
        env={**environment(), "PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    resumed = jobrun("train", spec, "--runs-dir", "killed")
    assert resumed.code == 0, resumed.err
    first, second = (load_blobs(f"{run}/{template}") for run in ("whole", "killed"))
    assert first.keys() == second.keys()
    same = [(np.asarray(first[k]).tobytes(), np.asarray(second[k]).tobytes()) for k in first]
    assert len(same) > 0
    assert all(a == b for a, b in same)
    assert [f.name for f in (folder / "whole" / template).glob("*.[tp]*")]


def test_a_heat_step_that_is_too_large_fails(jobrun: Callable[..., Any], folder: Path) -> None:
    for file, data in template_files("heat").items():
        (folder / file).write_bytes(data)
    result = jobrun("train", "heat.yaml", "--set", "rate=0.3")
    assert result.code == 7
    assert "when: change > 1" in result.out
