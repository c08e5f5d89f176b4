"""What retention drops loses its name within the save and its files in the background."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Any

import pytest
from checkpoint_helpers import SAMPLE, CountingFs, FailingFs, save

from jobrun.checkpoint import trash
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.part_source import BlobSource
from jobrun.checkpoint.publish import clean_leftovers
from jobrun.checkpoint.record import RecordFields
from jobrun.checkpoint.save_result import Saved
from jobrun.errors import SaveError
from jobrun.model.policy import Keep
from jobrun.storage.fs import Fs

TIMEOUT = 60


class SlowRemovals(CountingFs):
    """No tree is deleted before ``go``; ``full``: until then there is no room for chunks either."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.full = False
        self.reached_tree = threading.Event()

    def at(self, op: str, path: str) -> None:
        super().at(op, path)
        if op == "rmtree" and ".trash-" in path:
            self.reached_tree.set()
            assert self.go.wait(TIMEOUT)
        if op == "write" and self.full:
            if not self.go.is_set():
                threading.Timer(0.02, self.go.set).start()
                raise OSError(errno.ENOSPC, "No space left on device")
            self.full = False


def save_again(manager: CheckpointManager, fs: Fs) -> Saved:
    return manager.save_snapshot(BlobSource({"main": {"x": SAMPLE["total"]}}, fs), RecordFields())


def names(run: Path) -> list[str]:
    return sorted(p.name.split("-")[0] for p in run.iterdir() if p.name != "lock")


def removers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("jobrun-remove")]


def test_saves_go_on_while_a_dropped_checkpoint_is_deleted(tmp_path: Path) -> None:
    fs = SlowRemovals()
    manager = CheckpointManager(tmp_path, keep=Keep(last=1), fs=fs)
    assert save_again(manager, fs).removed == ()
    for id in (1, 2, 3):
        assert save_again(manager, fs).removed == (id - 1,)
        assert manager.catalog.ids() == [id]
    assert names(tmp_path) == [
        ".checkpoint_0.trash", ".checkpoint_1.trash", ".checkpoint_2.trash", "checkpoint_3",
    ]  # fmt: skip
    assert len(removers()) == 1
    fs.go.set()
    assert manager.settle() == ()
    assert names(tmp_path) == ["checkpoint_3"]
    manager.close()
    assert removers() == []


def test_an_end_waits_for_what_is_being_deleted(tmp_path: Path) -> None:
    fs = SlowRemovals()
    manager = CheckpointManager(tmp_path, keep=Keep(last=1), fs=fs)
    for _ in range(3):
        save_again(manager, fs)
    ending = threading.Thread(target=manager.close)
    ending.start()
    assert fs.reached_tree.wait(TIMEOUT)
    assert manager.lock.held()  # nobody may write here meanwhile
    assert ending.is_alive()
    fs.go.set()
    ending.join(TIMEOUT)
    assert names(tmp_path) == ["checkpoint_2"]
    assert not manager.lock.held()
    assert removers() == []


def test_the_new_name_is_durable_before_a_file_goes(tmp_path: Path) -> None:
    fs = CountingFs()
    with CheckpointManager(tmp_path, keep=Keep(last=1), fs=fs) as manager:
        save_again(manager, fs)
        save_again(manager, fs)
    ops = [(op, Path(path).name.split("-")[0]) for op, path in fs.done]
    renamed, deleted = (ops.index((op, ".checkpoint_0.trash")) for op in ("rename", "rmtree"))
    assert ("fsync", tmp_path.name) in ops[renamed:deleted]


@pytest.mark.parametrize(("op", "gone"), [("fsync", True), ("rmtree", False)])
def test_an_error_in_the_background_is_a_warning_of_a_later_save(
    tmp_path: Path, op: str, gone: bool
) -> None:
    class Failing(Fs):
        def at(self, operation: str, path: str) -> None:
            background = threading.current_thread().name.startswith("jobrun-remove")
            if operation == op and background:
                raise OSError(errno.EIO, "Input/output error")

    fs = Failing()
    manager = CheckpointManager(tmp_path, keep=Keep(last=1), fs=fs)
    save_again(manager, fs)
    told = list(save_again(manager, fs).warnings)  # its own removal may be as quick
    manager._removal.wait()
    told += save_again(manager, fs).warnings
    assert told
    told += manager.settle()
    first, last = told
    assert first.startswith("removal of .checkpoint_0.trash-")
    assert f"{op} of {tmp_path}" in first
    assert "Input/output error (EIO)" in first
    assert last.startswith("removal of .checkpoint_1.trash-")
    manager.close()
    assert manager.catalog.ids() == [2]
    left = clean_leftovers(tmp_path)  # as the next start does
    assert len(left) == (0 if gone else 2)
    assert names(tmp_path) == ["checkpoint_2"]


