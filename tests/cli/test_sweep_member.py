"""Members of a sweep in processes of their own: ``train --member``, ``--wait``, ``sweep``."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from whole_runs import bytes_of_checkpoints

from jobrun.checkpoint.read_blobs import load_blobs
from jobrun.runs.sweepdir import SweepDir
from tests.cli.test_sweep import ALL, CODE, SPEC, TWO, states, totals, wait_until

Call = Callable[..., Any]

GATE = ("return total + step", "wait(); return total + step")
WAIT = """
def wait():
    while not os.path.exists("go"):
        time.sleep(0.01)
"""
"""Epochs that begin once the file ``go`` is there."""


@pytest.fixture
def sweep(write: Call, folder: Path) -> Callable[..., Path]:
    """Writes the spec and its code, with texts replaced; gives the directory of its sweep."""

    def sweep(*replaced: tuple[str, str]) -> Path:
        write(*replaced, spec=SPEC, code=CODE + WAIT)
        return folder / "runs/sum"

    return sweep


def wait_for(home: Path, names: Sequence[str], *processes: Any) -> None:
    """Wait until the members have begun, or one of the processes has ended."""
    wait_until(
        lambda: (
            all((home / name / "checkpoint_0").is_dir() for name in names)
            or any(process.poll() is not None for process in processes)
        ),
        100,
    )
    assert [ended(p) for p in processes if p.poll() is not None] == []


def ended(process: Any) -> tuple[int, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out + err


def test_members_start_at_once_in_one_sweep(
    start: Call, call: Call, sweep: Call, folder: Path
) -> None:
    """Each runs once; a second process for one of them is refused, and another one waits."""
    home = sweep(GATE)
    members = [start("train", "sum.yaml", "--member", str(n)) for n in (3, 1, 0, 2)]
    wait_for(home, ALL, *members)
    rival = start("train", "sum.yaml", "--member", "step=2,first=10")
    patient = start("train", "sum.yaml", "--member", "3", "--wait")
    waiting = "waiting for runs/sum/step=2,first=10: the run is held by process"
    assert patient.stderr.readline().startswith(waiting)
    code, text = ended(rival)
    assert code == 8, text
    assert f"runs/sum/{ALL[3]}: the run is held by process {members[0].pid}" in text
    table = call("sweep", "sum.yaml")
    assert table.out.startswith("sum: 4 runs: 4 running\nmember  step  first  state")
    assert table.out.endswith(f" logs runs/sum/{ALL[0]} -f\n")
    (folder / "go").touch()
    assert [ended(process)[0] for process in members] == [0, 0, 0, 0]
    code, text = ended(patient)
    assert code == 0, text
    assert "nothing is left to do" in text
    assert [p.name for p in (folder / "runs").iterdir()] == ["sum"]
    assert totals(home) == dict(zip(ALL, (93, 13, 96, 16), strict=True))
    assert call("train", "sum.yaml").out.startswith("sum: 4 runs: 4 finished\n")


def test_a_member_equals_that_of_the_whole_sweep_bit_for_bit(
    jobrun: Call, call: Call, sweep: Call, folder: Path
) -> None:
    home = sweep()
    assert jobrun("train", "sum.yaml", "--runs-dir", "whole", "--set", "first=10").code == 0
    for number in ("1", "3"):
        assert jobrun("train", "sum.yaml", "--member", number).code == 0
    for name in ALL[1::2]:
        whole = folder / "whole/sum" / name
        assert bytes_of_checkpoints(home / name) == bytes_of_checkpoints(whole)
        for file in ("spec.yaml", "spec.resolved.yaml"):
            assert (home / name / file).read_bytes() == (whole / file).read_bytes()
    found = json.loads(call("sweep", "sum.yaml", "--json").out)
    assert [row["state"] for row in found["runs"]] == ["waiting", "finished"] * 2
    assert [row["member"] for row in found["runs"]] == [0, 1, 2, 3]


def test_a_member_of_a_changed_finished_sweep_starts_a_new_one_and_says_so(
    call: Call, sweep: Call, folder: Path
) -> None:
    sweep()
    (folder / "go").touch()
    call("train", "sum.yaml", "-q")
    sweep(("{total, step}, out: total", "{total, step: first}, out: total"))
    reason = "epoch.add.in.step: step -> first"
    for dry in (["-n"], []):
        found = call("train", "sum.yaml", "--member", "1", *dry)
        assert found.code == 0, found.err
        first, *_, last = found.err.partition("\na new sweep starts beside it\n")
        assert first.startswith("runs/sum/step=1,first=90 is finished, and the job differs")
        assert reason in first
        assert "runs/sum-2/step=1,first=10" in last + found.out
        assert (folder / "runs/sum-2").exists() == (not dry)
    again = call("train", "sum.yaml", "--member", "0")
    assert (again.code, "beside" in again.err) == (0, False)


def test_killed_members_resume_and_the_sweep_finishes_the_rest(
    start: Call, jobrun: Call, call: Call, sweep: Call, folder: Path
) -> None:
    home = sweep(GATE)
    members = [start("train", "sum.yaml", "--member", str(n)) for n in (0, 1)]
    wait_for(home, ALL[:2], *members)
    for process in members:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert {state for state, _ in states(home).values()} == {"interrupted"}
    (folder / "go").touch()
    again = jobrun("train", "sum.yaml", "--member", "0")
    assert again.code == 0
    assert f"sum in runs/sum/{ALL[0]}: continues after epoch 0" in again.err
    rest = call("resume", "sum")
    assert rest.code == 0
    assert "1 finished already, 1 to resume, 2 to start" in rest.err
    assert totals(home) == dict(zip(ALL, (93, 13, 96, 16), strict=True))


def test_a_whole_sweep_beside_one_of_its_members(
    start: Call, jobrun: Call, sweep: Call, folder: Path
) -> None:
    """The sweep runs the others; the table shows that this one is running elsewhere."""
    home = sweep(GATE, TWO)
    member = start("train", "sum.yaml", "--member", "step=2")
    wait_for(home, ["step=2"], member)
    (home / "step=1").mkdir()
    sweep(TWO)
    result = jobrun("train", "sum.yaml")
    assert result.code == 8
    assert result.out.startswith("sum: 2 runs: 1 finished, 1 running\n")
    patient = start("train", "sum.yaml", "--wait")
    (folder / "go").touch()
    assert ended(member)[0] == 0
    code, text = ended(patient)
    assert code == 0, text
    assert "sum: 2 runs: 2 finished\n" in text


def test_no_further_run_starts_when_the_slurm_job_ends(
    call: Call, sweep: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(("epochs: 3", "epochs: 3, walltime: slurm"))
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(time.time() + 59))
    result = call("train", "sum.yaml")
    assert result.code == 143
    assert result.out.startswith("sum: 4 runs: 4 waiting\n")
    assert result.out.endswith(" resume runs/sum\n")


def test_a_member_by_its_values(call: Call, sweep: Call) -> None:
    home = sweep(("step: 2,", "step: 2.0,"))
    for text, directory in [
        ("2", "step=2.0,first=90"),
        ("step=2e0,first=10", "step=2.0,first=10"),
        ("first=10, step=1", "step=1.0,first=10"),
        ("step=1.0,first=90", "step=1.0,first=90"),
    ]:
        assert call("train", "sum.yaml", "--member", text).code == 0
        assert (home / directory / "checkpoint_3").is_dir()
    assert call("train", "sum.yaml", "--set", "first=10", "--member", "step=1").code == 0


@pytest.mark.parametrize(
    ("member", "words"),
    [
        ("4", "--member 4: there is no such member\n  hint: the numbers are 0 to 3"),
        ("-1", "--member -1: there is no such member"),
        ("step=1", "2 members have these values\n  hint: name one: step=1,first=90, step=1,first"),
        ("step=3", "no member has these values"),
        ("stp=1", "'stp' is not in the matrix\n  hint: did you mean 'step'?"),
        ("first", "expected a member of the sweep\n  hint: a number from 0, or values"),
    ],
)
def test_no_such_member(member: str, words: str, call: Call, sweep: Call, folder: Path) -> None:
    sweep()
    result = call("train", "sum.yaml", "--member", member)
    assert result.code == 2
    assert words in result.err
    assert not (folder / "runs").exists()


def test_a_dry_run_of_a_member_writes_nothing(call: Call, sweep: Call, folder: Path) -> None:
    sweep()
    result = call("train", "sum.yaml", "--member", "3", "-n")
    assert result.code == 0
    assert f"runs/sum/{ALL[3]}: would start from the beginning" in result.out
    assert not (folder / "runs").exists()


def test_a_changed_spec_is_registered_and_another_job_is_a_new_sweep(
    call: Call, sweep: Call, folder: Path
) -> None:
    home = sweep(("step: [1, 2], first: [90, 10]", "step: [1]"))
    assert call("train", "sum.yaml", "--member", "0").code == 0
    sweep(("step: [1, 2], first: [90, 10]", "step: [0, 1]"), ("epochs: 3", "epochs: 4"))
    assert call("train", "sum.yaml", "--member", "step=0").code == 0
    assert load_blobs(home / "step=0")["total"] == 100
    assert [m.directory for m in SweepDir(home).state().members] == ["step=1", "step=0"]
    assert "epochs: 4" in (home / "spec.yaml").read_text()
    sweep(("step: [1, 2], first: [90, 10]", "step: [0, 1]"), ("first: 100", "first: 200"))
    result = call("train", "sum.yaml", "--member", "1")
    assert result.code == 0
    assert load_blobs(folder / "runs/sum-2/step=1")["total"] == 203


def test_a_sweep_held_by_a_process_that_does_not_know_the_member(
    call: Call, sweep: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobrun.tools.sweep_members._PATIENCE", 0.3)
    home = sweep(("step: [1, 2], first: [90, 10]", "step: [1]"))
    assert call("train", "sum.yaml", "--member", "0").code == 0
    holder = SweepDir(home).home
    holder.lock()
    assert call("train", "sum.yaml", "--member", "0").code == 0  # it is known
    sweep(TWO)
    assert call("train", "sum.yaml", "--member", "1").code == 8
    holder.unlock()
    assert call("train", "sum.yaml", "--member", "1").code == 0


def test_the_table_and_the_list(call: Call, sweep: Call) -> None:
    sweep()
    assert call("sweep", "sum.yaml", "--list").out == "".join(
        f"{n}  {name}\n" for n, name in enumerate(ALL)
    )
    assert call("sweep", "sum.yaml").out.startswith("sum: 4 runs: 4 waiting\n")
    assert call("train", "sum.yaml", "--member", "1", "-q").code == 0
    by_spec = call("sweep", "sum.yaml").out
    assert "     1  1     10     finished       3" in by_spec
    assert by_spec.endswith(" resume runs/sum\n")
    for words in (("sweep", "sum"), ("sweep", "runs/sum"), ("show", "sum")):
        assert call(*words).out == by_spec
    assert call("sweep", "none").code == 5
