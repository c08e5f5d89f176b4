"""The k-th file operation of a save fails, for every k: older checkpoints stay, the next succeeds.

The method is that of SQLite's tests of I/O errors.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from checkpoint_helpers import (
    FEW,
    LARGE,
    MANY,
    CountingFs,
    FailingFs,
    ShortWrites,
    fresh,
    same_blobs,
    save,
)

from jobrun.checkpoint.catalog import listed, prove
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.part_source import BlobSource
from jobrun.checkpoint.record import RecordFields
from jobrun.core.position import Position
from jobrun.errors import SaveError
from jobrun.model.policy import Keep
from jobrun.storage.fs import Fs

CODES = [
    errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EMFILE, errno.EINTR, errno.EDQUOT,
]  # fmt: skip


def check_refusal(run: Path, message: str, fs: FailingFs, old: list[str]) -> None:
    """The message says what failed, where and why, and nothing but whole checkpoints is there."""
    why = f"{os.strerror(fs.code)} ({errno.errorcode[fs.code]})"
    assert any(f"{op} of {path}: {why}" in message for op, path in fs.failures)
    names = {p.name for p in run.iterdir()} - {"lock"}
    assert names in (set(old), {*old, "checkpoint_2"})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("ops", [None, {"fsync"}, {"syncfs"}, {"close"}, {"write"}], ids=str)
@pytest.mark.parametrize("blobs", [FEW, MANY], ids=["few", "many"])
@pytest.mark.usefixtures("flushed")
def test_every_operation_may_fail(
    tmp_path: Path, blobs: dict, ops: set[str] | None, lasting: bool, long: bool
) -> None:
    for shift in range(len(CODES) if long else 1):
        failures = 0
        for number in range(10_000):
            if number > 12:  # all are alike; the last ones are met in the other case
                number = 12 + (number - 12) * (9 if blobs is MANY else 1) * (1 if long else 3)
            code = CODES[(number + shift) % len(CODES)]
            fs = FailingFs(number, code, ops=frozenset(ops) if ops else None, lasting=lasting)
            check_save(tmp_path / f"{shift}-{number}", blobs, fs)
            if not fs.failures:
                break
            failures += 1
        if ops != {"syncfs"}:
            assert failures >= 4
        elif Fs().sync_all(str(tmp_path)):
            assert failures >= (0 if blobs is FEW else 2)


def check_save(run: Path, blobs: dict, fs: FailingFs) -> None:
    """A save that meets a fault is refused or whole, and the next one, without it, succeeds."""
    old = [save(run, FEW, epoch=epoch).name for epoch in range(2)]
    manager = CheckpointManager(run, keep=Keep(last=2), fs=fs)
    source = BlobSource({"main": fresh(blobs)}, fs)
    try:
        saved = manager.save_snapshot(source, RecordFields(position=Position(epochs=2)))
        told = (*saved.warnings, *manager.settle())
        if fs.failures and fs.failures[0][0] not in ("open", "link"):  # a removal failed
            assert fs.failures[0][0] in told[0]
    except SaveError as error:
        check_refusal(run, str(error), fs, old)
    whole = listed(run)
    for record in whole:
        prove(run, record)
    assert {r.id for r in whole} >= {1}

    fs.number, fs.lasting = -1, False  # the fault is lifted
    again = manager.save_snapshot(source, RecordFields(position=Position(epochs=2)))
    manager.close()
    loaded = CheckpointManager(run).load()
    assert loaded.record == again.record
    assert same_blobs(loaded.parts["main"], blobs)
    assert not [p for p in run.iterdir() if "partial" in p.name]


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("blobs", [FEW, MANY, LARGE], ids=["few", "many", "large"])
def test_any_write_may_be_short(
    place: Path, tmp_path: Path, blobs: dict, lasting: bool, long: bool
) -> None:
    """What it leaves out is written by the next one, or the save has failed."""
    folder = place if takes_direct(place) else tmp_path
    for number in range(0, 10_000, 7 if blobs is MANY and not long else 1):
        run = folder / str(number)
        old = [save(run, FEW, epoch=epoch).name for epoch in range(2)]
        fs = Fs()
        writes = fs.writev = ShortWrites(number, lasting)  # type: ignore[method-assign]
        told = refusal(run, fresh(blobs), fs)
        assert bool(told) == (lasting and writes.is_reached)
        if told:
            assert f"write of {run}/" in told
            assert "No space left on device (ENOSPC)" in told
            assert {p.name for p in run.iterdir()} == {*old, "lock"}
            assert same_blobs(CheckpointManager(run).load().parts["main"], FEW)
            fs.writev = os.writev  # type: ignore[method-assign,assignment]
            assert refusal(run, fresh(blobs), fs) == ""
        assert [r.id for r in listed(run)] == [0, 1, 2]
        assert same_blobs(CheckpointManager(run).load().parts["main"], blobs)
        if not writes.is_reached:
            break
    past_the_cache = 3 if blobs is LARGE and takes_direct(folder) else 0
    linked = 1 if blobs is FEW else 0  # the chunk of "w", whose bytes are those on disk
    assert writes.met >= len(blobs) + 3 + past_the_cache - linked


def refusal(run: Path, blobs: dict, fs: Fs) -> str:
    """What is said of a save that fails; nothing if it does not."""
    try:
        save(run, blobs, epoch=2, fs=fs)
    except SaveError as error:
        return str(error)
    return ""


def takes_direct(folder: Path) -> bool:
    """Whether files in a folder can be written past the page cache."""
    try:
        os.close(os.open(folder / "probe", os.O_WRONLY | os.O_CREAT | os.O_DIRECT))
    except (OSError, AttributeError):
        return False
    return True


def test_nothing_bypasses_the_file_operations(tmp_path: Path) -> None:
    """All that strace sees of a save under the run directory went through Fs."""
    if subprocess.run(["sh", "-c", "command -v strace"], capture_output=True).returncode:
        pytest.skip("strace is not installed")
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from checkpoint_helpers import *\n"
        "fs = CountingFs(); save(sys.argv[1], fs=fs)\n"
        "print(*sorted({p for op, p in fs.done if op in ('open', 'mkdir', 'rename')}), sep='\\n')\n"
    )
    helpers = Path(__file__).parents[1] / "checkpoint"
    calls = "trace=mkdir,mkdirat,rename,renameat,renameat2,openat,open,creat,unlink,unlinkat,link"
    shown = subprocess.run(
        ["strace", "-f", "-o", tmp_path / "trace", "-e", calls, sys.executable, "-c", code,
         tmp_path / "run", helpers], capture_output=True, text=True,
    )  # fmt: skip
    if "ptrace" in shown.stderr:
        pytest.skip("strace is not allowed here")
    assert shown.returncode == 0, shown.stderr
    ours = {*shown.stdout.splitlines(), str(tmp_path / "run/lock")}
    for line in (tmp_path / "trace").read_text().splitlines():
        names = [p for p in line.split('"')[1::2] if p.startswith(f"{tmp_path}/run/")]
        changes = "O_CREAT" in line or "open" not in line
        if names and changes and "= -1" not in line:
            assert names[-1] in ours, line


LIMITED = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from checkpoint_helpers import *
from jobrun.errors import SaveError
run = sys.argv[1]
big = {"x": Box(frozen(np.arange(100_000.0)), "array"), **{f"y{i}": array(i) for i in range(60)}}
save(run, big)
soft, hard = resource.getrlimit(resource.LIMIT)
resource.setrlimit(resource.LIMIT, (VALUE, hard))
try:
    save(run, big, epoch=1)
except SaveError as error:
    print(error)
else:
    print("saved")
resource.setrlimit(resource.LIMIT, (soft, hard))
print(save(run, big, epoch=2).name)
"""


