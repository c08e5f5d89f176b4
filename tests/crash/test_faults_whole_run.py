"""The k-th file operation of a whole run fails, for k = 1, 2, 3, … until a run meets none.

The method is SQLite's.  Whatever fails: the checkpoints from before are whole, the exit code is 0
only if the last state is on disk, what is said names operation, file and cause, and the same run
goes on in the same process once the fault is lifted.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import random
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkpoint_helpers import ShortWrites
from children import Nursery, Places
from crash_job import bits, leftovers, prove_all
from faulty import EPOCHS, Attempt

from jobrun import load_blobs
from jobrun.core.notices import received_by
from jobrun.core.process_identity import ProcessIdentity
from jobrun.errors import SaveError
from jobrun.runs.rundir import RunDir
from jobrun.storage.fs import DEFAULT, Fs
from jobrun.storage.lock import Lock

CODES = [
    errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EMFILE, errno.EINTR, errno.EDQUOT,
]  # fmt: skip
LOOKING = {"open", "read", "stat"}
SILENT = {"list", "rmtree", "link", *LOOKING}
"""Operations whose failure may pass without a word: of looking, of clearing away, and of sharing a
file with an earlier checkpoint, which is written then."""


HONEST = {0, 5, 6}
"""How a run on a disk that fails may end: all is saved, what is there cannot be read, or the last
state is not on disk.
"""


class Fault:
    """The ``number``-th operation, of those named ``op`` if given, fails, once or from then on."""

    def __init__(self, number: int, code: int, lasting: bool, op: str = "") -> None:
        self.number, self.code, self.lasting, self.op = number, code, lasting, op
        self.met = 0
        self.failures: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def __call__(self, op: str, path: str) -> None:
        if self.op not in ("", op):
            return
        with self._lock:
            hit = self.met == self.number or (self.lasting and self.met > self.number)
            self.met += 1
            if hit:
                self.failures.append((op, path))
                raise OSError(self.code, os.strerror(self.code))


@pytest.fixture(scope="module")
def begun(module_places: Places) -> Path:
    """A run of one epoch, that was killed while it saved and while it removed."""
    run = module_places() / "run"
    assert Attempt(run, 1).code == 0
    for id, kind in ((7, "partial"), (0, "trash")):
        shutil.copytree(run / "checkpoint_1", run / f".checkpoint_{id}.{kind}-0123456789abcdef")
    (run / ".run.json.01234567").write_text("{")
    return run


@pytest.fixture(scope="module")
def undisturbed(begun: Path, module_places: Places) -> Any:
    run = shutil.copytree(begun, module_places() / "run")
    assert Attempt(run).code == 0
    assert leftovers(run) == []
    return bits(load_blobs(run))


Patch = Callable[[str, Any], None]


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> Patch:
    """Replaces a method of the file operations that everything uses."""
    return lambda name, method: monkeypatch.setattr(DEFAULT, name, method)


def numbers(long: bool, seed: int, count: int, most: int = 14) -> Sequence[int]:
    """The operations that fail, of so many in an undisturbed run: all of them, or a sample."""
    return range(100_000) if long else sorted(random.Random(seed).sample(range(count), most))


def count_operations(run: Path, patch: Patch, op: str = "", large: bool = False) -> int:
    """How many there are in a run that nothing disturbs."""
    none_fails = Fault(-1, 0, lasting=False, op=op)
    patch("at", none_fails)
    assert Attempt(run, large=large).code == 0
    patch("at", no_operation)
    return none_fails.met


@pytest.mark.parametrize("background", [False, True], ids=["inline", "background"])
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("fresh", [True, False], ids=["from the start", "resumed"])
def test_any_operation_fails(
    begun: Path, undisturbed: Any, place: Path, patch: Patch, long: bool,
    fresh: bool, lasting: bool, background: bool,
) -> None:  # fmt: skip
    seed = 4 * fresh + 2 * lasting + background
    whole = place / "whole" if fresh else shutil.copytree(begun, place / "whole")
    for number in numbers(long, seed, count_operations(whole, patch)):
        met = False
        for shift in range(len(CODES) if long else 1):
            fault = Fault(number, CODES[(number + seed + shift) % len(CODES)], lasting)
            run = place / f"{number}-{shift}"
            if not fresh:
                shutil.copytree(begun, run)
            check_run(run, fault, patch, undisturbed, fresh, background)
            met = met or bool(fault.failures)
        if not met:
            return
    assert not long


def check_run(
    run: Path, fault: Fault, patch: Patch, undisturbed: Any, fresh: bool, background: bool
) -> None:
    """An attempt that meets a fault is honest, and the next one, without it, ends the run."""
    patch("at", fault)
    attempt = Attempt(run, background=background)
    patch("at", no_operation)
    code = errno.errorcode[fault.code]
    what = f"operation {fault.number}: {fault.failures[:1]}, {code}\n{attempt.said}"
    check_attempt(run, attempt, fresh, undisturbed, what)
    check_said(attempt, fault, what)
    again = Attempt(run, background=background)
    assert again.code == 0, f"{what}\n\nand then\n{again.said}"
    assert bits(load_blobs(run)) == undisturbed, what
    passed_over = any(op in LOOKING for op, _ in fault.failures) and not fresh
    assert set(leftovers(run)) <= ({"attempts"} if passed_over else set()), what
    prove_all(run)
    shutil.rmtree(run)


def check_attempt(run: Path, attempt: Attempt, fresh: bool, undisturbed: Any, what: str) -> None:
    """An attempt that met a fault was honest, and spoilt nothing."""
    assert attempt.code in HONEST, what
    assert "Traceback" not in attempt.said, what
    records = prove_all(run) if run.exists() else []
    if not fresh:
        assert records, what
    if attempt.code == 0:
        assert records[-1].epoch == EPOCHS, what
        assert records[-1].at_boundary, what
        assert bits(load_blobs(run)) == undisturbed, what


def check_said(attempt: Attempt, fault: Fault, what: str) -> None:
    """An attempt says what failed, where and why, unless nobody loses anything by it."""
    why = f"{os.strerror(fault.code)} ({errno.errorcode[fault.code]})"
    if any(op not in SILENT for op, _ in fault.failures):
        said = [f"{op} of {path}: {why}" for op, path in fault.failures]
        assert any(text in attempt.said for text in said), what


def no_operation(op: str, path: str) -> None:
    """Nothing fails."""


CALLS = ["stat", "lstat", "open", "scandir", "listdir", "readlink"]
"""Calls of the system by which files are looked at, whoever makes them."""


@pytest.mark.parametrize("call", [*CALLS, "io.open"])
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("fresh", [True, False], ids=["from the start", "resumed"])
def test_any_look_at_the_run_directory_fails(
    begun: Path, undisturbed: Any, place: Path, monkeypatch: pytest.MonkeyPatch, long: bool,
    fresh: bool, lasting: bool, call: str,
) -> None:  # fmt: skip
    """A run that may not look, at whatever and from wherever, is honest, and no bug."""

    def attempt(run: Path, fault: Fault) -> Attempt:
        owner, name = (io, "open") if "." in call else (os, call)
        real = getattr(owner, name)

        def failing(path: Any, *how: Any, **hows: Any) -> Any:
            if isinstance(path, str | os.PathLike) and Path(os.fspath(path)).is_relative_to(run):
                fault(call, os.fspath(path))
            return real(path, *how, **hows)

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, failing)
            return Attempt(run)

    whole = place / "whole" if fresh else shutil.copytree(begun, place / "whole")
    none_fails = Fault(-1, 0, lasting=False)
    assert attempt(whole, none_fails).code == 0
    most = none_fails.met if long else 8
    for number in numbers(False, len(call), none_fails.met, min(most, none_fails.met)):
        for code in (errno.EIO, errno.EACCES):
            run = place / f"{number}-{code}"
            if not fresh:
                shutil.copytree(begun, run)
            fault = Fault(number, code, lasting)
            failed = attempt(run, fault)
            what = f"{call} {number}: {fault.failures[:1]}, {errno.errorcode[code]}\n{failed.said}"
            check_attempt(run, failed, fresh, undisturbed, what)
            again = Attempt(run)
            assert again.code == 0, f"{what}\n\nand then\n{again.said}"
            assert bits(load_blobs(run)) == undisturbed, what
            prove_all(run)
            shutil.rmtree(run)


@pytest.mark.parametrize("op", ["fsync", "close", "rename", "replace"])
def test_all_operations_of_a_kind_fail(
    begun: Path, undisturbed: Any, place: Path, patch: Patch, op: str
) -> None:
    """A disk that takes everything and promises nothing is no disk to end with code 0 on."""
    run = shutil.copytree(begun, place / "run")

    def at(operation: str, path: str) -> None:
        if operation == op:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    patch("at", at)
    attempt = Attempt(run)
    patch("at", no_operation)
    assert attempt.code == 6, attempt.said
    assert prove_all(run)[-1].epoch == 1
    assert Attempt(run).code == 0
    assert bits(load_blobs(run)) == undisturbed
    assert leftovers(run) == []


def test_where_no_link_can_be_made_all_is_written(
    begun: Path, undisturbed: Any, place: Path, patch: Patch
) -> None:
    run = shutil.copytree(begun, place / "run")
    fault = Fault(0, errno.EIO, lasting=True)
    patch("at", lambda op, path: fault(op, path) if op == "link" else None)
    attempt = Attempt(run)
    assert attempt.code == 0, attempt.said
    assert fault.failures
    assert prove_all(run)[-1].epoch == EPOCHS
    assert bits(load_blobs(run)) == undisturbed
    assert all(file.stat().st_nlink == 1 for file in run.rglob("zarr.json"))


def test_directories_cannot_be_synced(
    begun: Path, undisturbed: Any, place: Path, patch: Patch
) -> None:
    """CIFS, and some FUSE: one warning, and all else is as elsewhere."""
    run = shutil.copytree(begun, place / "run")

    def at(op: str, path: str) -> None:
        if op == "fsync" and os.path.isdir(path):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    patch("at", at)
    attempt = Attempt(run)
    patch("at", no_operation)
    assert attempt.code == 0, attempt.said
    assert attempt.said.count("does not sync directories (EINVAL)") == 1
    assert bits(load_blobs(run)) == undisturbed
    assert leftovers(run) == []


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_there_is_no_flock(
    begun: Path, undisturbed: Any, place: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Lustre, and some NFS: files with a heartbeat lock the run, which is reported once."""
    run = shutil.copytree(begun, place / "run")

    def flock(fd: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    holder = Lock(run)
    with received_by(lambda text: None):
        holder.acquire()
    refused = Attempt(run)
    assert refused.code == 8, refused.said
    assert f"the run is held by this process already (pid {os.getpid()})" in refused.said
    holder.release()
    attempt = Attempt(run)
    assert attempt.code == 0, attempt.said
    assert attempt.said.count("without flock") == 1
    assert bits(load_blobs(run)) == undisturbed
    assert leftovers(run) == []


def test_another_process_has_taken_the_lock_over(
    begun: Path, place: Path, patch: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the machine was suspended for long: what is the other's now stays as it is."""
    monkeypatch.setenv("JOBRUN_LOCK", "file")
    run = shutil.copytree(begun, place / "run")

    def at(op: str, path: str) -> None:
        if op == "rename" and not (run / "lock.99").exists():
            owner = replace(ProcessIdentity.own(), host="elsewhere", machine="other")
            (run / "lock.99").write_text(json.dumps(owner.to_json()))
            (run / "run.json").write_text('"of the other"')

    patch("at", at)
    attempt = Attempt(run)
    patch("at", no_operation)
    assert attempt.code == 8, attempt.said
    assert f"the run is held by process {os.getpid()} on elsewhere" in attempt.said
    assert (run / "run.json").read_text() == '"of the other"'


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")], ids=repr)
def test_the_machine_has_no_more_to_give(
    begun: Path, undisturbed: Any, place: Path, patch: Patch, error: Exception
) -> None:
    run = shutil.copytree(begun, place / "run")

    def at(op: str, path: str) -> None:
        if op == "write" and "partial" in path:
            raise error

    patch("at", at)
    attempt = Attempt(run)
    patch("at", no_operation)
    assert attempt.code == 6, attempt.said
    assert "was not saved: " + (str(error) or "there is not enough memory") in attempt.said
    assert Attempt(run).code == 0
    assert bits(load_blobs(run)) == undisturbed
    assert leftovers(run) == []


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
def test_all_is_synced_at_once_and_that_fails(
    place: Path, patch: Patch, long: bool, lasting: bool, flushed: None
) -> None:
    """Of a job with more files than are synced one by one."""
    if Fs().sync_all(str(place)) is None:
        pytest.skip("all files of this disk are synced one by one")
    calls = count_operations(place / "whole", patch, "syncfs", large=True)
    undisturbed = bits(load_blobs(place / "whole"))
    for number in numbers(long, lasting, calls, most=4):
        run = place / str(number)
        fault = Fault(number, errno.EIO, lasting, op="syncfs")
        patch("at", fault)
        attempt = Attempt(run, background=number % 2 == 1, large=True)
        patch("at", no_operation)
        what = f"syncfs {number}\n{attempt.said}"
        check_attempt(run, attempt, True, undisturbed, what)
        check_said(attempt, fault, what)
        if not fault.failures:
            return
        assert attempt.code == 6 or not lasting, what
        assert Attempt(run, large=True).code == 0, what
        assert bits(load_blobs(run)) == undisturbed, what
        assert leftovers(run) == [], what
        prove_all(run)
    assert not long


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
def test_any_write_is_short(
    begun: Path, undisturbed: Any, place: Path, patch: Patch, long: bool, lasting: bool
) -> None:
    """What one write leaves out is written by the next one, unless the disk is full."""
    writes = count_operations(shutil.copytree(begun, place / "whole"), patch, "write")
    for number in numbers(long, lasting, writes, most=8):
        run = shutil.copytree(begun, place / str(number))
        short = ShortWrites(number, lasting)
        patch("writev", short)
        attempt = Attempt(run, background=number % 2 == 1)
        patch("writev", os.writev)
        what = f"write {number}\n{attempt.said}"
        check_attempt(run, attempt, False, undisturbed, what)
        if not lasting or not short.is_reached:
            assert attempt.code == 0, what
            assert "ENOSPC" not in attempt.said, what
        else:
            assert f"write of {run}/" in attempt.said, what
            assert "No space left on device (ENOSPC)" in attempt.said, what
        assert Attempt(run).code == 0, what
        assert bits(load_blobs(run)) == undisturbed, what
        assert leftovers(run) == [], what
        prove_all(run)
        if not short.is_reached:
            return
    assert not long


@pytest.mark.parametrize("most", [1, 7])
def test_every_write_is_short(
    begun: Path, undisturbed: Any, place: Path, patch: Patch, most: int
) -> None:
    """What a write leaves out is written by the next one."""
    run = shutil.copytree(begun, place / "run")
    patch("writev", lambda fd, buffers: os.write(fd, buffers[0][:most]))
    attempt = Attempt(run)
    assert attempt.code == 0, attempt.said
    prove_all(run)
    assert bits(load_blobs(run)) == undisturbed


def test_a_write_that_writes_nothing(
    begun: Path, undisturbed: Any, place: Path, patch: Patch
) -> None:
    run = shutil.copytree(begun, place / "run")
    patch("writev", lambda fd, buffers: 0)
    attempt = Attempt(run)
    assert attempt.code == 6
    assert "nothing was written (EIO)" in attempt.said or "EIO" in attempt.said
    assert [r.epoch for r in prove_all(run)][-1] == 1


# Limits and disks that are real.


@pytest.mark.parametrize(
    ("name", "soft", "said"),
    [("RLIMIT_FSIZE", 100, "EFBIG"), ("RLIMIT_NOFILE", 20, ""), ("RLIMIT_NOFILE", 9, "EMFILE")],
)
def test_limits_of_the_process(
    nursery: Nursery, begun: Path, undisturbed: Any, place: Path, name: str, soft: int, said: str
) -> None:
    run = shutil.copytree(begun, place / "run")
    child = nursery.start("faulty:limited", run, name, soft)
    assert child.wait() == 0, child.text
    first, first_said, batches, second, second_said = json.loads(child.text)
    assert first == (0 if batches == 3 * EPOCHS else 6), first_said
    assert first == 0 or name != "RLIMIT_NOFILE" or soft < 20, first_said
    assert said in first_said
    assert second == 0, second_said
    assert bits(load_blobs(run)) == undisturbed
    assert leftovers(run) == [] or "was not removed" in first_said or "removal of" in first_said


@pytest.fixture
def small_disk(place: Path) -> Iterator[Path]:
    """A file system of its own, of 300 kB."""
    disk = place / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "none", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system may be mounted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_is_full(begun: Path, undisturbed: Any, small_disk: Path) -> None:
    run = shutil.copytree(begun, small_disk / "run")
    for left in run.glob(".checkpoint_*"):  # else cleaning up makes room
        shutil.rmtree(left)
    filler = small_disk / "filler"
    full = subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=4096"], capture_output=True)
    assert b"No space left" in full.stderr
    for _ in range(2):
        attempt = Attempt(run)
        assert attempt.code == 6, attempt.said
        assert "No space left on device (ENOSPC)" in attempt.said
        assert [r.epoch for r in prove_all(run)][-1] == 1
    filler.unlink()
    attempt = Attempt(run)
    assert attempt.code == 0, attempt.said
    assert bits(load_blobs(run)) == undisturbed
    assert leftovers(run) == []


def test_a_disk_that_is_read_only(begun: Path, small_disk: Path) -> None:
    """What is there can be looked at; what is to be written is refused."""
    run = shutil.copytree(begun, small_disk / "run")
    remount(small_disk, "ro")
    try:
        attempt = Attempt(run)
        assert attempt.code == 6, attempt.said
        assert "Read-only file system" in attempt.said
        finished = Attempt(run, 1)
        assert finished.code == 0, finished.said
        assert "nothing is left to do" in finished.said
        with pytest.raises(SaveError, match="Read-only file system"):
            RunDir(run).put("run.json", "{}")
    finally:
        remount(small_disk, "rw")
    attempt = Attempt(run)
    assert attempt.code == 0, attempt.said
    assert leftovers(run) == []


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)
