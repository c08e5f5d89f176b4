"""The lock made of files: one owner at most, whoever is killed; stale locks are replaced."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobrun.core.notices import received_by
from jobrun.core.process_identity import ProcessIdentity
from jobrun.errors import LockedError, SaveError, UsageError
from jobrun.storage.lock import Lock
from jobrun.storage.lock_file import LockFile, live_owner

CONTENDER = """
import fcntl, os, random, signal, sys, time
from pathlib import Path
from jobrun.storage.lock_file import LockFile
folder, seed, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
draw = random.Random(seed)
proof = os.open(folder / "proof", os.O_RDWR | os.O_CREAT)
end, held = time.monotonic() + seconds, 0
while time.monotonic() < end:
    lock = LockFile(folder)
    if lock.acquire():
        time.sleep(draw.uniform(0, 0.001))
        continue
    try:
        fcntl.flock(proof, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel's, which a death releases
    except BlockingIOError:
        print("TWO OWNERS", flush=True)
        os._exit(9)
    assert lock.is_held
    held += 1
    time.sleep(draw.uniform(0, 0.001))
    print(".", end="", flush=True)
    if draw.random() < 0.2:
        os.kill(os.getpid(), signal.SIGKILL)
    fcntl.flock(proof, fcntl.LOCK_UN)
    lock.release()
"""


def owned_by(folder: Path, owner: ProcessIdentity, age: float = 0.0, number: int = 1) -> Path:
    """Lay the lock of a process."""
    path = folder / f"lock.{number}"
    path.write_text(json.dumps(owner.to_json()))
    os.utime(path, (time.time() - age,) * 2)
    return path


def gone(**changes: Any) -> ProcessIdentity:
    """A process that has ended, or one elsewhere."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return replace(ProcessIdentity.own(), pid=child.pid, **changes)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Owners elsewhere are watched for a moment only."""
    monkeypatch.setattr("jobrun.storage.lock_file._WATCH", 0.2)


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    lock, other = LockFile(tmp_path), LockFile(tmp_path)
    assert live_owner(tmp_path) == ""
    assert lock.acquire() == ""
    assert lock.is_held
    assert other.acquire() == f"this process already (pid {os.getpid()})" == live_owner(tmp_path)
    assert not other.is_held
    lock.release()
    assert not lock.is_held
    assert live_owner(tmp_path) == ""
    assert other.acquire() == ""
    assert [p.name for p in tmp_path.iterdir()] == ["lock.2"]
    other.release()


def test_never_two_owners_whoever_is_killed(tmp_path: Path) -> None:
    """Many processes take turns, and a fifth of the owners is killed; those are replaced."""
    code, seconds = (
        [sys.executable, "-c", CONTENDER, str(tmp_path)],
        60.0 if os.environ.get("JOBRUN_LONG") else 1.5,
    )
    end, seed, turns, kills = time.monotonic() + seconds, 0, 0, 0
    running: list[subprocess.Popen[str]] = []
    while time.monotonic() < end or running:
        while time.monotonic() < end and len(running) < 8:
            seed += 1
            left = str(max(end - time.monotonic(), 0.1))
            child = [*code, str(seed), left]
            running.append(subprocess.Popen(child, stdout=subprocess.PIPE, text=True))
        for process in [p for p in running if p.poll() is not None]:
            running.remove(process)
            said = process.communicate()[0]
            assert process.returncode in (0, -9), said
            turns += said.count(".")
            kills += process.returncode == -9
        time.sleep(0.005)
    assert turns > 20
    assert kills > 3
    assert LockFile(tmp_path).acquire() == ""


def test_an_owner_that_was_killed_is_replaced(tmp_path: Path) -> None:
    owned_by(tmp_path, gone(), number=7)
    assert live_owner(tmp_path) == ""
    lock = LockFile(tmp_path)
    assert lock.acquire() == ""
    assert [p.name for p in tmp_path.iterdir()] == ["lock.8"]
    lock.release()


def test_a_process_with_the_number_of_a_dead_one_is_not_it(tmp_path: Path) -> None:
    own = ProcessIdentity.own()
    if not own.started:
        pytest.skip("the system does not tell when a process started")
    owned_by(tmp_path, replace(own, started="1"))
    assert LockFile(tmp_path).acquire() == ""


ELSEWHERE = {"host": "elsewhere", "machine": "m", "boot": "b"}


def test_an_owner_elsewhere_holds_while_its_heart_beats(tmp_path: Path) -> None:
    owned_by(tmp_path, gone(**ELSEWHERE), age=200)
    assert LockFile(tmp_path).acquire().endswith(f"on elsewhere since {ProcessIdentity.own().time}")
    assert "on elsewhere" in live_owner(tmp_path)


@pytest.mark.usefixtures("hasty")
def test_an_owner_elsewhere_without_a_heartbeat_is_replaced(tmp_path: Path) -> None:
    owned_by(tmp_path, gone(**ELSEWHERE), age=400)
    assert live_owner(tmp_path) == ""
    notices: list[str] = []
    with received_by(notices.append):
        assert LockFile(tmp_path).acquire() == ""
    assert "seems to be gone" in notices[0]
    assert "elsewhere" in notices[0]


@pytest.mark.parametrize("change", [{"space": "pid:[1]"}, ELSEWHERE, {"boot": "earlier"}], ids=str)
def test_a_heartbeat_while_it_is_watched_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]
) -> None:
    """Clocks differ, and machines that were copied have equal names."""
    monkeypatch.setattr("jobrun.storage.lock_file._WATCH", 5.0)
    path = owned_by(tmp_path, gone(**change), age=4000)
    monkeypatch.setattr("time.sleep", lambda seconds: os.utime(path))
    with received_by(lambda text: None):
        assert LockFile(tmp_path).acquire() != ""


