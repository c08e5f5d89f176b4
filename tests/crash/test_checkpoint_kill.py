"""SIGKILL before every file operation of a save: the checkpoints before it are whole."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from checkpoint_helpers import FEW, MANY, CountingFs, KillingFs, same_blobs, save

from jobrun.checkpoint.catalog import listed, prove
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.part_source import BlobSource
from jobrun.checkpoint.publish import clean_leftovers
from jobrun.checkpoint.record import RecordFields
from jobrun.core.position import Position
from jobrun.model.policy import Keep
from jobrun.storage.fs import Fs


def save_and_retain(run: Path, blobs: dict, fs: Fs) -> None:
    manager = CheckpointManager(run, keep=Keep(last=2), fs=fs)
    manager.save_snapshot(
        BlobSource({"main": blobs}, fs), RecordFields(position=Position(epochs=2))
    )
    manager.close()


def killed(run: Path, blobs: dict, number: int) -> bool:
    """Save in a child process that is killed at an operation; whether it came that far."""
    child = os.fork()
    if child == 0:
        try:
            save_and_retain(run, blobs, KillingFs(number))
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.parametrize("blobs", [FEW, MANY], ids=["few", "many"])
def test_a_kill_at_every_operation_leaves_whole_checkpoints(
    tmp_path: Path, blobs: dict, long: bool
) -> None:
    counting = CountingFs()
    for epoch in range(2):
        save(tmp_path / "count", FEW, epoch=epoch)
    save_and_retain(tmp_path / "count", blobs, counting)
    total = len(counting.done)
    step = (1 if blobs is FEW else 11) * (1 if long else 3)
    committed = 0
    for number in [*range(0, total, step), *range(total - 8, total)]:
        run = tmp_path / f"{number}"
        if run.exists():
            continue
        for epoch in range(2):
            save(run, FEW, epoch=epoch)
        assert killed(run, blobs, number)
        whole = [r.id for r in listed(run)]
        assert whole in ([0, 1], [0, 1, 2], [1, 2]), number
        committed += whole[-1] == 2
        for record in listed(run):
            prove(run, record)
        if whole[-1] == 2:
            assert same_blobs(CheckpointManager(run).load().parts["main"], blobs)

        clean_leftovers(run)
        names = sorted(p.name for p in run.iterdir())
        assert names == [*(f"checkpoint_{id}" for id in whole), "lock"]
        assert save(run, blobs, epoch=3).name == f"checkpoint_{whole[-1] + 1}"
    assert 0 < committed < total
