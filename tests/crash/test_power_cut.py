"""A power cut at any instant of a save, on a disk that keeps no more than it must."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from checkpoint_helpers import frozen, same_blobs
from weak_disk import Changed, Node, Operation, Recorder, State, Synced, states

from jobrun import CheckpointPolicy, Every, Job, JobRunner, LocalSession, Task
from jobrun.checkpoint.catalog import Catalog, listed, prove
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.part_source import BlobSource
from jobrun.checkpoint.publish import clean_leftovers
from jobrun.checkpoint.record import Record, RecordFields
from jobrun.core.events import CheckpointSaved, Event
from jobrun.core.position import Position
from jobrun.errors import DamagedError
from jobrun.model.policy import KEEP_ALL, Keep
from jobrun.report import Broadcast, RunFiles
from jobrun.runs.metrics_csv import read_rows
from jobrun.runs.run_state import RunState
from jobrun.runs.rundir import RunDir
from jobrun.storage.fs import DEFAULT
from jobrun.values.boxes import Box, Tree, Value

Blobs = dict[str, dict[str, Value]]


@dataclass
class Run:
    """A run whose later operations are recorded, and what was said of its checkpoints.

    ``said`` has the id of each checkpoint, and how many operations were over when it was announced.
    """

    path: Path
    keep: Keep = KEEP_ALL
    nodes: int = 1
    more: int = 0
    recorder: Recorder | None = None
    saved: dict[int, Blobs] = field(default_factory=dict)
    said: list[tuple[int, int]] = field(default_factory=list)
    constant: Box = field(default_factory=lambda: Box(frozen(np.arange(5.0)), "array"))

    def save(self, times: int = 1) -> None:
        """Save epochs, each with values of its own and one that is always the same."""
        options = {"fs": self.recorder} if self.recorder else {}
        with CheckpointManager(self.path, keep=self.keep, **options) as manager:
            rules = replace(manager.rules, watch=self)
            for _ in range(times):
                id = len(self.saved)
                self.saved[id] = {f"n{i}": self._blobs(id + 10 * i) for i in range(self.nodes)}
                source = BlobSource(self.saved[id], **options)
                manager.save_snapshot(source, RecordFields(Position(epochs=id)), rules=rules)

    def _blobs(self, number: int) -> dict[str, Value]:
        tree = Tree("dict", {"w": Box(frozen(np.arange(3.0) + number), "array")})
        blobs: dict[str, Value] = {"model": tree, "n": Box(number, "int"), "same": self.constant}
        more = {f"x{i}": Box(frozen(np.arange(2.0) + number), "array") for i in range(self.more)}
        return blobs | more

    def record(self) -> None:
        """From now on, operations are noted."""
        self.recorder = Recorder(self.path)
        self.said = [(id, 0) for id in Catalog(self.path).ids()]

    def admit(self, id: int) -> None:
        pass

    def published(self, record: Record, path: Path) -> None:
        self.said.append((record.id, len(self.recorder.log) if self.recorder else 0))

    def kept(self, done: int) -> set[int]:
        """The checkpoints that were announced by then, and are not being removed."""
        assert self.recorder is not None
        removed = {
            name
            for operation in self.recorder.log[:done]
            if isinstance(operation, Changed)
            for folder, name, node in operation.names
            if folder is self.recorder.root and node is None
        }
        return {id for id, at in self.said if at <= done and f"checkpoint_{id}" not in removed}


# What is done.


def first(run: Run) -> None:
    run.record()
    run.save()


def second(run: Run) -> None:
    run.save()
    first(run)


def linked(run: Run) -> None:
    run.save(3)
    first(run)


def in_a_row(run: Run) -> None:
    run.save(2)
    run.record()
    run.save(2)


def cleaned(run: Run) -> None:
    """What a crash left of a save and of a removal is cleared away, and the next save is made."""
    run.save(3)
    torn = shutil.copytree(
        run.path / "checkpoint_2", run.path / f".checkpoint_3.partial-{'a' * 16}"
    )
    (torn / "_SUCCESS").unlink()
    (run.path / "checkpoint_0").rename(run.path / f".checkpoint_0.trash-{'b' * 16}")
    run.record()
    assert run.recorder is not None
    assert len(clean_leftovers(run.path, run.recorder)) == 2
    run.save()


MANY = 40 if os.environ.get("JOBRUN_LONG") else 8
SCENARIOS: dict[str, tuple[Callable[[Run], None], dict[str, object]]] = {
    "first": (first, {}),
    "second": (second, {}),
    "linked": (linked, {}),
    "keep one": (in_a_row, {"keep": Keep(last=1)}),
    "keep two": (in_a_row, {"keep": Keep(last=2)}),
    "two in a row": (in_a_row, {}),
    "cleaned": (cleaned, {}),
    "two nodes": (second, {"nodes": 2}),
    "many": (second, {"more": MANY}),
    "many, keep one": (in_a_row, {"more": MANY, "keep": Keep(last=1)}),
}


def made(place: Path, name: str) -> Run:
    scenario, options = SCENARIOS[name]
    run = Run(place / "run", **options)  # type: ignore[arg-type]
    run.path.mkdir()
    scenario(run)
    return run


# What is asked of every state.


def check(run: Run, state: State, place: Path, again: bool) -> None:
    """What is there is whole, what was announced is there; and the run goes on from there."""
    disk = place / "disk"
    state.lay(disk)
    assert Catalog(disk).ignored() == []
    found = listed(disk)
    for record in found:
        prove(disk, record)
    ids = {record.id for record in found}
    assert run.kept(state.done) <= ids
    if ids:
        loaded = CheckpointManager(disk).load()
        assert not loaded.skipped
        assert loaded.record.id == max(ids)
        assert all(same_blobs(loaded.parts[n], b) for n, b in run.saved[max(ids)].items())
    if again:
        clean_leftovers(disk)
        assert {p.name for p in disk.iterdir()} - {"lock"} == {f"checkpoint_{id}" for id in ids}
        with CheckpointManager(disk) as manager:
            assert (
                manager.save_snapshot(
                    BlobSource({"main": {"n": Box(1, "int")}}), RecordFields(Position(epochs=99))
                ).id
                == max(ids, default=-1) + 1
            )
    shutil.rmtree(disk)


def survey(run: Run, place: Path, log: Sequence[Operation] | None = None, every: int = 1) -> int:
    """Check all states, or those of every n-th choice; how many there were."""
    assert run.recorder is not None
    count = 0
    for count, state in enumerate(states(run.recorder, [at for _, at in run.said], log, every), 1):
        check(run, state, place, again=count % 8 == 0)
    return count


@pytest.mark.usefixtures("flushed")
@pytest.mark.parametrize("name", SCENARIOS)
def test_whatever_is_left_is_whole_and_what_was_announced_is_left(
    place: Path, name: str, long: bool
) -> None:
    every = (2 if long else 31) if name.startswith("many") else (1 if long else 3)
    assert survey(made(place, name), place, every=every) > 20


MISTAKES: dict[str, Callable[[Recorder, Node | None], bool]] = {
    "the bytes of files": lambda recorder, node: node is not None and node.entries is None,
    "names in a checkpoint": lambda recorder, node: (
        node is not None and node.entries is not None and node is not recorder.root
    ),
    "the name of a checkpoint": lambda recorder, node: node is recorder.root,
    "all at once": lambda recorder, node: node is None,
}


@pytest.mark.usefixtures("flushed")
@pytest.mark.parametrize(
    ("name", "mistake", "every"),
    [
        ("second", "the bytes of files", 3),
        ("second", "names in a checkpoint", 1),
        ("second", "the name of a checkpoint", 1),
        ("keep one", "the name of a checkpoint", 1),
        ("many", "all at once", 7),
    ],
)
def test_a_sync_that_is_left_out_is_found(place: Path, name: str, mistake: str, every: int) -> None:
    """The disk is as weak as it is said to be: of what syncs are for, nothing would be noticed."""
    run = made(place, name)
    assert run.recorder is not None
    wrong, recorder = MISTAKES[mistake], run.recorder
    syncs = [op for op in recorder.log if isinstance(op, Synced) and wrong(recorder, op.node)]
    assert syncs
    # Numbers of operations stay as they are.
    log = [Synced(0, op.node) if op in syncs else op for op in recorder.log]
    # A checkpoint of which files are missing is still listed; to prove it finds that.
    with pytest.raises(
        (AssertionError, DamagedError), match=r"assert|it is missing|its checksum is"
    ):
        survey(run, place, log, every)


# The files beside the checkpoints.

EPOCHS = 4


def add_one(n: int) -> int:
    return n + 1


def counting(epochs: int) -> Job:
    """Its metric is the number of epochs; every second one is saved."""
    policy = CheckpointPolicy(Every(epochs=2), Keep(last=1))
    with Job("counting", metrics={"n": "max"}, checkpoint=policy) as job:
        with job.init:
            Task(int, out="n")
        Task(add_one, ["n"], out="n")
        job.stop(epochs=epochs)
    return job


class Saves:
    """After how many operations it was said of how many epochs that they are on disk."""

    def __init__(self, recorder: Recorder | None = None) -> None:
        self._recorder = recorder
        self.said: list[tuple[int, int]] = [(0, 0)]

    def __call__(self, event: Event) -> None:
        if isinstance(event, CheckpointSaved) and self._recorder is not None:
            self.said.append((len(self._recorder.log), event.epoch))


def count(run: Path, epochs: int, saves: Saves) -> None:
    """One start of the run, with all of its files."""
    fan = Broadcast(saves)
    fan.add("files", lambda: RunFiles(fan))
    try:
        JobRunner(counting(epochs), CheckpointManager(run), report=fan).train(LocalSession(1))
    finally:
        fan.close()


def numbered(run: Path) -> list[tuple[int, object]]:
    return [(row.epoch, row.metrics["n"]) for row in read_rows(run / "metrics.csv")]


@pytest.mark.parametrize("before", [0, 2], ids=["from the start", "resumed"])
def test_every_epoch_that_a_checkpoint_covers_has_its_row(
    place: Path, monkeypatch: pytest.MonkeyPatch, long: bool, before: int
) -> None:
    """Also in a run that is finished, whose files nobody writes anew; and run.json is whole."""
    run, disk = place / "run", place / "disk"
    run.mkdir()
    if before:
        count(run, before, Saves())
        with (run / "metrics.csv").open("a") as torn, (run / "events.jsonl").open("a") as events:
            torn.write("9,0.1")  # what an earlier crash has left
            events.write('{"event": "EpochFin')
    recorder = Recorder(run)
    saves = Saves(recorder)
    with monkeypatch.context() as patch:
        for name in [n for n in vars(Recorder) if not n.startswith("_")]:
            patch.setattr(DEFAULT, name, getattr(recorder, name))
        count(run, EPOCHS, saves)
    assert numbered(run) == [(n, n) for n in range(1, EPOCHS + 1)]
    seen = set()
    for state in states(recorder, [at for at, _ in saves.said], every=1 if long else 13):
        state.lay(disk)
        seen.add(check_beside(disk, before))
        assert max(e for at, e in saves.said if at <= state.done) <= head_epoch(disk)
        shutil.rmtree(disk)
    assert seen == {None, 0, 2, 4} if not before else {2, 4}


def head_epoch(disk: Path) -> int:
    head = RunDir(disk).head()
    return head.epoch if head is not None else 0


def check_beside(disk: Path, before: int) -> int | None:
    """What stands beside the checkpoints of a state; the epochs that the newest covers."""
    run = RunDir(disk)
    state, head = run.state(), run.head()
    assert state is None or not state.rebuilt
    if head is None:
        return None
    covered = [(n, n) for n in range(1, head.epoch + 1)]
    assert numbered(disk)[: head.epoch] == covered
    if state is not None and state.over:
        assert numbered(disk) == covered
    count(disk, max(head.epoch, before) + 1, Saves())
    assert numbered(disk) == [(n, n) for n in range(1, max(head.epoch, before) + 2)]
    return head.epoch


def test_a_rewind_is_done_or_not_begun(place: Path) -> None:
    run = Run(place / "run")
    run.path.mkdir()
    run.save(4)
    RunDir(run.path).write(RunState(name="run", job="", state="finished", epoch=3, next_id=4))
    run.record()
    assert run.recorder is not None
    assert RunDir(run.path, fs=run.recorder).rewind(1) == [2, 3]
    over = len(run.recorder.log)
    heads = set()
    for state in states(run.recorder, [over]):
        disk = place / "disk"
        state.lay(disk)
        now = RunDir(disk)
        said = now.state()
        head = now.head()
        assert said is not None
        assert head is not None
        assert not said.rebuilt
        assert now.damaged() == []
        heads.add(head.id)
        assert head.id == 1 or state.done < over
        now.lock()
        now.finish_rewind()
        now.clean()
        here, left = [r.id for r in listed(disk)], [r.id for r in listed(disk / "attempts/1")]
        assert (here, left) == (([0, 1], [2, 3]) if head.id == 1 else ([0, 1, 2, 3], []))
        for folder in (disk, disk / "attempts/1"):
            for record in listed(folder):
                prove(folder, record)
        assert now.next_id() == 4
        now.unlock()
        shutil.rmtree(disk)
    assert heads == {1, 3}
