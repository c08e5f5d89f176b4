"""``jobrun train``: what it does and says, from a first run to one with nothing left to do."""

from __future__ import annotations

import gc
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun.checkpoint.read_blobs import load_blobs
from jobrun.runs.rundir import RunDir
from jobrun.storage.fs import Fs

Call = Callable[..., Any]


def everything(path: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its time of change and its bytes."""
    files = [p for p in path.rglob("*") if p.is_file()]
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in files}


FRESH_ERR = """\
sum in runs/sum: starts from the beginning
epoch 1/3  loss 0.0098039*  TIME
epoch 2/3  loss 0.0096154*  TIME
epoch 3/3  loss 0.009434*  TIME
"""
FRESH_OUT = """\
sum: finished after 3 epochs: 3 epochs done
  time        TIME
  saved       4 checkpoints, SHARE of the time
  metrics     loss 0.009434
  best        loss 0.009434 (epoch 3)
  checkpoint  runs/sum/checkpoint_3 (epoch 3)

jobrun load-blobs runs/sum
"""
DONE_OUT = """\
runs/sum is finished, nothing is left to do (3 epochs; 3 epochs done)
to run more epochs:                   jobrun train sum.yaml --epochs +10
to run the job again from its start:  jobrun train sum.yaml --fresh
  metrics     loss 0.009434
  best        loss 0.009434 (epoch 3)
  checkpoint  runs/sum/checkpoint_3 (epoch 3)

jobrun load-blobs runs/sum
"""


def test_a_run_in_a_pipe(jobrun: Call, write: Call, normalised: Call, folder: Path) -> None:
    write()
    result = jobrun("train", "sum.yaml")
    assert result.code == 0
    assert normalised(result.err) == FRESH_ERR
    assert normalised(result.out) == FRESH_OUT
    assert not set(result.out + result.err) & {"\x1b", "\r"}
    assert load_blobs(folder / "runs/sum")["total"] == 106
    assert sorted(os.listdir(folder / "runs/sum")) == [
        *(f"checkpoint_{i}" for i in range(4)),
        *("events.jsonl", "lock", "log.txt", "metrics.csv", "run.json"),
        *("spec.resolved.yaml", "spec.yaml"),
    ]


def test_a_finished_run_is_left_as_it_is(
    call: Call, write: Call, normalised: Call, folder: Path
) -> None:
    write()
    call("train", "sum.yaml")
    before = everything(folder / "runs")
    for _ in range(2):
        result = call("train", "sum.yaml")
        assert (result.code, result.err) == (0, "")
        assert normalised(result.out) == DONE_OUT
    assert everything(folder / "runs") == before


def test_other_conditions_go_on_with_a_finished_run(
    call: Call, write: Call, normalised: Call, folder: Path
) -> None:
    write()
    call("train", "sum.yaml")
    result = call("train", "sum.yaml", "--epochs", "5")
    assert result.code == 0
    assert normalised(result.err) == (
        "sum in runs/sum: continues after epoch 3 (checkpoint_3)\n"
        "  changed since the run was started:\n"
        "    stop.epochs: 3 -> 5\n"
        "loaded checkpoint_3 (epoch 3, TIME)\n"
        "epoch 4/5  loss 0.0092593*  TIME\n"
        "epoch 5/5  loss 0.0090909*  TIME\n"
    )
    assert "2 epochs in TIME this time" in normalised(result.out)
    assert load_blobs(folder / "runs/sum")["total"] == 110


def test_another_job_starts_beside_a_finished_run(call: Call, write: Call, folder: Path) -> None:
    write()
    call("train", "sum.yaml")
    result = call("train", "sum.yaml", "--set", "step=5")
    assert result.code == 0
    assert result.err.startswith(
        "runs/sum is finished, and the job differs from the one that was run:\n"
        "  vars.step: 2 -> 5\n"
        "a new run starts beside it\n"
        "sum in runs/sum-2: starts from the beginning\n"
    )
    assert [load_blobs(folder / f"runs/{r}")["total"] for r in ("sum", "sum-2")] == [106, 115]
    again = call("train", "sum.yaml")
    assert again.out.startswith("runs/sum is finished, nothing is left to do")
    again = call("train", "sum.yaml", "--set", "step=5")
    assert again.out.startswith("runs/sum-2 is finished, nothing is left to do")


def test_a_finished_run_tells_of_a_newer_one_that_has_not_ended(
    call: Call, write: Call, folder: Path
) -> None:
    write()
    call("train", "sum.yaml")
    ways = "to resume the newer run, which has not ended:"
    assert ways not in call("train", "sum.yaml").out
    code = (folder / "steps.py").read_text()
    (folder / "steps.py").write_text(code + "\n\ndef add(total, step): return 1 / 0\n")
    assert call("train", "sum.yaml", "--set", "step=5").code == 1
    (folder / "steps.py").write_text(code)
    out = call("train", "sum.yaml").out
    (line,) = [line for line in out.splitlines() if line.startswith(ways)]
    command = line.removeprefix(ways).split()
    assert command == ["jobrun", "resume", "runs/sum-2"]
    assert call(*command[1:]).code == 0
    assert ways not in call("train", "sum.yaml").out


def test_fresh_starts_beside(call: Call, write: Call, folder: Path) -> None:
    write()
    for number in range(3):
        assert call("train", "sum.yaml", "--fresh").code == 0
        assert len(os.listdir(folder / "runs")) == number + 1
    assert sorted(os.listdir(folder / "runs")) == ["sum", "sum-2", "sum-3"]


FAILS = ("return total + step", "return total + step if total < 104 else 1 / 0")


def test_a_failing_task_shows_the_users_lines_and_what_goes_on(
    call: Call, write: Call, normalised: Call, folder: Path
) -> None:
    write(FAILS)
    result = call("train", "sum.yaml")
    assert result.code == 1
    lines, _, rest = result.err.partition("Traceback")
    assert normalised(lines).endswith("epoch 2/3  loss 0.0096154*  TIME\n")
    assert "return total + step if total < 104 else 1 / 0" in rest
    assert "ZeroDivisionError: division by zero" in rest
    assert "jobrun/" not in rest.replace(str(folder), "")
    assert "error: " in rest
    assert result.out.splitlines()[-1] == "jobrun resume runs/sum"
    assert result.out.startswith("sum: stopped by an error after 2 epochs: ")
    state = RunDir(folder / "runs/sum").state()
    assert state is not None
    assert (state.state, state.epoch) == ("error", 2)

    write()
    result = call("train", "sum.yaml")
    assert result.code == 0
    assert normalised(result.err).splitlines()[:3] == [
        "sum in runs/sum: continues after epoch 2 (checkpoint_2)",
        "  code that changed since the last start: steps.py",
        "loaded checkpoint_2 (epoch 2, TIME)",
    ]
    assert load_blobs(folder / "runs/sum")["total"] == 106


def test_an_unfinished_run_of_another_job_is_refused(call: Call, write: Call, folder: Path) -> None:
    write(FAILS)
    call("train", "sum.yaml")
    before = everything(folder / "runs")
    result = call("train", "sum.yaml", "--set", "step=1")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "error: runs/sum is not finished (epoch 2), and the job differs from the one that was run:"
        "\n  vars.step: 2 -> 1\n"
        "to resume with the changes:  jobrun train sum.yaml --set step=1 --accept-changes\n"
        "to start a new run:          jobrun train sum.yaml --set step=1 --fresh\n"
        "to resume as it was:         jobrun resume runs/sum\n"
    )
    assert everything(folder / "runs") == before
    write()
    accepted = call("train", "sum.yaml", "--set", "step=1", "--accept-changes")
    assert accepted.code == 0
    assert "    vars.step: 2 -> 1\n" in accepted.err
    assert load_blobs(folder / "runs/sum")["total"] == 105


def test_other_code_of_a_finished_run_is_said(call: Call, write: Call) -> None:
    write()
    call("train", "sum.yaml")
    write(("return 100", "return 200"))
    result = call("train", "sum.yaml")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[1:4] == [
        "code that changed since the last start: steps.py",
        "to run more epochs:                   jobrun train sum.yaml --epochs +10",
        "to run the job again from its start:  jobrun train sum.yaml --fresh",
    ]


FAIL_CONDITION = ("stop: {epochs: 3}", "stop: {epochs: 3}\nfail: {when: total >= 104}")


def test_a_failure_condition_ends_with_7_and_stays_so(
    call: Call, write: Call, folder: Path
) -> None:
    write(FAIL_CONDITION)
    result = call("train", "sum.yaml")
    assert result.code == 7
    assert result.out.startswith("sum: FAILED after 2 epochs: when: total >= 104\n")
    assert result.out.splitlines()[-1] == "jobrun resume runs/sum --epoch 1"
    before = everything(folder / "runs")
    again = call("train", "sum.yaml")
    assert again.code == 7
    assert again.out.startswith("runs/sum ended as a failure (2 epochs; when: total >= 104)\n")
    assert everything(folder / "runs") == before
    write()
    on = call("train", "sum.yaml")
    assert on.code == 0
    assert "    fail: removed, was " in on.err
    assert "continues after epoch 2" in on.err


def test_the_command_after_a_failure_works_whatever_is_kept(
    call: Call, write: Call, folder: Path
) -> None:
    keep = "checkpoint: {every: 2, keep: {last: 1}}"
    write(
        ("stop: {epochs: 3}", "stop: {epochs: 9}\nfail: {when: total >= 110}"),
        ("metrics:", f"{keep}\nmetrics:"),
    )
    result = call("train", "sum.yaml")
    assert result.out.startswith("sum: FAILED after 5 epochs: when: total >= 110\n")
    command = result.out.splitlines()[-1]
    assert command == "jobrun resume runs/sum --epoch 4"
    assert call("show").out.splitlines()[-1] == command
    pruned = call("checkpoints", "prune", "sum", "--keep-last", "1")
    assert (pruned.code, "nothing" in pruned.out) == (0, True)
    again = call(*command.split()[1:])
    assert again.code == 7
    assert again.out.startswith("sum: FAILED after 5 epochs")


def test_a_failure_can_be_gone_back_behind(call: Call, write: Call, folder: Path) -> None:
    write(FAIL_CONDITION)
    call("train", "sum.yaml")
    result = call("resume", "runs/sum", "--epoch", "1")
    assert result.code == 7
    assert sorted(os.listdir(folder / "runs/sum/attempts/1")) == ["checkpoint_2"]


def test_a_last_state_that_is_not_on_disk_ends_with_6(
    call: Call, write: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fs: Fs, op: str, path: str) -> None:
        if op == "mkdir" and "checkpoint_" in path and ".checkpoint_0" not in path:
            raise OSError(28, "No space left on device")

    write()
    with monkeypatch.context() as patch:
        patch.setattr(Fs, "at", full)
        result = call("train", "sum.yaml")
    assert result.code == 6
    assert "warning: checkpoint_1 (epoch 1) was not saved, the run continues: " in result.err
    assert "  the last state is not on disk; on disk is epoch 0\n" in result.out
    assert result.out.splitlines()[-1] == "jobrun resume runs/sum"
    on = call("train", "sum.yaml")
    assert on.code == 0
    assert "continues after epoch 0" in on.err


def test_a_run_that_cannot_begin_again_stands_where_it_stood(
    call: Call, write: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full at once, so that not even the attempt is noted."""

    def full(fs: Fs, op: str, path: str) -> None:
        if op in ("write", "mkdir"):
            raise OSError(28, "No space left on device")

    write(("total + step", "total + step if total < 104 else 1 / 0"))
    call("train", "sum.yaml")
    assert sorted(p.name for p in (folder / "runs/sum").glob("checkpoint_*"))[-1] == "checkpoint_2"
    write()
    with monkeypatch.context() as patch:
        patch.setattr(Fs, "at", full)
        result = call("resume", "sum")
    assert result.code == 6
    assert "No space left on device" in result.err
    lines = result.out.splitlines()
    assert lines[0].startswith(
        "sum: stopped by an error after 2 epochs: spec.yaml cannot be written"
    )
    assert "  checkpoint  runs/sum/checkpoint_2 (epoch 2)" in lines
    assert not any("nothing" in line for line in lines)
    assert lines[-1] == "jobrun resume runs/sum"


def test_a_spec_that_is_none_ends_with_3_and_writes_nothing(
    call: Call, write: Call, folder: Path
) -> None:
    write(("epoch:", "epcoh:"))
    result = call("train", "sum.yaml")
    assert (result.code, result.out) == (3, "")
    assert "did you mean 'epoch'?" in result.err
    assert not (folder / "runs").exists()


def test_code_that_cannot_be_bound_ends_with_4_and_writes_nothing(
    call: Call, write: Call, folder: Path
) -> None:
    write(("steps:add", "steps:ad"))
    result = call("train", "sum.yaml")
    assert (result.code, result.out) == (4, "")
    assert "did you mean 'add'?" in result.err
    assert not (folder / "runs").exists()


def test_a_spec_that_is_not_there(call: Call) -> None:
    result = call("train", "none.yaml")
    assert (result.code, result.out) == (2, "")
    assert "none.yaml" in result.err


def test_a_run_that_is_held_ends_with_8(call: Call, write: Call, folder: Path) -> None:
    write(FAILS)
    call("train", "sum.yaml")
    holder = RunDir(folder / "runs/sum")
    holder.lock()
    result = call("train", "sum.yaml")
    holder.unlock()
    assert (result.code, result.out) == (8, "")
    assert "is held by" in result.err


PRINTING = """\
import os, subprocess

print("imported")

def start():
    print("[bold]é")
    os.write(1, b"from below\\n")
    subprocess.run(["echo", "from a child"])
    return 100

def add(total, step):
    print("half", end="")
    return total + step

def loss_of(total):
    return float("nan")
"""


def test_json_alone_is_on_stdout_whatever_tasks_print(
    jobrun: Call, write: Call, folder: Path
) -> None:
    write(code=PRINTING)
    result = jobrun("train", "sum.yaml", "--json")
    ended = json.loads(result.out)
    assert (result.code, result.out.count("\n")) == (0, 1)
    assert (ended["event"], ended["outcome"], ended["exit_code"]) == ("RunEnded", "finished", 0)
    assert ended["metrics"] == {"loss": "NaN"}
    for text in ("imported\n", "[bold]é\n", "from below\n", "from a child\n", "half"):
        assert text in result.err
    log = (folder / "runs/sum/log.txt").read_text(encoding="utf-8")
    assert " [bold]é\n" in log


def test_without_json_tasks_print_to_stdout(jobrun: Call, write: Call, folder: Path) -> None:
    write(code=PRINTING)
    result = jobrun("train", "sum.yaml")
    for text in ("imported\n", "[bold]é\n", "from below\n", "from a child\n"):
        assert text in result.out
        assert text not in result.err
    log = (folder / "runs/sum/log.txt").read_text(encoding="utf-8")
    assert " [bold]é\n" in log
    assert log.count("half") == 3


LOGGING = ("return total + step", "logging.warning('[bold] look'); return total + step")


def test_what_tasks_log_is_on_stderr_and_in_the_log_also_when_quiet(
    jobrun: Call, write: Call, folder: Path
) -> None:
    write(LOGGING, ("def start", "import logging\n\ndef start"))
    result = jobrun("-q", "train", "sum.yaml")
    assert result.err == "WARNING:root:[bold] look\n" * 3
    log = (folder / "runs/sum/log.txt").read_text(encoding="utf-8")
    assert log.count("] WARNING:root:[bold] look\n") == 3
    assert result.out.startswith("sum: finished after 3 epochs")


def test_the_log_tells_of_a_failure_as_the_terminal_does(
    call: Call, write: Call, folder: Path
) -> None:
    write(FAILS)
    result = call("train", "sum.yaml")
    log = (folder / "runs/sum/log.txt").read_text(encoding="utf-8")
    trace = result.err[result.err.index("Traceback") :]
    assert "\n".join(line[21:] for line in log.splitlines()).endswith(trace.rstrip("\n"))


def test_json_of_a_failure_and_of_nothing_to_do(call: Call, write: Call) -> None:
    write(FAILS)
    result = call("train", "sum.yaml", "--json")
    ended = json.loads(result.out)
    assert (result.code, ended["outcome"], ended["exit_code"], ended["on_disk"]) == (
        1,
        "error",
        1,
        2,
    )
    assert "ZeroDivisionError" in result.err
    write()
    call("train", "sum.yaml")
    result = call("train", "sum.yaml", "--json")
    assert (result.code, json.loads(result.out)["outcome"]) == (0, "nothing")
    result = call("train", "sum.yaml", "--json", "--set", "oops=1")
    assert json.loads(result.out)["exit_code"] == result.code == 2


def test_text_of_the_user_is_literal(call: Call, write: Call) -> None:
    write(("return 100", "raise ValueError('[/x] acc[val] [bold]\\x1b[31m')"))
    result = call("train", "sum.yaml")
    assert "[/x] acc[val] [bold]" in result.out
    assert "\x1b" not in result.out


def test_paths_with_spaces_and_other_alphabets(call: Call, write: Call, folder: Path) -> None:
    write(at="my specs/é")
    result = call("train", "my specs/é/sum.yaml", "--runs-dir", "the runs/ü")
    assert result.code == 0
    assert result.out.splitlines()[-1] == "jobrun load-blobs 'the runs/ü/sum'"
    assert call("load-blobs", "the runs/ü/sum").code == 0
    again = call("train", "my specs/é/sum.yaml", "--runs-dir", "the runs/ü")
    command = "jobrun train 'my specs/é/sum.yaml' --runs-dir 'the runs/ü' --fresh"
    assert command in again.out


def test_the_runs_directory_from_the_environment(
    call: Call, write: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write()
    monkeypatch.setenv("JOBRUN_RUNS_DIR", "elsewhere")
    monkeypatch.setenv("JOBRUN_SET", "step=3")
    assert call("train", "sum.yaml").code == 0
    assert load_blobs(folder / "elsewhere/sum")["total"] == 109


def test_quiet_and_verbose(call: Call, write: Call) -> None:
    write()
    quiet = call("-q", "train", "sum.yaml")
    assert quiet.err == ""
    assert quiet.out.startswith("sum: finished")
    verbose = call("train", "sum.yaml", "--fresh", "--verbose")
    assert "init: 1 task in " in verbose.err
    assert "epoch: add (main) " in verbose.err
    assert "saved checkpoint_3 (epoch 3, " in verbose.err


def test_a_job_that_wants_no_checkpoints(call: Call, write: Call, folder: Path) -> None:
    write(("stop:", "checkpoint: false\nstop:"))
    result = call("train", "sum.yaml")
    assert result.code == 0
    assert "  checkpoint  none" in result.out
    assert not list((folder / "runs/sum").glob("checkpoint_*"))
    again = call("train", "sum.yaml")
    assert (again.code, again.err) == (0, "")
    assert again.out.startswith("runs/sum is finished, nothing is left to do")


def test_check_and_threads_change_no_result(call: Call, write: Call, folder: Path) -> None:
    write()
    assert call("train", "sum.yaml", "--check", "--threads", "3").code == 0
    assert load_blobs(folder / "runs/sum")["total"] == 106


def test_tasks_find_the_garbage_collector_as_python_has_it(
    jobrun: Call, write: Call, folder: Path
) -> None:
    write(
        ("def add(total, step):\n", "import gc\n\ndef add(total, step):\n"),
        ("total + step", "gc.get_threshold()[0]"),
    )
    assert jobrun("train", "sum.yaml").code == 0
    assert load_blobs(folder / "runs/sum")["total"] == gc.get_threshold()[0]


@pytest.mark.parametrize("sweep", [False, True])
def test_of_many_first_starts_at_once_one_makes_the_run(
    sweep: bool, start: Callable[..., Any], write: Callable[..., None], folder: Path
) -> None:
    """The others find it held: it is not done before they have all ended."""
    write(("def start", "import os, time\n\ndef start"),
          ("return total + step", "while not os.path.exists('go'): time.sleep(0.01)\n"
           "    return total + step"))  # fmt: skip
    if sweep:
        with (folder / "sum.yaml").open("a") as file:
            file.write("matrix: {step: [2, 3]}\n")
    processes = [start("train", "sum.yaml", "--epochs", "2", apart=True) for _ in range(4)]
    end = time.monotonic() + 120
    while sum(p.poll() is not None for p in processes) < 3:
        assert time.monotonic() < end
        time.sleep(0.02)
    (folder / "go").touch()
    ends = [(p.communicate(timeout=100)[1], p.returncode) for p in processes]
    assert sorted(code for _, code in ends) == [0, 8, 8, 8], ends
    assert [path.name for path in (folder / "runs").iterdir()] == ["sum"]
    for err, code in ends:
        # By process N, or by another one if the holder has yet to write its number.
        assert code == 0 or "error: runs/sum: the run is held by " in err


def test_of_many_first_starts_at_once_all_end_well_if_they_wait(
    start: Callable[..., Any], write: Callable[..., None], folder: Path
) -> None:
    """One makes the run; the others wait for its end, and find nothing left to do."""
    write(("return total + step", "import time; time.sleep(0.3); return total + step"))
    processes = [start("train", "sum.yaml", "--wait", apart=True) for _ in range(3)]
    ends = [(*p.communicate(timeout=100), p.returncode) for p in processes]
    assert [code for _, _, code in ends] == [0, 0, 0], ends
    assert sorted("nothing is left to do" in out for out, _, _ in ends) == [False, True, True]
    assert [path.name for path in (folder / "runs").iterdir()] == ["sum"]


def test_a_signal_ends_the_waiting(
    start: Callable[..., Any], write: Callable[..., None], folder: Path
) -> None:
    write(("return total + step", "import time; time.sleep(600); return total + step"))
    holder = start("train", "sum.yaml", apart=True)
    while not (folder / "runs/sum/checkpoint_0").exists():
        assert holder.poll() is None
        time.sleep(0.01)
    waits = start("train", "sum.yaml", "--wait", apart=True)
    assert waits.stderr.readline().startswith("waiting for runs/sum: the run is held by process")
    waits.send_signal(signal.SIGTERM)
    _, err = waits.communicate(timeout=120)
    assert (waits.returncode, err) == (143, "SIGTERM: exited before the run began\n")


def test_one_that_comes_when_the_first_is_done_has_nothing_to_do(
    start: Callable[..., Any], write: Callable[..., None], folder: Path
) -> None:
    """It had decided to make a run; it decides again."""
    write(("def start", "import os, time\nwhile not os.path.exists(os.environ['GO']): "
           "time.sleep(0.01)\n\ndef start"))  # fmt: skip
    late = start("train", "sum.yaml", GO="late")
    first = start("train", "sum.yaml", GO="first")
    (folder / "first").touch()
    assert "finished after 3 epochs" in first.communicate(timeout=120)[0]
    (folder / "late").touch()
    out, err = late.communicate(timeout=120)
    assert late.returncode == 0, out + err
    assert "runs/sum is finished, nothing is left to do" in out
    assert [path.name for path in (folder / "runs").iterdir()] == ["sum"]


def test_arguments_in_another_order_are_warned_of(call: Call, write: Call) -> None:
    write(("in: {total, step}", "in: [step, total]"))
    result = call("train", "sum.yaml")
    assert result.code == 0
    assert result.err.startswith(
        "warning: sum.yaml:6:30: steps:add(total, step) gets 'step' as its 'total'; by keyword: "
        "in: {step, total}\n"
    )
