"""``jobrun resume``: which run, which spec, which code, which checkpoint."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun import CheckpointManager, Job, JobRunner, LocalSession, Task
from jobrun.checkpoint.read_blobs import load_blobs

Call = Callable[..., Any]
FAILS = ("return total + step", "return total + step if total < 104 else 1 / 0")


def total(run: Path, epoch: int | None = None) -> Any:
    return load_blobs(run, epoch=epoch)["total"]


def test_the_newest_unfinished_run_is_taken_and_named_first(
    call: Call, write: Call, normalised: Call, folder: Path
) -> None:
    write(FAILS)
    call("train", "sum.yaml")
    write(
        spec="name: other\ninit: [{call: 'steps:start', out: total}]\nepoch: []\nstop: {epochs: 1}"
    )
    write()
    call("train", "sum.yaml", "--set", "name=other")
    result = call("resume")
    assert result.code == 0
    assert normalised(result.err) == (
        "sum in runs/sum: continues after epoch 2 (checkpoint_2)\n"
        "  code that changed since the last start: steps.py\n"
        "loaded checkpoint_2 (epoch 2, TIME)\n"
        "epoch 3/3  loss 0.009434*  TIME\n"
    )
    assert total(folder / "runs/sum") == 106


def test_a_spec_that_was_edited_since_is_told_of(call: Call, write: Call, folder: Path) -> None:
    write(FAILS)
    call("train", "sum.yaml")
    spec = folder / "sum.yaml"
    spec.write_text(spec.read_text("utf-8").replace("step: 2", "step: 3"), "utf-8")
    told = "sum.yaml has changed since; runs/sum resumes as it was"
    result = call("resume", "sum")
    assert result.err.splitlines()[0] == f"{told} (with the changes: jobrun train sum.yaml)"
    assert told not in call("resume", "sum", "-q").err
    assert told not in call("resume", "sum.yaml").err


def test_a_finished_run_has_nothing_to_do(call: Call, write: Call) -> None:
    write()
    call("train", "sum.yaml")
    for argument in ((), ("sum",), ("runs/sum",), ("sum.yaml",)):
        result = call("resume", *argument)
        assert (result.code, result.err) == (0, "")
        assert result.out.startswith("runs/sum is finished, nothing is left to do")
        assert "jobrun train sum.yaml --fresh" in result.out


def test_a_run_goes_on_with_what_was_set_when_it_started(
    call: Call, write: Call, folder: Path
) -> None:
    write(FAILS)
    call("train", "sum.yaml", "--set", "step=3", "--epochs", "4")
    write()
    result = call("resume", "sum")
    assert result.code == 0
    assert "changed since the run was started" not in result.err
    assert total(folder / "runs/sum") == 112
    assert (folder / "runs/sum/spec.yaml").read_text() == (folder / "sum.yaml").read_text()


def test_with_a_spec_the_file_as_it_is_now_counts(call: Call, write: Call, folder: Path) -> None:
    write()
    call("train", "sum.yaml")
    write(("epochs: 3", "epochs: 4"))
    assert call("resume", "sum").out.startswith("runs/sum is finished")
    result = call("resume", "sum.yaml")
    assert result.code == 0
    assert "stop.epochs: 3 -> 4" in result.err
    assert total(folder / "runs/sum") == 108


def test_set_changes_the_spec_that_is_kept(call: Call, write: Call, folder: Path) -> None:
    write()
    call("train", "sum.yaml")
    result = call("resume", "sum", "--set", "stop.epochs=4")
    assert (result.code, total(folder / "runs/sum")) == (0, 108)
    assert call("resume", "sum").out.startswith("runs/sum is finished")
    refused = call("resume", "sum", "--set", "step=1")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        "error: runs/sum is finished, and the job differs from the one that was run:\n"
        "  vars.step: 2 -> 1\n"
        "to resume with the changes:  jobrun resume runs/sum --set step=1 --accept-changes\n"
        "to start a new run:          jobrun train sum.yaml --set step=1 --fresh\n"
    )


@pytest.mark.parametrize("named", [("--epoch", "1"), ("--id", "1")])
def test_going_back(
    named: tuple[str, str], call: Call, write: Call, normalised: Call, folder: Path
) -> None:
    write()
    call("train", "sum.yaml")
    result = call("resume", "sum", *named)
    assert result.code == 0
    assert normalised(result.err).startswith(
        "sum in runs/sum: continues after epoch 1 (checkpoint_1)\n"
        "checkpoints 2, 3 moved to runs/sum/attempts/1\n"
        "loaded checkpoint_1 (epoch 1, TIME)\n"
        "epoch 2/3  "
    )
    listed = call("checkpoints", "list", "sum", "--attempts").out
    assert "\nruns/sum/attempts/1: 2 checkpoints, " in listed
    run = folder / "runs/sum"
    assert sorted(os.listdir(run / "attempts/1")) == ["checkpoint_2", "checkpoint_3"]
    assert sorted(p.name for p in run.glob("checkpoint_*")) == [
        "checkpoint_0",
        "checkpoint_1",
        "checkpoint_4",
        "checkpoint_5",
    ]
    assert [total(run, e) for e in (0, 1, 2, 3)] == [100, 102, 104, 106]
    rows = (run / "metrics.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["epoch", "1", "2", "3"]


def test_going_back_with_another_job(call: Call, write: Call, folder: Path) -> None:
    write()
    call("train", "sum.yaml")
    back = ("resume", "sum", "--epoch", "1", "--set", "step=10")
    assert call(*back).code == 2
    assert call(*back, "--accept-changes").code == 0
    assert total(folder / "runs/sum") == 122


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (("sum", "--epoch", "9"), 5, "no checkpoint of epoch 9; there are 0..3"),
        (("sum", "--id", "9"), 5, "no checkpoint of id 9"),
        (("sum", "--epoch", "1", "--id", "1"), 2, "not by both"),
        (("smu",), 5, "did you mean 'sum'?"),
        (("runs/sum/checkpoint_1",), 2, "runs/sum --id 1"),
        (("runs",), 5, "holds runs"),
        (("sum", "--code", "gone"), 2, "Directory 'gone' does not exist"),
        (("sum", "--set", "stpe=1"), 2, "did you mean 'stop' or 'step'"),
        (("sum", "--set", "stop.epochs=0"), 3, "--set stop.epochs=0"),
    ],
)
def test_what_cannot_be(
    args: tuple[str, ...], code: int, text: str, call: Call, write: Call
) -> None:
    write()
    call("train", "sum.yaml")
    result = call("resume", *args)
    assert (result.code, result.out) == (code, "")
    assert text in result.err


def test_no_run_at_all(call: Call) -> None:
    result = call("resume")
    assert (result.code, result.out) == (5, "")
    assert "no run in runs" in result.err


def test_from_within_the_run_directory(
    call: Call, write: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(FAILS)
    call("train", "sum.yaml")
    write()
    monkeypatch.chdir(folder / "runs/sum")
    result = call("resume")
    assert result.code == 0
    assert "continues after epoch 2" in result.err
    assert total(folder / "runs/sum") == 106


def test_a_run_that_moved_with_its_code(
    call: Call, write: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(FAILS, at="here")
    monkeypatch.chdir(folder / "here")
    call("train", "sum.yaml")
    write(at="here")
    (folder / "here").rename(folder / "there")
    monkeypatch.chdir(folder)
    result = call("resume", "there/runs/sum")
    assert result.code == 0
    assert total(folder / "there/runs/sum") == 106


def test_code_that_moved_alone_is_named(call: Call, write: Call, folder: Path) -> None:
    write(FAILS, at="here")
    call("train", "here/sum.yaml")
    shutil.rmtree(folder / "here")
    write(at="there")
    result = call("resume", "sum")
    assert result.code == 5
    assert f"the folder of the code is gone ({folder.resolve()}/here)" in result.err
    assert "jobrun resume runs/sum --code DIR" in result.err
    result = call("resume", "sum", "--code", "there")
    assert (result.code, total(folder / "runs/sum")) == (0, 106)


def test_a_lost_state_is_rebuilt(call: Call, write: Call, folder: Path) -> None:
    write(FAILS)
    call("train", "sum.yaml")
    (folder / "runs/sum/run.json").unlink()
    write()
    result = call("resume", "sum", "--code", ".")
    assert (result.code, total(folder / "runs/sum")) == (0, 106)
    assert call("train", "sum.yaml").out.startswith("runs/sum is finished")


def test_other_libraries_are_said(call: Call, write: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    write(FAILS)
    call("train", "sum.yaml")
    write()
    monkeypatch.setattr(
        "jobrun.engine.restoring.differences", lambda old, now: (f"numpy: {old['numpy']} -> 9",)
    )
    for verbosity in ("-q", "-v"):
        result = call(verbosity, "resume", "sum", "--epoch", "1")
        assert re.search(r"^warning: since then: numpy: \S+ -> 9$", result.err, re.MULTILINE)


def test_a_damaged_checkpoint_is_passed_over_unless_it_was_named(
    call: Call, write: Call, folder: Path
) -> None:
    write(FAILS)
    call("train", "sum.yaml")
    success = folder / "runs/sum/checkpoint_2/_SUCCESS"
    success.write_bytes(success.read_bytes().replace(b'"sum"', b'"sun"'))
    write()
    named = call("resume", "sum", "--id", "2")
    assert named.code == 5
    result = call("resume", "sum")
    assert (result.code, total(folder / "runs/sum")) == (0, 106)
    assert "warning: checkpoint_2 is skipped: " in result.err
    assert "checkpoint 2 moved to runs/sum/attempts/1\n" in result.err
    assert sorted(os.listdir(folder / "runs/sum/attempts/1")) == ["checkpoint_2"]


def test_the_commands_that_are_named_are_for_the_same_directory_of_runs(
    call: Call, write: Call
) -> None:
    write()
    assert call("train", "sum.yaml", "--runs-dir", "other").code == 0
    write(("step: 2", "step: 3"))
    result = call("resume", "sum.yaml", "--runs-dir", "other")
    assert result.code == 2
    assert "jobrun resume sum.yaml --runs-dir other --accept-changes" in result.err
    assert "jobrun train sum.yaml --runs-dir other --fresh" in result.err


def test_a_run_of_a_python_script_asks_for_the_script(call: Call, folder: Path) -> None:
    with Job("py") as job:
        with job.init:
            Task(dict, out="state")
        Task("builtins:len", "state", out="size")
        job.stop(epochs=1)
    JobRunner(job, CheckpointManager(folder / "runs/py")).train(LocalSession(1))
    result = call("resume", "py")
    assert result.code == 2
    assert "was started by a Python script" in result.err
    assert "run your script again" in result.err


SITE = """\
import jobrun

