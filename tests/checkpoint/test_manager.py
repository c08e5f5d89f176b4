from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_helpers import (
    MANY,
    SAMPLE,
    FailingFs,
    VanishingFs,
    array,
    fresh,
    same_blobs,
    save,
)

from jobrun.checkpoint.catalog import listed
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.part_source import BlobSource
from jobrun.checkpoint.publish import discard
from jobrun.checkpoint.reading import read_part
from jobrun.checkpoint.record import RecordFields
from jobrun.core.position import Position
from jobrun.errors import (
    DamagedError,
    LockedError,
    NotFoundError,
    SaveError,
    UsageError,
    ValueRefusedError,
)
from jobrun.model.policy import Best, Keep
from jobrun.storage.fs import Fs
from jobrun.values.boxes import Box


def ids(run: Path) -> list[int]:
    return [record.id for record in listed(run)]


def flip(path: Path, place: int = 3) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_a_loop_of_ones_own(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "mine"
    weights = np.zeros((3, 2))
    manager = CheckpointManager(run)
    assert manager.latest() is None
    for epoch in range(3):
        weights += epoch
        id = manager.save(
            epoch,
            {"main": {"model": {"w": weights, "b": [1, None, "x"]}, "n": epoch}},
            metrics={"loss": 1 / (epoch + 1)},
        )
        assert id == epoch
    weights += 100  # what is saved does not follow
    manager.close()

    loaded = CheckpointManager(run).load()
    assert loaded.record.epoch == 2
    assert loaded.record.metrics == {"loss": 1 / 3}
    assert loaded.blobs["main"]["n"] == 2
    assert loaded.blobs["main"]["model"]["w"].tolist() == [[3, 3]] * 3
    assert loaded.blobs["main"]["model"]["b"] == [1, None, "x"]
    assert CheckpointManager(run).load(epoch=1).blobs["main"]["model"]["w"][0, 0] == 1
    assert CheckpointManager(run).path(1) == run / "checkpoint_1"


def test_saving_does_not_change_or_freeze_what_the_caller_holds(tmp_path: Path) -> None:
    plain, fortran, big = np.ones(3), np.ones((2, 3), order="F"), np.arange(3, dtype=">f4")
    with CheckpointManager(tmp_path) as manager:
        manager.save(0, {"main": {"a": plain, "f": fortran, "t": {"b": big}}})
    for held in (plain, fortran, big):
        held += 1
    found = CheckpointManager(tmp_path).load().blobs["main"]
    assert found["a"].tolist() == [1, 1, 1]
    assert found["f"].tolist() == [[1, 1, 1]] * 2
    assert found["t"]["b"].dtype == ">f4"


def test_nodes_have_their_own_blobs(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path) as manager:
        manager.save(0, {"a": {"w": 1}, "b": {"w": 2.5}, "empty": {}})
    loaded = CheckpointManager(tmp_path).load()
    assert loaded.blobs == {"a": {"w": 1}, "b": {"w": 2.5}, "empty": {}}
    assert loaded.record.nodes == ("a", "b", "empty")


@pytest.mark.parametrize(
    ("epoch", "blobs"), [(-1, {"main": {}}), (1.0, {"main": {}}), (True, {"main": {}}), (0, {}),
                         (0, {"w": np.ones(2)}), (0, {"main": {"w": 1}, "x": 3})],
)  # fmt: skip
def test_wrong_calls_are_refused(tmp_path: Path, epoch: Any, blobs: Any) -> None:
    with pytest.raises(UsageError):
        CheckpointManager(tmp_path / "run").save(epoch, blobs)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "value",
    [object(), np.array([None]), np.zeros(2, "longdouble"), np.ma.array([1]), {b"a": 2}],
)
def test_what_cannot_be_saved_is_refused_before_anything_is_written(
    tmp_path: Path, value: Any
) -> None:
    manager = CheckpointManager(tmp_path / "run")
    with pytest.raises(ValueRefusedError):
        manager.save(0, {"main": {"fine": 1, "bad": value}})
    manager.close()
    assert not list((tmp_path / "run").glob("*checkpoint*"))
    assert manager.save(0, {"main": {"fine": 1}}) in (0, 1)


