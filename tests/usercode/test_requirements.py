"""What a job needs beside its functions is found missing before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobrun.core.template import template
from jobrun.errors import BindError, Where
from jobrun.model.job import Job, Pipe, Task
from jobrun.model.options import Load
from jobrun.model.policy import Upload
from jobrun.model.shell import Shell
from jobrun.usercode.bind import bind_job
from jobrun.usercode.requirements import task_needs

MARK = Where("s.yaml", 4, 7)


def two(x: Any, y: Any = 1) -> None: ...


def test_variables_of_the_environment_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    with Job("test") as job:
        Task(two, "x", with_={"y": [template("${env.JOBRUN_UNSET}")]}, marks={"with:y": MARK})
        Pipe(file=template("${env.JOBRUN_SET}/x.npz"), do=[Task(two, "x")])
    monkeypatch.setenv("JOBRUN_SET", "1")
    with pytest.raises(BindError, match="variable JOBRUN_UNSET is not set") as caught:
        bind_job(job)
    assert caught.value.where == MARK
    monkeypatch.setenv("JOBRUN_UNSET", "1")
    assert bind_job(job) == {}


def test_every_text_that_is_rendered_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    text = template("${env.JOBRUN_UNSET}/a.npz")
    for task in (
        Task(Load(text), out={"w": "w"}),
        Task(Load(file=text), out={"w": "w"}),
        Task(Shell("${env.JOBRUN_UNSET} x")),
        Pipe(zip=[Pipe(file=text, do=[Task(two)]).reader.data], do=[Task(two)]),
    ):
        assert [p.hint for p in task_needs(task, None)] == ["export JOBRUN_UNSET=…"]


@pytest.mark.parametrize("mode", [0o644, 0o755, None])
def test_programs_are_found_beside_the_spec(
    mode: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    if mode is not None:
        (tmp_path / "relax").write_text("#!/bin/sh\n")
        (tmp_path / "relax").chmod(mode)
    for command in ("relax -f", "./relax -f"):
        found = [
            (p.message.partition("'")[0], p.where)
            for p in task_needs(Task(Shell(command), marks={"shell": MARK}), tmp_path)
        ]
        assert found == {
            0o755: [], 0o644: [("the program ", MARK)], None: [("there is no program ", MARK)],
        }[mode]  # fmt: skip


def test_the_upload_and_what_it_calls_come_at_once(tmp_path: Path) -> None:
    (tmp_path / "needs_a.py").write_text("def f(path):\n    pass\n")
    literals = {"token": template("${env.JOBRUN_UNSET}")}
    job = Job("test", upload=Upload(call="needs_a:g", literals=literals))
    with pytest.raises(BindError) as caught:
        bind_job(job, tmp_path)
    for part in ("'needs_a' has no 'g'", "variable JOBRUN_UNSET is not set"):
        assert part in str(caught.value)


def test_files_of_weights_that_no_package_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def needs(file: str) -> list[tuple[str, str | None]]:
        task = Task(Load(file=template(file)), out={"w": "w"})
        return [(p.message, p.hint) for p in task_needs(task, None)]

    assert needs("x.npz") == []
    assert needs("${spec.dir}") == []
    [(message, hint)] = needs("x.safetensor")
    assert message == "unknown ending '.safetensor' of a file of weights"
    assert ".safetensors" in (hint or "")
    monkeypatch.setattr("jobrun.data.weights.find_spec", lambda name: None)
    text = "a .pt file is read by torch, which is not installed"
    assert needs("x.pt") == [(text, "pip install torch")]
