"""The scripts of the page ``slurm``: their syntax, and their runs on a Slurm of this machine."""

from __future__ import annotations

import configparser
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from examples import ROOT, Page
from slurm_machine import SlurmMachine, wait_until, why_not

from jobrun.checkpoint.read_blobs import load_blobs
from jobrun.runs.rundir import RunDir

PAGE = Page(ROOT / "jobrun" / "docs" / "slurm.md")
SCRIPTS = {name: text for name, text in PAGE.blocks("bash") if name}
BIN = str(Path(sys.executable).parent)
SLOW = """\
import os
import time


def start():
    return 0


def add(total, lr):
    if not os.path.exists("go"):
        time.sleep(0.2)
    return total + lr
"""
"""The code of the page's jobs, slow until the file ``go`` is there."""

slurm_only = [
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
    pytest.mark.skipif(not os.environ.get("JOBRUN_LONG"), reason="JOBRUN_LONG is not set"),
]


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_of_the_shell(name: str, tmp_path: Path) -> None:
    script = tmp_path / name
    script.write_text(SCRIPTS[name])
    done = subprocess.run(["bash", "-n", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert SCRIPTS[name].startswith("#!/bin/bash\n")


def test_other_files_can_be_parsed() -> None:
    files = {name: text for name, text in PAGE.blocks("yaml") if name}
    assert set(files) >= {"kubernetes.yaml", "train.yaml"}
    for text in files.values():
        assert yaml.safe_load(text)
    pod = yaml.safe_load(files["kubernetes.yaml"])["spec"]["template"]["spec"]
    assert pod["containers"][0]["command"][:2] == ["jobrun", "train"]
    ((name, text),) = PAGE.blocks("ini")
    assert name == "job.service"
    unit = configparser.ConfigParser(strict=True)
    unit.read_string(text)
    assert unit["Service"]["ExecStart"].endswith("jobrun train job.yaml")


@pytest.mark.parametrize("code", [0, 1, 143])
@pytest.mark.parametrize("name", ["job.sh", "sweep.sh", "walltime.sh", "job.pbs"])
def test_a_script_requeues_after_143_alone_and_passes_the_code_on(
    name: str, code: int, tmp_path: Path
) -> None:
    """The commands of the scheduler are programs that write down how they are called."""
    (tmp_path / name).write_text(SCRIPTS[name])
    programs = {
        "srun": 'exec "$@"',
        "timeout": 'while [ "${1#-}" != "$1" ]; do shift; done; shift; exec "$@"',
        "jobrun": f"exit {code}",
        "squeue": "echo 2030-01-01T00:00:00",
        "scontrol": 'echo scontrol "$@" >> called',
        "qsub": 'echo qsub "$@" >> called',
    }
    for program, text in programs.items():
        path = tmp_path / "bin" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
    environ = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "SLURM_JOB_ID": "17"}
    environ |= {"SLURM_ARRAY_TASK_ID": "2", "PBS_O_WORKDIR": str(tmp_path)}
    done = subprocess.run(["bash", name], cwd=tmp_path, env=environ)
    assert done.returncode == code
    called = tmp_path / "called"
    expected = "qsub job.pbs\n" if name == "job.pbs" else "scontrol requeue 17\n"
    assert (called.read_text() if called.exists() else "") == (expected if code == 143 else "")


def test_timeout_saves_and_passes_the_exit_code_on(tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    line = next(text for text in SCRIPTS["job.lsf"].splitlines() if text.startswith("timeout "))
    environ = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    process = subprocess.Popen(["bash", "-c", f"exec {line}"], cwd=folder, env=environ)
    try:
        wait_until(lambda: has_begun(folder / "runs/job") or process.poll() is not None)
        process.terminate()  # which timeout passes on, as the signal after its time
        assert process.wait(60) == 143
    finally:
        process.kill()
    assert ended(folder / "runs/job") == ("interrupted", "SIGTERM")


def prepared(folder: Path, epochs: int = 400) -> Path:
    """Write the files of the page, with jobs that take a while."""
    folder.mkdir(exist_ok=True)
    PAGE.write_files(folder)
    (folder / "job.py").write_text(SLOW)
    for name in ("job.yaml", "sweep.yaml", "nodes.yaml"):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace("epochs: 3}", f"epochs: {epochs}}}"))
    bare = SCRIPTS["exec.sh"].replace("exec jobrun", "jobrun")
    assert bare != SCRIPTS["exec.sh"]
    (folder / "bare.sh").write_text(bare)
    return folder


def ended(run: Path) -> tuple[str, str]:
    state = RunDir(run).state()
    assert state is not None
    return state.state, state.reason


def has_begun(run: Path) -> bool:
    return (run / "checkpoint_2").is_dir()


def holder(run: Path) -> int:
    """The process that holds a run."""
    pid: int = json.loads((run / "lock").read_text())["pid"]
    return pid


def slurm_jobs(folder: Path, run: str) -> list[str]:
    """The column of ``jobrun show``."""
    done = subprocess.run(
        [f"{BIN}/jobrun", "show", run], cwd=folder, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("attempt "))
    place = lines[first].index("Slurm job")
    rows = lines[first + 1 : lines.index("", first)]
    return [re.split(" {2,}", row[place:])[0] for row in rows]


@pytest.fixture
def slurm(machine: SlurmMachine) -> Iterator[SlurmMachine]:
    """A cluster without jobs."""
    yield machine
    machine.clear()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmMachine]:
    machine = SlurmMachine(tmp_path_factory.mktemp("slurm") / "machine")
    machine.folder.mkdir()
    machine.environ["PATH"] = f"{BIN}:{machine.environ['PATH']}"
    try:
        machine.start()
        yield machine
    finally:
        machine.stop()