def test_the_lock_is_taken_at_the_first_save_and_kept(tmp_path: Path) -> None:
    save(tmp_path)
    first, second = CheckpointManager(tmp_path), CheckpointManager(tmp_path)
    first.load()
    second.load()
    first.save(1, {"main": {"x": 1}})
    with pytest.raises(LockedError, match=f"pid {os.getpid()}"):
        second.save(2, {"main": {"x": 1}})
    assert second.load().record.epoch == 1
    first.close()
    second.save(2, {"main": {"x": 1}})
    second.close()


def test_a_lock_of_someone_elses_is_used(tmp_path: Path) -> None:
    class Held:
        calls = 0

        def acquire(self) -> None:
            self.calls += 1

        def release(self) -> None:
            raise AssertionError

    held = Held()
    CheckpointManager(tmp_path, lock=held).save(0, {"main": {}})
    assert held.calls == 1
    assert not (tmp_path / "lock").exists()


def test_ids_rise_and_are_never_used_again(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path, first_id=5) as manager:
        assert manager.save(0, {"main": {}}) == 5
        (tmp_path / "checkpoint_9").mkdir()
        assert manager.save(1, {"main": {}}) == 10
        (tmp_path / "checkpoint_10").rename(tmp_path / "elsewhere")
        assert manager.save(1, {"main": {}}) == 11
    with CheckpointManager(tmp_path) as manager:
        assert manager.save(2, {"main": {}}) == 12


def test_a_failed_save_leaves_nothing_and_the_next_one_succeeds(tmp_path: Path) -> None:
    fs = FailingFs(8, errno.ENOSPC, ops=frozenset({"write", "fsync"}))
    with CheckpointManager(tmp_path, fs=fs) as manager:
        with pytest.raises(SaveError, match="ENOSPC"):
            manager.save_snapshot(BlobSource({"main": SAMPLE}, fs), RecordFields())
        assert ids(tmp_path) == []
        assert sorted(p.name for p in tmp_path.iterdir()) == ["lock"]
        saved = manager.save_snapshot(BlobSource({"main": SAMPLE}, fs), RecordFields())
    assert ids(tmp_path) == [saved.id]


def test_a_directory_that_is_gone_is_made_again_and_that_is_said(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with CheckpointManager(run) as manager:

        def save_one() -> tuple[str, ...]:
            source = BlobSource.of({"main": {"w": np.ones(3)}}, copy=True)
            fields = RecordFields(position=Position(epochs=1))
            return manager.save_snapshot(source, fields).warnings

        assert save_one() == ()
        run.rename(tmp_path / "moved")
        (warning,) = save_one()
        assert warning == f"{run} was removed or moved with its checkpoints; it was created again"
        assert save_one() == ()
        with pytest.raises(LockedError):
            CheckpointManager(run).acquire()
    assert ids(run) == [1, 2]
    assert ids(tmp_path / "moved") == [0]


def test_a_directory_that_cannot_be_made_is_a_save_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SaveError, match="mkdir"):
        CheckpointManager(tmp_path / "file/run").save(0, {"main": {}})


def test_versions_are_set_once_the_checkpoint_is_durable(tmp_path: Path) -> None:
    box = array(1)
    fs = FailingFs(0, errno.EIO, ops=frozenset({"rename"}))
    with CheckpointManager(tmp_path, fs=fs, first_id=3) as manager:
        source = BlobSource({"main": {"x": box}})
        with pytest.raises(SaveError):
            manager.save_snapshot(source, RecordFields())
        assert box.version == -1
        assert manager.save_snapshot(source, RecordFields()).id == 4
        assert box.version == 4
        manager.save_snapshot(source, RecordFields())
        assert box.version == 4
    loaded = CheckpointManager(tmp_path).load()
    assert loaded.record.id == 5
    assert loaded.parts["main"]["x"].version == 4


