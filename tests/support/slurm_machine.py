"""Slurm on this machine alone: its daemons as children of this process, in a folder, on loopback.

Debian has them as ``slurm-wlm`` and ``munge``.  There is no systemd, no cgroup and no accounting:
processes are found by their parents (``proctrack/linuxproc``).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

CPUS = 4
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "squeue")
_PATH = os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/usr/local/sbin"))
_CONF = """\
ClusterName=jobrun
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
KillWait=10
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1
JobAcctGatherType=jobacct_gather/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=8000 State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime=5
PartitionName=high Nodes=ALL MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF
"""


def why_not() -> str:
    """Return why Slurm cannot be run here; empty if it can."""
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if missing:
        return f"no {', '.join(missing)}: apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "the daemons of Slurm need root"


def wait_until(true: Callable[[], object], seconds: float = 100) -> None:
    """Wait until something is true; AssertionError if it does not come."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.2)


class SlurmMachine:
    """A cluster of one node, which has ``CPUS`` however many there are.

    Jobs of the partition ``high`` preempt those of ``low``, which is the default; these are
    requeued after a grace of 5 seconds.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "JOBRUN"))},
            "PATH": _PATH,
            "SLURM_CONF": str(folder / "slurm.conf"),
        }
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start the daemons, and wait for the node."""
        for name in ("state", "spool"):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        ports = [_free_port(), _free_port()]
        text = _CONF.format(folder=self.folder, host=socket.gethostname(), ports=ports, cpus=CPUS)
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "cgroup.conf").touch()
        places = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid"}
        places |= {"log-file": "munged.log", "seed-file": "munged.seed"}
        options = [f"--{name}={self.folder / file}" for name, file in places.items()]
        self._daemon("munged", "--foreground", "--force", "--num-threads=2", *options)
        wait_until((self.folder / "munge.socket").exists, 120)
        self._daemon("slurmctld", "-D", "-i")
        wait_until(lambda: not self._call("scontrol", "ping").returncode, 120)
        self._daemon("slurmd", "-D")
        wait_until(
            lambda: set(self._call("sinfo", "-h", "-o", "%t").stdout.split()) == {"idle"}, 30
        )

    def clear(self) -> None:
        """End all jobs."""
        self._call("scancel", "--user=root")
        wait_until(lambda: not self._call("squeue", "-h").stdout.strip(), 120)

    def stop(self) -> None:
        """End all jobs, and then the daemons."""
        if len(self._daemons) == 3:
            self.clear()
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def run(self, *command: str, cwd: Path) -> str:
        """Return what a command prints; AssertionError with its error if it fails."""
        done = self._call(*command, cwd=cwd)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def job(self, id: str) -> dict[str, str]:
        """Return what ``scontrol show job`` says."""
        words = self._call("scontrol", "show", "job", id).stdout.split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def submit(self, script: str, *options: str, cwd: Path) -> str:
        """Submit a script of a folder, and return the id of the job."""
        return self.run("sbatch", "--parsable", *options, script, cwd=cwd).strip()

    def start_now(self, id: str) -> None:
        """Let a requeued job start without the two minutes that Slurm waits."""
        wait_until(lambda: self.job(id)["JobState"] == "PENDING")
        time.sleep(2)  # slurmd refuses what starts in the second in which it was killed
        self.run("scontrol", "update", f"JobId={id}", "StartTime=now", cwd=self.folder)

    def wait_for(self, id: str, state: str, seconds: float = 100) -> None:
        """Wait until a job is in a state."""
        wait_until(lambda: self.job(id).get("JobState") == state, seconds)

    def _daemon(self, name: str, *options: str) -> None:
        with (self.folder / f"{name}.out").open("wb") as out:
            program = shutil.which(name, path=_PATH) or name
            process = subprocess.Popen(
                [program, *options], env=self.environ, stdout=out, stderr=out, cwd=self.folder
            )
        self._daemons.append(process)

    def _call(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self.environ,
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