class Site(jobrun.Catalogue):
    def latest(self, run):
        return int(open("latest").read())
"""


def test_the_catalogue_names_the_epoch(call: Call, write: Call, folder: Path) -> None:
    write(("stop:", "checkpoint: {catalogue: 'site_record:Site'}\nstop:"))
    (folder / "site_record.py").write_text(SITE)
    (folder / "latest").write_text("0")
    first = call("train", "sum.yaml")
    assert first.code == 5
    assert "the catalogue names epoch 0 of runs/sum: no checkpoint of epoch 0" in first.err
    assert (
        "--epoch names another one; to start a new run: jobrun train sum.yaml --fresh" in first.err
    )
    assert call("train", "sum.yaml", "--fresh").code == 0
    (folder / "latest").write_text("1")
    dry = call("resume", "-n", "--epochs", "4")
    assert "the catalogue names epoch 1; the newest checkpoint is of epoch 3" in dry.out + dry.err
    named = call("resume", "--epoch", "2", "--epochs", "4")
    assert "  the catalogue names epoch 1, but epoch 2 was requested\n" in named.err
    assert "continues after epoch 2 (checkpoint_2)" in named.err
    result = call("resume")
    assert "  the catalogue names epoch 1; the newest checkpoint is of epoch 4\n" in result.err
    assert "continues after epoch 1 (checkpoint_1)" in result.err
    (folder / "latest").write_text("nothing")
    broken = call("resume")
    assert broken.code == 1
    assert 'return int(open("latest").read())' in broken.err
    assert "latest() failed: ValueError" in broken.err
    assert "jobrun/engine/registry_hook.py" not in broken.err


def test_a_first_epoch_that_failed_for_what_init_made_starts_over_once_it_is_mended(
    call: Callable[..., Any], write: Callable[..., None], folder: Path
) -> None:
    write(("return 100", "return '100'"))
    assert call("train", "sum.yaml").code == 1
    assert sorted(p.name for p in (folder / "runs/sum").glob("checkpoint_*")) == ["checkpoint_0"]
    write()
    result = call("resume", "sum")
    assert result.code == 1
    assert (
        "  'init', which uses steps.py, is not run again; to start over: jobrun train sum.yaml "
        "--fresh\n"
    ) in result.err
    write(("return 100", "return  100"))  # changed since that start
    result = call("train", "sum.yaml")
    assert (result.code, result.out.splitlines()[0]) == (
        0,
        "sum: finished after 3 epochs: 3 epochs done",
    )
    assert (
        "runs/sum has run 'init' only, and steps.py has changed since: it starts over" in result.err
    )
    assert sorted(p.name for p in (folder / "runs/sum").glob("checkpoint_*")) == [
        f"checkpoint_{id}" for id in (1, 2, 3, 4)
    ]
    assert (folder / "runs/sum/attempts/2/checkpoint_0").is_dir()


def test_a_first_epoch_that_failed_for_what_the_spec_says_starts_over_once_it_is_mended(
    call: Callable[..., Any], write: Callable[..., None], folder: Path
) -> None:
    write(("vars: {step: 2}", "vars: {step: two}"))
    failed = call("train", "sum.yaml")
    assert (failed.code, failed.out.splitlines()[-1]) == (1, "jobrun train sum.yaml")
    write()
    mended = call("train", "sum.yaml")
    assert (mended.code, mended.out.splitlines()[0]) == (
        0,
        "sum: finished after 3 epochs: 3 epochs done",
    )
    assert "it starts over\n    vars.step: two -> 2\n" in mended.err
    assert (folder / "runs/sum/attempts/1/checkpoint_0").is_dir()


def test_after_a_failure_the_command_names_a_checkpoint_that_is_there(
    call: Callable[..., Any], write: Callable[..., None]
) -> None:
    write(
        (
            "stop: {epochs: 3}",
            "stop: {epochs: 9}\nfail: {when: total > 108}\ncheckpoint: {every: 2}",
        )
    )
    assert call("train", "sum.yaml").out.endswith("\njobrun resume runs/sum --epoch 4\n")
    again = call("train", "sum.yaml")
    assert again.code == 7
    assert "to resume from an earlier epoch:      jobrun resume runs/sum --epoch 4\n" in again.out


def test_weights_that_changed_are_named_and_loaded_anew_where_only_init_has_run(
    call: Call, write: Callable[..., None], folder: Path
) -> None:
    spec = """