@pytest.mark.parametrize(
    ("limit", "value", "shown"),
    [("RLIMIT_FSIZE", 50_000, "(EFBIG)"), ("RLIMIT_NOFILE", 20, "saved"), ("RLIMIT_NOFILE", 6, "")],
)
def test_limits_of_the_process(tmp_path: Path, limit: str, value: int, shown: str) -> None:
    helpers = Path(__file__).parents[1] / "checkpoint"
    code = LIMITED.replace("LIMIT", limit.removeprefix("RLIMIT_")).replace("VALUE", str(value))
    code = code.replace(f"resource.{limit.removeprefix('RLIMIT_')}", f"resource.{limit}")
    result = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "run", helpers], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert shown in result.stdout
    assert result.stdout.splitlines()[-1] == "checkpoint_1" or "saved" in result.stdout
    for record in listed(tmp_path / "run"):
        prove(tmp_path / "run", record)
    assert not [p for p in (tmp_path / "run").iterdir() if "partial" in p.name]


def test_the_operations_of_a_save_are_few(tmp_path: Path) -> None:
    """What is counted here is what a save costs: one open, write and close an inode, and no more.

    Blobs of one dtype and shape share the inode of their metadata.
    """
    fs = CountingFs()
    save(tmp_path, MANY, fs=fs)
    ops = [op for op, _ in fs.done]
    paths = [p for p in tmp_path.rglob("*") if p.is_file() and p.name != "lock"]
    inodes = {p.stat().st_ino for p in paths}
    assert ops.count("write") == ops.count("close") == len(inodes)
    assert ops.count("link") == len(paths) - len(inodes) == 40 - 1
    assert ops.count("rename") == 1
    assert ops.count("stat") == 0
