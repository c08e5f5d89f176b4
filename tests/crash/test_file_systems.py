"""A run on each kind of file system: kills, resumes, links, locks, a full disk.

What the page ``filesystems`` says to be tested is tested here.
"""

from __future__ import annotations

import errno
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import Nursery, Places
from crash_job import POLICIES, leftovers, prove_all, result_of
from faulty import EPOCHS, Attempt
from mounts import KINDS, mounted, mounted_again

from jobrun import CheckpointManager, load_blobs
from jobrun.core.notices import received_by
from jobrun.errors import LockedError
from jobrun.storage.lock import Lock

POLICY = next(iter(POLICIES))
WITHOUT_LINKS = {"sshfs", "exfat-fuse"}
"""sshfs makes links, but shows each name as a file of its own."""


@pytest.fixture(scope="module", params=KINDS)
def disk(request: pytest.FixtureRequest, module_places: Places) -> Iterator[Path]:
    with mounted(request.param, module_places()) as place:
        yield place


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.node.callspec.params["disk"]
    return found


@pytest.fixture(scope="module")
def undisturbed(nursery: Nursery, module_places: Places) -> tuple[dict[str, Any], int]:
    """The result of a run in memory, and its number of file operations."""
    run = module_places() / "run"
    child = nursery.start("crash_job:count_operations", run, POLICY)
    assert child.wait() == 0, child.text
    return result_of(run), int(child.text)


def test_a_chain_of_kills_ends_as_elsewhere(
    disk: Path, kind: str, nursery: Nursery, undisturbed: tuple[dict[str, Any], int], long: bool
) -> None:
    result, operations = undisturbed
    for chain in range(20 if long else 1):
        run, choice, kills = disk / f"chain-{chain}", random.Random(chain), 0
        while True:
            kill_at = [choice.randrange(operations // 2)] if kills < (10 if long else 4) else None
            child = nursery.start("crash_job:train", run, POLICY, 2, kill_at)
            assert child.wait() in (0, -signal.SIGKILL), child.text
            prove_all(run)
            if child.code == 0:
                break
            kills += 1
        assert kills
        assert result_of(run) == result
        assert leftovers(run) == []


def test_unchanged_blobs_share_files_where_there_are_links(disk: Path, kind: str) -> None:
    blobs = {"w": np.arange(1000.0)}
    with CheckpointManager(disk / "links") as manager:
        for epoch in range(3):
            manager.save(epoch, {"main": blobs})
        links = manager.path(2).joinpath("main/w/0").stat().st_nlink
        assert load_blobs(disk / "links")["w"].tolist() == blobs["w"].tolist()
    assert len(prove_all(disk / "links")) == 3
    assert (links > 1) == (kind not in WITHOUT_LINKS)


@pytest.mark.parametrize("lock", ["auto", "flock", "file"])
def test_one_process_writes(
    disk: Path, kind: str, lock: str, nursery: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBRUN_LOCK", lock)
    run = disk / f"lock-{lock}"
    run.mkdir()
    holder = nursery.start("faulty:hold", run, lock)
    holder.wait_for_text("held")
    ours = Lock(run)
    with received_by(lambda text: None):
        with pytest.raises(LockedError, match=f"process {holder.pid}"):
            ours.acquire()
        holder.kill()
        ours.acquire()
    ours.release()


def test_one_process_writes_by_two_mounts(disk: Path, kind: str) -> None:
    """Their flock is that of each mount."""
    if kind not in ("sshfs", "bindfs"):
        pytest.skip("it is mounted on one machine at a time")
    (disk / "shared").mkdir()
    first = Lock(disk / "shared")
    first.acquire()
    with mounted_again(kind, disk) as again:
        assert Lock(again / "shared").held()
        with pytest.raises(LockedError, match=f"pid {os.getpid()}"):
            Lock(again / "shared").acquire()
        first.release()
        second = Lock(again / "shared")
        second.acquire()
        with pytest.raises(LockedError):
            first.acquire()
        second.release()


def test_a_full_disk_loses_nothing(disk: Path, kind: str) -> None:
    if kind in ("fuse-overlayfs", "bindfs", "sshfs"):
        pytest.skip("the disk behind it is the machine's memory")
    run = disk / "full"
    assert Attempt(run, 1).code == 0
    filler = disk / "filler"
    try:
        fill(filler)
        attempt = Attempt(run)
        assert attempt.code == 6, attempt.said
        assert os.strerror(errno.ENOSPC) in attempt.said
        assert prove_all(run)
    finally:
        filler.unlink(missing_ok=True)
    assert Attempt(run).code == 0
    assert prove_all(run)[-1].epoch == EPOCHS
    assert leftovers(run) == []


def fill(path: Path) -> None:
    """Write until the disk is full to its last byte."""
    size = 1 << 20
    with open(path, "wb", buffering=0) as file:
        while size:
            try:
                file.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
