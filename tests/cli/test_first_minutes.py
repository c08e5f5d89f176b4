"""Mistakes of the first ten minutes, and of directories: each message says what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Call = Callable[..., Any]
Write = Callable[..., None]

READ = (
    'init:\n  - {call: "steps:start"',
    'setup:\n  - {call: "steps:read", with: {file: rows.txt}, out: rows}\n'
    'init:\n  - {call: "steps:start"',
)
CODE = ("def start():", "def read(file):\n    return open(file).read()\n\ndef start():")


def test_a_relative_path_that_is_beside_the_spec(call: Call, write: Write, folder: Path) -> None:
    write(READ, CODE, at="specs")
    (folder / "specs/rows.txt").write_text("1\n")
    result = call("train", "specs/sum.yaml")
    assert result.code == 1
    assert (
        '  hint: rows.txt is in the folder of the spec: with: {file: "${spec.dir}/rows.txt"}\n'
    ) in result.err
    (folder / "specs/rows.txt").unlink()
    assert "folder of the spec" not in call("train", "specs/sum.yaml").err
    write(READ, CODE, ("file: rows.txt", 'file: "${spec.dir}/rows.txt"'), at="specs")
    (folder / "specs/rows.txt").write_text("1\n")
    assert call("train", "specs/sum.yaml", "--fresh").code == 0


def test_code_above_the_spec(jobrun: Call, write: Write, folder: Path) -> None:
    write(at="project")
    (folder / "project/configs").mkdir()
    (folder / "project/sum.yaml").rename(folder / "project/configs/sum.yaml")
    result = jobrun("validate", "--import", "project/configs/sum.yaml")
    assert result.code == 4
    above = (folder / "project").resolve()
    assert f"  hint: it is in {above}: add --code project\n" in result.err
    assert jobrun("train", "project/configs/sum.yaml", "--code", "project").code == 0


def test_a_spec_inside_a_package(jobrun: Call, write: Write, folder: Path) -> None:
    write(("steps:", "inner:"), at="pack")
    (folder / "pack/__init__.py").write_text("")
    (folder / "pack/inner.py").write_text("from .steps import add, loss_of, start\n")
    result = jobrun("validate", "--import", "pack/sum.yaml")
    assert result.code == 4
    hint = "call pack.module:function, and add --code .\n"
    assert f"  hint: it is a module of the package 'pack': {hint}" in result.err


def test_a_link_to_a_spec(jobrun: Call, write: Write, folder: Path) -> None:
    write(at="there")
    (folder / "here").mkdir()
    (folder / "here/sum.yaml").symlink_to("../there/sum.yaml")
    result = jobrun("validate", "--import", "here/sum.yaml")
    assert result.code == 4
    hint = "  hint: the spec is a link, and the code is beside its target: add --code there\n"
    assert hint in result.err
    assert jobrun("train", "here/sum.yaml", "--code", "there").code == 0


def test_a_directory_that_is_called_like_a_checkpoint(
    call: Call, write: Write, folder: Path
) -> None:
    write()
    call("train", "sum.yaml")
    (folder / "runs/sum/checkpoint_9").mkdir()
    result = call("load-blobs", "runs/sum/checkpoint_9")
    assert (result.code, result.out) == (5, "")
    assert result.err == (
        "error: runs/sum/checkpoint_9: not a whole checkpoint: _SUCCESS: it is missing\n"
        "  hint: those of the run: jobrun checkpoints list runs/sum\n"
    )


def lose(file: Path, text: str | None) -> None:
    """Remove a file, or leave only ``text`` of it."""
    file.unlink(missing_ok=True)
    if text is not None:
        file.write_text(text)


def test_train_takes_the_folder_of_the_code_that_it_was_given_before(
    jobrun: Call, write: Write, folder: Path
) -> None:
    write()
    (folder / "configs").mkdir()
    (folder / "sum.yaml").rename(folder / "configs/sum.yaml")
    assert jobrun("train", "configs/sum.yaml").code == 4
    assert jobrun("train", "configs/sum.yaml", "--code", ".").code == 0
    longer = jobrun("train", "configs/sum.yaml", "--epochs", "4")
    assert (longer.code, longer.out.splitlines()[0]) == (
        0,
        "sum: finished after 4 epochs: 4 epochs done",
    )
    assert jobrun("train", "configs/sum.yaml", "--fresh").code == 0
    (folder / "runs/sum-2/run.json").unlink()
    assert jobrun("resume", "runs/sum-2", "--epochs", "4").code == 0


def test_a_run_without_its_run_json(call: Call, write: Write, folder: Path) -> None:
    write()
    call("train", "sum.yaml")
    for text in (None, '{"na'):
        lose(folder / "runs/sum/run.json", text)
        assert call("show", "sum").out.endswith("\njobrun resume runs/sum\n")
        assert call("resume", "sum").code == 0
    (folder / "runs/sum/events.jsonl").unlink()
    for text in (None, '{"na'):
        lose(folder / "runs/sum/run.json", text)
        result = call("resume", "sum")
        assert result.code == 5
        assert result.err == (
            "error: runs/sum: run.json was lost, and with it where the code is\n"
            "  hint: jobrun train SPEC resumes it; or: jobrun resume runs/sum --code DIR\n"
        )
    assert call("resume", "sum", "--code", ".").code == 0


def test_a_dry_run_into_a_file_is_refused_as_the_run_is(
    call: Call, write: Write, folder: Path
) -> None:
    write()
    result = call("train", "sum.yaml", "-n", "--runs-dir", "sum.yaml")
    assert (result.code, result.out) == (6, "")
    assert result.code == call("train", "sum.yaml", "--runs-dir", "sum.yaml").code
    assert result.err == (
        "error: sum.yaml is not a directory\n"
        "  hint: --runs-dir names another directory for the runs\n"
    )


def test_a_run_whose_end_was_removed(call: Call, write: Write, folder: Path) -> None:
    write()
    call("train", "sum.yaml")
    shutil.rmtree(folder / "runs/sum/checkpoint_3")
    result = call("train", "sum.yaml")
    assert result.code == 0
    assert (
        "  runs/sum was finished after epoch 3; that checkpoint is not there now, and the epochs "
        "after epoch 2 are run again\n"
    ) in result.err


def test_errors_of_the_code_come_in_one_round_with_those_of_the_spec(
    jobrun: Call, write: Write, folder: Path
) -> None:
    write(("steps:start", "steps:strat"), ("steps:add", "setps:add"), ("epochs: 3", "epoch: 3"))
    for words in (["train"], ["validate", "--import"]):
        result = jobrun(*words, "sum.yaml")
        assert result.code == 3
        texts = [line for line in result.err.splitlines() if "error:" in line]
        assert len(texts) == 3
        assert "'steps' has no 'strat'; did you mean 'start'?" in texts[0]
        assert "there is no module 'setps'; did you mean 'steps'?" in texts[1]
        assert "'epochs'" in texts[2]
    assert not (folder / "runs").exists()
    assert "steps" not in jobrun("validate", "sum.yaml").err.replace("steps:", "")


def test_code_that_fails_on_import_shows_its_own_lines_beside_errors_of_the_spec(
    jobrun: Call, write: Write
) -> None:
    write(("def start", "import nopackage\n\n\ndef start"), ("epochs: 3", "epoch: 3"))
    result = jobrun("train", "sum.yaml")
    assert result.code == 3
    assert result.err.startswith("Traceback (most recent call last):\n")
    assert "    import nopackage\n" in result.err
    assert "SpecError" not in result.err
    assert "the module 'steps' fails on import" in result.err


def test_a_call_is_not_checked_in_a_task_with_an_error_of_its_own(
    jobrun: Call, write: Write
) -> None:
    write(("in: {total}", "in: {totl, more}"), ("epochs: 3", "epoch: 3"))
    result = jobrun("train", "sum.yaml")
    assert "'totl'" in result.err
    assert "needs" not in result.err


def test_several_errors_of_calls_come_in_the_order_of_their_places(
    jobrun: Call, write: Write
) -> None:
    write(("in: {total, step}", "in: {total, stop: step}"), ("steps:loss_of", "steps:loss"))
    result = jobrun("train", "sum.yaml")
    assert result.code == 4
    heads = [line for line in result.err.splitlines() if "error" in line]
    assert [head.split(": error: ")[0] for head in heads] == [
        "sum.yaml:6:12",
        "sum.yaml:6:43",
        "sum.yaml:7:12",
    ]


def test_what_code_prints_on_import_is_not_among_the_json(jobrun: Call, write: Write) -> None:
    write(("def start", 'print("imported")\n\ndef start'))
    result = jobrun("validate", "--import", "--json", "sum.yaml")
    assert json.loads(result.out) == []
    assert "imported\n" in result.err
    write(("def start", 'print("imported")\n\ndef start'), ("epochs: 3", "epoch: 3"))
    assert json.loads(jobrun("train", "--json", "sum.yaml").out)["exit_code"] == 3
