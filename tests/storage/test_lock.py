from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from jobrun.errors import LockedError, SaveError
from jobrun.storage.lock import Lock

HOLD = """
import sys, time
from jobrun.storage.lock import Lock
lock = Lock(sys.argv[1]); lock.acquire(); print("held", flush=True); time.sleep(60)
"""


def hold(run: Path, code: str = HOLD) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(run)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize("how", ["removed", "moved", "in another directory"])
def test_a_lock_whose_file_is_gone_is_taken_again(tmp_path: Path, how: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    lock = Lock(run)
    lock.acquire()
    if how == "removed":
        lock.path.unlink()
    elif how == "moved":
        lock.path.rename(tmp_path / "elsewhere")
    else:
        run.rename(tmp_path / "moved")
        run.mkdir()
    assert not Lock(run).held()
    lock.acquire()
    assert Lock(run).held()
    with pytest.raises(LockedError, match="this process already"):
        Lock(run).acquire()
    lock.release()
    assert not Lock(run).held()


def test_a_second_holder_is_refused_naming_the_first(tmp_path: Path) -> None:
    process = hold(tmp_path)
    try:
        with pytest.raises(LockedError) as error:
            Lock(tmp_path).acquire()
        assert f"process {process.pid} on {socket.gethostname()}" in str(error.value)
        assert Lock(tmp_path).held()
    finally:
        process.kill()
        process.wait()
    lock = Lock(tmp_path)
    assert not lock.held()
    lock.acquire()
    assert lock.held()
    assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    lock.release()


def test_within_a_process_too(tmp_path: Path) -> None:
    first = Lock(tmp_path)
    first.acquire()
    first.acquire()
    with pytest.raises(LockedError, match=f"this process already .pid {os.getpid()}"):
        Lock(tmp_path).acquire()
    first.release()
    first.release()
    second = Lock(tmp_path)
    second.acquire()
    second.release()


def test_the_file_stays(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    lock.acquire()
    inode = (tmp_path / "lock").stat().st_ino
    lock.release()
    lock.acquire()
    lock.release()
    assert (tmp_path / "lock").stat().st_ino == inode


def test_a_lock_that_is_forgotten_is_released(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    lock.acquire()
    del lock
    other = Lock(tmp_path)
    other.acquire()
    other.release()


@pytest.mark.parametrize("ending", ["", "lock.release()"])
def test_one_that_lives_to_the_end_of_the_interpreter_says_nothing(
    tmp_path: Path, ending: str
) -> None:
    """As the manager of somebody's own loop does, which is a global of the script."""
    script = tmp_path / "script.py"
    script.write_text(
        f"from jobrun.storage.lock import Lock\nlock = Lock('.')\nlock.acquire()\n{ending}\n"
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


def test_a_forked_child_does_not_keep_the_lock_of_a_killed_parent(tmp_path: Path) -> None:
    code = """
import os, sys, time
from jobrun.storage.lock import Lock
lock = Lock(sys.argv[1]); lock.acquire()
child = os.fork()
if child == 0:
    print("held", flush=True); time.sleep(60); os._exit(0)
(open(sys.argv[1] + "/child", "w")).write(str(child))
time.sleep(60)
"""
    process = hold(tmp_path, code)
    try:
        while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
            time.sleep(0.01)
        child = int((tmp_path / "child").read_text())
        assert Lock(tmp_path).held()
    finally:
        process.kill()
        process.wait()
    try:
        os.kill(child, 0)
        assert not Lock(tmp_path).held()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_forked_child_that_has_yet_to_let_go_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent was killed just after the fork, and the child has not run since."""
    code = """
import os, sys, time
from pathlib import Path

def wait() -> None:
    give_up = time.monotonic() + 120
    while not Path(sys.argv[1], "go").exists() and time.monotonic() < give_up:
        time.sleep(0.005)

os.register_at_fork(after_in_child=wait)  # before that of the lock
from jobrun.storage.lock import Lock
lock = Lock(sys.argv[1]); lock.acquire(); print("held", flush=True)
if os.fork():
    os.kill(os.getpid(), 9)
os._exit(0)
"""
    process = hold(tmp_path, code)
    assert process.wait() == -signal.SIGKILL
    assert Lock(tmp_path).held()
    with monkeypatch.context() as patch:
        patch.setattr("jobrun.storage.lock._PATIENCE", 0.02)
        with pytest.raises(LockedError, match=f"process {process.pid} on"):
            Lock(tmp_path).acquire()
    timer = threading.Timer(0.1, (tmp_path / "go").touch)
    timer.start()
    lock = Lock(tmp_path)
    lock.acquire()
    assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    lock.release()


def test_where_there_is_no_directory_nothing_is_held(tmp_path: Path) -> None:
    assert not Lock(tmp_path / "none").held()
    with pytest.raises(SaveError, match="cannot be locked"):
        Lock(tmp_path / "none").acquire()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        "nonsense",
        '{"pid": 1}',
        '{"pid": "x", "host": ""}',
        '{"pid": 1e999, "host": ""}',
    ],
)
def test_a_lock_file_of_other_content_is_no_obstacle(tmp_path: Path, text: str) -> None:
    process = hold(tmp_path)
    try:
        (tmp_path / "lock").write_text(text)
        with pytest.raises(LockedError, match="another process"):
            Lock(tmp_path).acquire()
    finally:
        process.kill()
        process.wait()
    lock = Lock(tmp_path)
    lock.acquire()
    lock.release()


def test_who_only_looks_never_refuses_a_writer(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        timer = threading.Timer(0.2, fcntl.flock, (looking, fcntl.LOCK_UN))
        timer.start()
        lock = Lock(tmp_path)
        lock.acquire()
        assert not timer.is_alive()
        assert lock.held()
        assert Lock(tmp_path).held()
        timer.join()
    lock.release()


def test_one_who_looks_all_the_time(tmp_path: Path) -> None:
    """The lock is taken and let go of while others look: never refused, and always seen."""
    look = (
        "import sys\nfrom jobrun.storage.lock import Lock\nprint('held', flush=True)\n"
        "while True: Lock(sys.argv[1]).held()\n"
    )
    looker = hold(tmp_path, look)
    try:
        for _ in range(30):
            lock = Lock(tmp_path)
            lock.acquire()
            assert Lock(tmp_path).held()
            lock.release()
    finally:
        looker.kill()
        looker.wait()


def test_of_two_writers_that_meet_a_reader_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    got: list[str] = []
    locks = [Lock(tmp_path) for _ in range(2)]

    def acquire(lock: Lock) -> None:
        try:
            lock.acquire()
            got.append("held")
        except LockedError:
            got.append("refused")

    with (tmp_path / "lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threads = [threading.Thread(target=acquire, args=(lock,)) for lock in locks]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert sorted(got) == ["held", "refused"]
    for lock in locks:
        lock.release()


def test_a_shared_lock_that_stays_is_a_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobrun.storage.lock._PATIENCE", 0.02)
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        with pytest.raises(LockedError, match="another process"):
            Lock(tmp_path).acquire()