def test_what_was_saved_is_told(tmp_path: Path) -> None:
    fields = RecordFields(
        position=Position(epochs=3),
        run_seconds=1.5,
        metrics={"loss": 0.5},
        stops=({"kind": "epochs", "metric": None, "state": {"epoch": 3}},),
        decision={"outcome": "stop", "reason": "3 epochs done", "kind": "epochs"},
        versions={"numpy": "x"},
        job="demo",
        digest="d",
        extra={"k": 1},
    )
    with CheckpointManager(tmp_path) as manager:
        saved = manager.save_snapshot(BlobSource({"main": SAMPLE, "b": {}}), fields)
    files = [p for p in saved.path.rglob("*") if p.is_file() and p.name != "_SUCCESS"]
    assert saved.files == len(files)
    assert saved.bytes == sum(p.stat().st_size for p in files)
    assert [part.node for part in saved.parts] == ["main", "b"]
    assert saved.seconds.keys() == {"write", "sync", "commit", "retain"}
    record = CheckpointManager(tmp_path).latest()
    assert record == saved.record
    assert record is not None
    for name in RecordFields.__dataclass_fields__:
        assert getattr(record, name) == getattr(fields, name)
    assert record.time.endswith("Z")


class Ticking(Fs):
    """A clock on which only file operations take time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.monotonic = time.monotonic
        self._mutex = threading.Lock()

    def at(self, op: str, path: str) -> None:
        kind = ".trash" if ".trash" in path else ""
        seconds = {"write": 1, "syncfs": 100, "rename": 1000, "rename.trash": 10_000}
        with self._mutex:
            self.now += seconds.get(op + kind, 0)

    def perf_counter(self) -> float:
        return self.now


def test_the_phases_of_a_save_are_what_its_operations_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = Ticking()
    if not fs.sync_all(str(tmp_path)):
        pytest.skip("this file system cannot sync all at once")
    monkeypatch.setattr("jobrun.checkpoint.manager.time", fs)
    monkeypatch.setattr("jobrun.checkpoint.part.time", fs)
    with CheckpointManager(tmp_path, fs=fs, keep=Keep(last=1), link="never") as manager:
        for epoch in range(3):
            source = BlobSource({"main": fresh(MANY)}, fs)
            seconds = manager.save_snapshot(source, RecordFields(Position(epoch))).seconds
            written = {p.stat().st_ino for p in manager.path(epoch).rglob("*") if p.is_file()}
            assert seconds == {
                "write": len(written) - 2,
                "sync": 100,
                "commit": 2 + 1000,  # _SUCCESS, and the group that the checkpoint is
                "retain": 10_000 if epoch else 0,
            }


# Retention.


def test_ten_saves_last_three(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path, keep=Keep(last=3)) as manager:
        for epoch in range(10):
            manager.save(epoch, {"main": {"x": epoch}})
    assert ids(tmp_path) == [7, 8, 9]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "checkpoint_7", "checkpoint_8", "checkpoint_9", "lock",
    ]  # fmt: skip


def test_the_best_stays_and_a_nan_is_not_the_best(tmp_path: Path) -> None:
    keep = Keep(last=1, best=Best("loss"))
    with CheckpointManager(tmp_path, keep=keep) as manager:
        for epoch, loss in enumerate([3.0, 1.0, float("nan"), 2.0]):
            manager.save(epoch, {"main": {}}, metrics={"loss": loss})
    assert ids(tmp_path) == [1, 3]


def test_retention_counts_and_deletes_whole_checkpoints_only(tmp_path: Path) -> None:
    for epoch in range(4):
        save(tmp_path, epoch=epoch)
    (tmp_path / "checkpoint_3/_SUCCESS").unlink()
    (tmp_path / "checkpoint_1_old").mkdir()
    (tmp_path / "checkpoint_7").mkdir()
    (tmp_path / "notes.txt").touch()
    with CheckpointManager(tmp_path, keep=Keep(last=2)) as manager:
        saved = manager.save_snapshot(BlobSource({"main": {}}), RecordFields())
    assert saved.removed == (0, 1)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "checkpoint_1_old", "checkpoint_2", "checkpoint_3", "checkpoint_7", "checkpoint_8", "lock",
        "notes.txt",
    ]  # fmt: skip


def test_nothing_is_removed_before_the_new_one_is_durable(tmp_path: Path) -> None:
    save(tmp_path)
    fs = FailingFs(0, errno.EIO, ops=frozenset({"rename"}))
    with (
        CheckpointManager(tmp_path, keep=Keep(last=1), fs=fs) as manager,
        pytest.raises(SaveError),
    ):
        manager.save_snapshot(BlobSource({"main": {}}), RecordFields())
    assert ids(tmp_path) == [0]


def test_what_cannot_be_removed_is_a_warning_and_tried_again(tmp_path: Path) -> None:
    save(tmp_path)
    fs = FailingFs(1, errno.EACCES, ops=frozenset({"rename"}))
    with CheckpointManager(tmp_path, keep=Keep(last=1), fs=fs) as manager:
        first = manager.save_snapshot(BlobSource({"main": {}}), RecordFields())
        assert first.removed == ()
        assert len(first.warnings) == 1
        assert "checkpoint 0 was not removed: rename of" in first.warnings[0]
        assert ids(tmp_path) == [0, 1]
        second = manager.save_snapshot(BlobSource({"main": {}}), RecordFields())
    assert second.removed == (0, 1)
    assert ids(tmp_path) == [2]


def test_protected_checkpoints_stay(tmp_path: Path) -> None:
    save(tmp_path)
    save(tmp_path)
    with CheckpointManager(tmp_path, keep=Keep(last=1)) as manager:
        manager.save_snapshot(BlobSource({"main": {}}), RecordFields(), protected={0})
    assert ids(tmp_path) == [0, 2]


# Loading.


def test_the_newest_that_proves_whole_is_taken_and_the_others_are_said(tmp_path: Path) -> None:
    for epoch in range(5):
        save(tmp_path, epoch=epoch)
    flip(tmp_path / "checkpoint_4/main/model/w/0.0")
    (tmp_path / "checkpoint_3/main/total/zarr.json").unlink()
    flip(tmp_path / "checkpoint_2/_SUCCESS")
    loaded = CheckpointManager(tmp_path).load()
    assert loaded.record.id == 1
    assert [s.id for s in loaded.skipped] == [4, 3, 2]
    assert "main/model/w/0.0: its checksum is" in loaded.skipped[0].reason
    assert "main/total/zarr.json: it is missing" in loaded.skipped[1].reason
    assert "_SUCCESS: its last line" in loaded.skipped[2].reason


@pytest.mark.parametrize("choice", [{"epoch": 4}, {"id": 4}])
def test_an_explicit_choice_never_falls_back(tmp_path: Path, choice: dict[str, int]) -> None:
    for epoch in range(5):
        save(tmp_path, epoch=epoch)
    flip(tmp_path / "checkpoint_4/main/model/w/0.0")
    with pytest.raises(DamagedError, match=r"main/model/w/0\.0"):
        CheckpointManager(tmp_path).load(**choice)
    with pytest.raises(NotFoundError):
        CheckpointManager(tmp_path).load(**dict.fromkeys(choice, 9))
    with pytest.raises(UsageError):
        CheckpointManager(tmp_path).load(epoch=1, id=1)


def test_a_run_without_any_whole_checkpoint_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no checkpoint"):
        CheckpointManager(tmp_path / "none").load()
    save(tmp_path)
    flip(tmp_path / "checkpoint_0/main/model/w/0.0")
    with pytest.raises(DamagedError, match="no checkpoint is whole:\n  checkpoint_0: "):
        CheckpointManager(tmp_path).load()


def test_what_we_are_not_allowed_to_see_is_not_taken_for_damage(tmp_path: Path) -> None:
    save(tmp_path)
    save(tmp_path, epoch=1)
    fs = FailingFs(0, errno.EMFILE, ops=frozenset({"open"}))
    with pytest.raises(NotFoundError, match="Too many open files"):
        CheckpointManager(tmp_path, fs=fs).load()


def test_a_reader_of_ones_own_reads_the_parts(tmp_path: Path) -> None:
    for epoch in range(2):
        save(tmp_path, epoch=epoch)

    def read(path: Path, node: str) -> str:
        if path.name == "checkpoint_1":
            raise DamagedError("says the reader")
        return f"{node} of {path.name}"

    loaded = CheckpointManager(tmp_path).load(read=read)
    assert loaded.parts == {"main": "main of checkpoint_0"}
    assert [(s.id, s.reason) for s in loaded.skipped] == [(1, "says the reader")]


def test_loading_is_of_one_epoch_while_a_writer_removes(tmp_path: Path) -> None:
    stop = threading.Event()

    def write() -> None:
        with CheckpointManager(tmp_path, keep=Keep(last=1)) as manager:
            epoch = 0
            while not stop.is_set():
                blobs = {f"x{i}": np.full(50, epoch) for i in range(5)}
                manager.save(epoch, {"main": blobs})
                epoch += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while CheckpointManager(tmp_path).latest() is None:
            pass
        for _ in range(30):
            loaded = CheckpointManager(tmp_path).load()
            seen = {int(n) for x in loaded.blobs["main"].values() for n in x}
            assert seen == {loaded.record.epoch}
            assert loaded.skipped == ()
    finally:
        stop.set()
        writer.join()


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A run of two checkpoints."""
    save(tmp_path)
    save(tmp_path, epoch=1)
    return tmp_path