@pytest.mark.usefixtures("hasty")
def test_a_restart_of_the_machine_needs_no_old_heartbeat(tmp_path: Path) -> None:
    if not ProcessIdentity.own().machine:
        pytest.skip("the machine has no id")
    owned_by(tmp_path, gone(boot="earlier"), age=1)
    with received_by(lambda text: None):
        assert LockFile(tmp_path).acquire() == ""


@pytest.mark.usefixtures("hasty")
def test_a_file_without_an_owner_is_replaced_when_it_is_old(tmp_path: Path) -> None:
    """Its maker was killed before it had written who it is."""
    (tmp_path / "lock.3").touch()
    assert LockFile(tmp_path).acquire() == "another process"
    os.utime(tmp_path / "lock.3", (0, 0))
    with received_by(lambda text: None):
        assert LockFile(tmp_path).acquire() == ""


def test_who_sees_an_old_state_withdraws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a look and the new file, others took the lock over and passed that number."""
    owner = LockFile(tmp_path)
    owned_by(tmp_path, gone(), number=4)
    assert owner.acquire() == ""  # lock.5
    owned_by(tmp_path, ProcessIdentity.own(), number=6)
    (tmp_path / "lock.5").unlink()
    late = LockFile(tmp_path)
    assert not late._make(5)
    assert [p.name for p in tmp_path.iterdir()] == ["lock.6"]
    assert not owner.is_held
    owner.release()
    assert live_owner(tmp_path)


def test_the_heart_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobrun.storage.lock_file._BEAT", 0.01)
    lock = LockFile(tmp_path)
    lock.acquire()
    os.utime(tmp_path / "lock.1", (0, 0))
    end = time.monotonic() + 120
    while (tmp_path / "lock.1").stat().st_mtime == 0 and time.monotonic() < end:
        time.sleep(0.01)
    assert (tmp_path / "lock.1").stat().st_mtime > 0
    lock.release()


# How the lock of a run chooses.


def without_flock(code: int) -> Any:
    """Stand in for flock(2) on a file system that has none."""

    def flock(fd: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    return flock


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_files_replace_a_flock_that_there_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(fcntl, "flock", without_flock(code))
    notices: list[str] = []
    lock, other = Lock(tmp_path), Lock(tmp_path)
    with received_by(notices.append):
        lock.acquire()
        lock.acquire()
        assert lock.held()
        assert other.held()
        with pytest.raises(LockedError, match="this process already"):
            other.acquire()
    assert notices == [
        f"{tmp_path} is on a file system without flock ({os.strerror(code)}): the run is locked by "
        "files with a heartbeat; JOBRUN_LOCK=file chooses this"
    ]
    lock.release()
    assert not other.held()


def test_the_variable_chooses_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who locks by flock meets them, and who locks by files meets a flock."""
    by_flock = Lock(tmp_path)
    by_flock.acquire()
    monkeypatch.setenv("JOBRUN_LOCK", "file")
    by_files = Lock(tmp_path)
    with pytest.raises(LockedError):
        by_files.acquire()
    by_flock.release()
    by_files.acquire()
    monkeypatch.setenv("JOBRUN_LOCK", "flock")
    monkeypatch.setattr(fcntl, "flock", lambda fd, operation: None)  # as another machine sees it
    with pytest.raises(LockedError):
        by_flock.acquire()
    by_files.release()
    by_flock.acquire()
    by_flock.release()


def test_an_owner_whose_place_was_taken_writes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine was suspended for long, and another has taken the lock over."""
    monkeypatch.setenv("JOBRUN_LOCK", "file")
    lock = Lock(tmp_path)
    lock.acquire()
    (tmp_path / "lock.1").unlink()
    owned_by(tmp_path, gone(**ELSEWHERE), number=2)
    with pytest.raises(LockedError, match="on elsewhere"):
        lock.acquire()
    assert [p.name for p in tmp_path.glob("lock.*")] == ["lock.2"]


def test_without_any_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBRUN_LOCK", "flock")
    monkeypatch.setattr(fcntl, "flock", without_flock(errno.ENOLCK))
    with pytest.raises(SaveError, match="cannot be locked") as caught:
        Lock(tmp_path).acquire()
    assert "JOBRUN_LOCK=none" in caught.value.hint
    monkeypatch.setenv("JOBRUN_LOCK", "none")
    locks = [Lock(tmp_path), Lock(tmp_path)]
    for lock in locks:
        lock.acquire()
        lock.release()
    monkeypatch.setenv("JOBRUN_LOCK", "fcntl")
    with pytest.raises(UsageError, match="auto, flock, file, none"):
        Lock(tmp_path).acquire()


def test_a_forked_child_neither_holds_nor_releases(tmp_path: Path) -> None:
    lock = LockFile(tmp_path)
    lock.acquire()
    child = os.fork()
    if child == 0:
        held = lock.is_held
        lock.release()
        os._exit(held)
    assert os.waitpid(child, 0)[1] == 0
    assert lock.is_held
    lock.release()