class TestOnSlurm:
    """Each test takes up to two minutes: Slurm looks at its clock twice a minute."""

    pytestmark = slurm_only

    def three(
        self, slurm: SlurmMachine, folder: Path, *options: str, epochs: int = 400
    ) -> dict[str, str]:
        """Start the same job by the three kinds of lines, each in a folder of its own."""
        jobs = {}
        for name in ("job", "exec", "bare"):
            home = prepared(folder / name, epochs)
            jobs[name] = slurm.submit(f"{name}.sh", *options, cwd=home)
        wait_until(lambda: all(has_begun(folder / n / "runs/job") for n in jobs))
        return jobs

    def test_which_process_hears_a_signal(self, slurm: SlurmMachine, tmp_path: Path) -> None:
        jobs = self.three(slurm, tmp_path, epochs=4000)
        runs = {name: tmp_path / name / "runs/job" for name in jobs}

        def heard(*options: str) -> list[str]:
            """Signal the jobs that run; the names of those whose runs have saved and ended."""
            before = [name for name in jobs if slurm.job(jobs[name])["JobState"] == "RUNNING"]
            slurm.run("scancel", *options, *(jobs[name] for name in before), cwd=tmp_path)
            time.sleep(5)
            over = [name for name in before if not RunDir(runs[name]).held()]
            assert {ended(runs[name]) for name in over} <= {("interrupted", "SIGTERM")}
            return over

        assert heard("--signal=TERM") == ["job"]
        assert heard("--batch", "--signal=TERM") == ["exec"]
        slurm.wait_for(jobs["bare"], "FAILED")  # its bash has died, and jobrun is left behind
        os.kill(holder(runs["bare"]), signal.SIGTERM)
        wait_until(lambda: not RunDir(runs["bare"]).held())
        jobs = {"bare": slurm.submit("bare.sh", cwd=tmp_path / "bare")}
        wait_until(lambda: RunDir(runs["bare"]).held())
        wait_until(lambda: ended(runs["bare"])[0] == "running")
        assert heard() == ["bare"]

    def test_at_the_notice_a_job_is_requeued_and_resumes(
        self, slurm: SlurmMachine, tmp_path: Path
    ) -> None:
        folder = prepared(tmp_path)
        id = slurm.submit("job.sh", "--time=1", "--signal=TERM@50", cwd=folder)
        wait_until(lambda: slurm.job(id).get("Restarts") == "1")
        state, reason = ended(folder / "runs/job")
        assert (state, reason) == ("interrupted", "SIGTERM")
        (folder / "go").touch()
        slurm.start_now(id)
        slurm.wait_for(id, "COMPLETED")
        assert ended(folder / "runs/job")[0] == "finished"
        assert load_blobs(folder / "runs/job")["total"] == 400
        assert slurm_jobs(folder, "job") == [id, f"{id}, requeued once"]

    def test_preempted_jobs_save_are_requeued_and_resume(
        self, slurm: SlurmMachine, tmp_path: Path
    ) -> None:
        jobs = self.three(slurm, tmp_path)
        (tmp_path / "urgent.sh").write_text("#!/bin/bash\nsleep 1\n")
        urgent = slurm.submit("urgent.sh", "--partition=high", "--exclusive", cwd=tmp_path)
        slurm.wait_for(urgent, "COMPLETED")
        for name, id in jobs.items():
            assert ended(tmp_path / name / "runs/job") == ("interrupted", "SIGTERM")
            (tmp_path / name / "go").touch()
            slurm.start_now(id)
        for name, id in jobs.items():
            slurm.wait_for(id, "COMPLETED")
            assert load_blobs(tmp_path / name / "runs/job")["total"] == 400
            assert slurm_jobs(tmp_path / name, "job") == [id, f"{id}, requeued once"]

    def test_at_the_end_of_the_time_all_are_saved(
        self, slurm: SlurmMachine, tmp_path: Path
    ) -> None:
        jobs = self.three(slurm, tmp_path, "--time=1", "--signal=CONT@1", epochs=4000)
        wait_until(lambda: not any(RunDir(tmp_path / n / "runs/job").held() for n in jobs), 115)
        for name in jobs:
            assert ended(tmp_path / name / "runs/job") == ("interrupted", "SIGTERM")

    def test_walltime_slurm_ends_the_run_before_its_job(
        self, slurm: SlurmMachine, tmp_path: Path
    ) -> None:
        """A job of a minute is over before it has begun, which Slurm itself does not say."""
        folder = prepared(tmp_path)
        id = slurm.submit("walltime.sh", "--time=1", cwd=folder)
        wait_until(lambda: slurm.job(id).get("Restarts") == "1", 120)
        state, reason = ended(folder / "runs/job")
        assert state == "interrupted"
        assert re.fullmatch(r"the Slurm job ends at \d\d:\d\d:\d\d UTC", reason)
        (folder / "go").touch()
        slurm.run("scontrol", "update", f"JobId={id}", "TimeLimit=5", cwd=folder)
        slurm.start_now(id)
        slurm.wait_for(id, "COMPLETED")
        assert load_blobs(folder / "runs/job")["total"] == 400

    def test_a_whole_sweep_in_one_job(self, slurm: SlurmMachine, tmp_path: Path) -> None:
        """Slurm signals all processes of the step, and the sweep passes it on to its runs."""
        folder = prepared(tmp_path)
        script = (folder / "job.sh").read_text()
        (folder / "job.sh").write_text(script.replace("job.yaml", "sweep.yaml --jobs 3"))
        id = slurm.submit("job.sh", "--cpus-per-task=3", cwd=folder)
        runs = [folder / "runs/sweep" / f"lr={lr}" for lr in ("0.5", "1.0", "2.0")]
        wait_until(lambda: all(map(has_begun, runs)))
        slurm.run("scancel", "--signal=TERM", id, cwd=folder)
        wait_until(lambda: slurm.job(id).get("Restarts") == "1")
        assert [ended(run) for run in runs] == [("interrupted", "SIGTERM")] * 3
        (folder / "go").touch()
        slurm.start_now(id)
        slurm.wait_for(id, "COMPLETED")
        assert [ended(run)[0] for run in runs] == ["finished"] * 3

    def test_several_machines_with_dask_jobqueue(self, slurm: SlurmMachine, tmp_path: Path) -> None:
        """One of the two jobs of workers is cancelled while the run goes on."""
        pytest.importorskip("dask_jobqueue")
        folder = prepared(tmp_path)
        script = (folder / "cluster.py").read_text()
        smaller = {"cores=8": 'cores=1, interface="lo"', "32GB": "1GB", "jobs=4": "jobs=2"}
        smaller |= {"wait_for_workers(4)": "wait_for_workers(2)"}
        for old, new in smaller.items():
            assert old in script
            script = script.replace(old, new)
        (folder / "cluster.py").write_text(script)
        with (folder / "out.txt").open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "cluster.py"],
                cwd=folder,
                env={**slurm.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
                stdout=out,
                stderr=out,
            )
        try:
            wait_until(lambda: process.poll() is not None or has_begun(folder / "runs/nodes"))
            (first, *_) = slurm.run("squeue", "-h", "-t", "R", "-o", "%i", cwd=folder).split()
            slurm.run("scancel", first, cwd=folder)
            events = folder / "runs/nodes/events.jsonl"
            wait_until(lambda: '"RunWentBack"' in events.read_text())
            (folder / "go").touch()
            assert process.wait(100) == 0, (folder / "out.txt").read_text()
        finally:
            process.kill()
        assert ended(folder / "runs/nodes")[0] == "finished"
        totals = load_blobs(folder / "runs/nodes")
        assert {name: totals[name] for name in totals} == {f"n{n}:total": 400 for n in range(4)}

    def test_a_sweep_as_an_array(self, slurm: SlurmMachine, tmp_path: Path) -> None:
        """One member is requeued by hand while it runs."""
        folder = prepared(tmp_path)
        id = slurm.run("bash", "submit.sh", cwd=folder).split()[-1]
        runs = [folder / "runs/sweep" / f"lr={lr}" for lr in ("0.5", "1.0", "2.0")]
        wait_until(lambda: all(map(has_begun, runs)))
        slurm.run("scontrol", "requeue", f"{id}_1", cwd=folder)
        wait_until(lambda: not RunDir(runs[1]).held())
        (folder / "go").touch()
        slurm.start_now(f"{id}_1")
        for number in range(3):
            slurm.wait_for(f"{id}_{number}", "COMPLETED")
        found = json.loads(slurm.run("jobrun", "sweep", "sweep.yaml", "--json", cwd=folder))
        assert [(r["state"], r["epoch"], r["metrics"]["total"]) for r in found["runs"]] == [
            ("finished", 400, lr * 400) for lr in (0.5, 1.0, 2.0)
        ]
        assert slurm_jobs(folder, "sweep/lr=1.0") == [f"{id}_1", f"{id}_1, requeued once"]