@pytest.mark.parametrize("newer", [False, True])
def test_one_that_is_removed_while_it_is_read_is_passed_over(two: Path, newer: bool) -> None:
    fs = VanishingFs(two, newer)
    loaded = CheckpointManager(two).load(read=partial(read_part, fs=fs))
    assert (loaded.record.epoch, loaded.skipped) == (2 if newer else 0, ())
    assert same_blobs(loaded.parts["main"], SAMPLE)
    assert fs.chunks == 2


@pytest.mark.parametrize("choice", [{"epoch": 1}, {"id": 1}], ids=str)
@pytest.mark.parametrize("newer", [False, True])
def test_one_that_was_named_and_is_removed_while_it_is_read_is_said(
    two: Path, choice: dict[str, int], newer: bool
) -> None:
    fs = VanishingFs(two, newer)
    with pytest.raises(NotFoundError) as error:
        CheckpointManager(two).load(**choice, read=partial(read_part, fs=fs))
    assert str(error.value) == f"{two}/checkpoint_1: it was removed while it was read"
    assert fs.chunks == 2


def test_one_that_was_named_and_is_removed_while_it_is_looked_at_is_said(tmp_path: Path) -> None:
    class Removing(Fs):
        def at(self, op: str, path: str) -> None:
            if op == "stat" and path.endswith("b/0.0"):
                discard(tmp_path, 0)

    for choice in ({"epoch": 0}, {"id": 0}):
        save(tmp_path)
        with pytest.raises(NotFoundError, match="checkpoint_0: it was removed while it was read"):
            CheckpointManager(tmp_path, fs=Removing()).load(**choice)