init: [{load: {file: base.npz, blobs: {w: w}}}]
epoch: [{call: "steps:check", in: {w}, out: done}]
stop: {epochs: 2}
"""
    write(spec=spec, code="def check(w):\n    assert w[0] == 1\n    return 1\n")
    np.savez(folder / "base.npz", w=np.zeros(2, np.int64))
    assert call("train", "sum.yaml").code == 1
    np.savez(folder / "base.npz", w=np.ones(2, np.int64))
    again = call("train", "sum.yaml")
    assert again.code == 0
    assert "has run 'init' only, and base.npz has changed since: it starts over" in again.err
    np.savez(folder / "base.npz", w=np.ones(3, np.int64))
    longer = call("train", "sum.yaml", "--epochs", "3")
    assert longer.code == 0
    assert "weights that changed since the last start: base.npz" in longer.err


# Another number of nodes.

NODES = """
name: sum
nodes: {count}
init: [{{call: "steps:start", node: "*", out: total}}]
epoch: [{{call: "steps:add", node: "*", in: total, out: total, with: {{step: 1}}}}]
stop: {{epochs: 2}}
"""


@pytest.mark.parametrize("count", ["2", "{t: 2}"])
def test_a_run_continues_with_another_number_of_nodes(
    call: Call, write: Call, folder: Path, count: str
) -> None:
    write(spec=NODES.format(count=count))
    assert call("train", "sum.yaml").code == 0
    result = call("resume", "sum", "--nodes", "3", "--epochs", "4")
    assert result.code == 0
    name = "n" if count == "2" else "t_"
    assert f"new: {name}2, with a copy of the part of {name}0" in result.err
    assert "all nodes of the checkpoint hold the same values" in result.err
    found = load_blobs(folder / "runs/sum")
    assert [*found] == [f"{name}{number}:total" for number in range(3)]
    assert len({int(value) for value in found.values()}) == 1
    assert "nothing is left to do" in call("resume", "sum").out  # the number is stored
    result = call("resume", "sum", "--nodes", "1", "--epochs", "5")
    assert f"dropped: {name}1, {name}2" in result.err
    assert [*load_blobs(folder / "runs/sum")] == ["total"]  # one node needs no name


def test_blobs_that_differ_between_the_nodes_are_named(call: Call, write: Call) -> None:
    own = '{call: "steps:number", node: "*", in: node, out: own}'
    spec = NODES.format(count="2").replace("out: total}]", f"out: total}}, {own}]", 1)
    code = "def start(): return 0\ndef add(x, step): return x + step\n"
    write(spec=spec, code=code + "def number(node): return int(node[-1])\n")
    assert call("train", "sum.yaml").code == 0
    result = call("resume", "sum", "--nodes", "3", "--epochs", "4")
    assert result.code == 0, result.err
    assert "differ between the nodes of the checkpoint: own\n" in result.err


def test_nodes_that_are_named_have_no_number(call: Call, write: Call) -> None:
    write(spec=NODES.format(count="[a, b]"))
    call("train", "sum.yaml")
    result = call("resume", "sum", "--nodes", "3")
    assert result.code == 2
    assert "the spec names them one by one" in result.err
    result = call("resume", "sum", "--nodes", "3", "--map-node", "a=c")
    assert result.code == 2
    assert "use it or --map-node, not both" in result.err