def test_no_more_than_so_many_wait_to_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trash, "MOST_WAITING", 2)
    fs = SlowRemovals()
    manager = CheckpointManager(tmp_path, keep=Keep(last=1), fs=fs)
    for _ in range(3):
        save_again(manager, fs)
    fourth = threading.Thread(target=save_again, args=(manager, fs))
    fourth.start()
    fourth.join(0.1)
    assert fourth.is_alive()
    fs.go.set()
    fourth.join(TIMEOUT)
    assert not fourth.is_alive()
    manager.close()
    assert names(tmp_path) == ["checkpoint_3"]


def save_on_a_full_disk(manager: CheckpointManager, fs: SlowRemovals) -> Saved:
    """Save when the disk is full, while the checkpoint before the last is being deleted."""
    for _ in range(2):
        save_again(manager, fs)
    assert fs.reached_tree.wait(TIMEOUT)
    fs.full = True
    return save_again(manager, fs)


def test_a_full_disk_waits_for_the_room_of_what_was_dropped(tmp_path: Path) -> None:
    fs = SlowRemovals()
    with CheckpointManager(tmp_path, keep=Keep(last=1), fs=fs) as manager:
        saved = save_on_a_full_disk(manager, fs)
    assert saved.removed == (1,)
    assert "checkpoint 2 was not saved: write of " in saved.warnings[0]
    assert saved.warnings[0].endswith("No space left on device (ENOSPC); the retry succeeded")
    assert names(tmp_path) == ["checkpoint_3"]


def test_room_that_is_made_while_a_save_fails_is_used(tmp_path: Path) -> None:
    """The deletion ends between the write that fails and the look whether there is one."""

    class Full(SlowRemovals):
        def at(self, op: str, path: str) -> None:
            if op == "write" and self.full:
                self.full = False
                self.go.set()
                manager.settle()
                raise OSError(errno.ENOSPC, "No space left on device")
            super().at(op, path)

    fs = Full()
    with CheckpointManager(tmp_path, keep=Keep(last=1), fs=fs) as manager:
        saved = save_on_a_full_disk(manager, fs)
    assert saved.warnings[0].endswith("No space left on device (ENOSPC); the retry succeeded")
    assert names(tmp_path) == ["checkpoint_3"]


def test_what_makes_room_on_a_full_disk_is_among_what_the_save_has_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(Fs):
        once = False

        def at(self, op: str, path: str) -> None:
            if op == "write" and self.once:
                self.once = False
                raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(trash, "_POSTPONED", 0.5)
    fs = Full()
    with CheckpointManager(tmp_path, keep=Keep(last=4), fs=fs) as manager:
        removed = [id for _ in range(6) for id in save_again(manager, fs).removed]
        manager.settle()
        assert names(tmp_path) == [f"checkpoint_{id}" for id in range(len(removed), 6)]
        assert len(removed) < 2
        fs.once = True
        saved = save_again(manager, fs)
        assert saved.warnings[0].endswith("(ENOSPC); the retry succeeded")
        removed += [*saved.removed, *manager.apply_postponed()[0]]
    assert removed == [0, 1, 2]


def test_a_full_disk_fails_the_save_if_nothing_is_being_deleted(tmp_path: Path) -> None:
    fs = FailingFs(0, errno.ENOSPC, ops=frozenset({"write"}))
    with (
        CheckpointManager(tmp_path, keep=Keep(last=1), fs=fs) as manager,
        pytest.raises(SaveError, match="ENOSPC"),
    ):
        save_again(manager, fs)
    assert names(tmp_path) == []


def test_keep_all_removes_nothing_and_needs_no_thread(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path) as manager:
        for epoch in range(3):
            manager.save(epoch, {"main": {}})
        assert removers() == []
    assert names(tmp_path) == [f"checkpoint_{id}" for id in range(3)]


def test_a_process_that_ends_without_closing_deletes_what_it_dropped(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from jobrun import CheckpointManager, Keep\n"
        "manager = CheckpointManager(sys.argv[1], keep=Keep(last=1))\n"
        "for epoch in range(4): manager.save(epoch, {'main': {'x': epoch}})\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True, timeout=TIMEOUT)
    assert names(tmp_path) == ["checkpoint_3"]


def test_damaged_checkpoints_are_none_of_retentions_business(tmp_path: Path) -> None:
    for epoch in range(3):
        save(tmp_path, epoch=epoch)
    (tmp_path / "checkpoint_0/_SUCCESS").unlink()
    with CheckpointManager(tmp_path, keep=Keep(last=1)) as manager:
        removed: Any = manager.apply_retention()
    assert removed == ((1,), ())
    assert names(tmp_path) == ["checkpoint_0", "checkpoint_2"]