def test_a_copy_of_the_run_goes_on_elsewhere(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    save(here)
    here.rename(there)
    with CheckpointManager(there) as manager:
        assert same_blobs(manager.load().parts["main"], SAMPLE)
        assert manager.save(1, {"main": {}}) == 1


def test_importing_the_package_is_cheap() -> None:
    code = (
        "import sys, json, jobrun.checkpoint;"
        "from jobrun.checkpoint import Catalog, Record;"
        "print(json.dumps([m for m in ('numpy', 'zarr') if m in sys.modules]))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout) == []


def test_every_public_name_is_there() -> None:
    import jobrun.checkpoint as package

    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError):
        package.nothing  # noqa: B018


def test_opaque_boxes_in_a_snapshot_are_refused_by_name(tmp_path: Path) -> None:
    source = BlobSource({"main": {"handle": Box(object(), "opaque")}})
    with CheckpointManager(tmp_path) as manager, pytest.raises(ValueRefusedError, match="handle"):
        manager.save_snapshot(source, RecordFields())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lock"]


def test_nodes_whose_names_differ_in_case_only_are_refused(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path) as manager:
        with pytest.raises(ValueRefusedError, match="nodes 'A' and 'a' differ in case only"):
            manager.save(0, {"A": {"w": 1}, "a": {"w": 2}})
        assert manager.latest() is None
