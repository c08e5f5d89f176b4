"""Several nodes: namespaces of their own, steps that read across them, parts of one checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from reference_job import TOTALS, TRAINERS, add, make_total, reference
from whole_runs import bytes_of_checkpoints, ids_and_epochs, state_of_disk, train

from jobrun import Job, Node, Pipe, Task, load_blobs
from jobrun.checkpoint.catalog import Catalog
from jobrun.core.events import CheckpointLoaded, CheckpointSkipped
from jobrun.engine.resume_policy import Request
from jobrun.errors import DamagedError, NotFoundError, RunRefusedError
from jobrun.session.base import Session

Sessions = Callable[[str], Session]

on_each_session = pytest.mark.parametrize("kind", ["1 thread", "8 threads", "dask"])


@on_each_session
def test_nodes_that_use_one_name_never_see_each_others_value(
    run_dir: Path, sessions: Sessions, kind: str
) -> None:
    def grow(w: np.ndarray, rate: int) -> None:
        w *= rate

    with Job("grow", nodes={"a": {"rate": 2}, "b": {"rate": 3}, "c": {"rate": 5}}) as job:
        with job.init, Node("*"):
            Task(lambda rate: np.full(1000, rate), "rate", out="w", name="start")
        with Node("*"):
            Task(grow, {"rate": None}, update={"w": None})
        job.stop(epochs=4)
    ended = train(job, run_dir, session=sessions(kind))
    for node, rate in (("a", 2), ("b", 3), ("c", 5)):
        assert set(ended.blobs[f"{node}:w"]) == {rate**5}
        for epoch in range(5):
            found = load_blobs(run_dir, f"{node}:w", epoch=epoch)
            assert set(found[f"{node}:w"]) == {rate ** (epoch + 1)}


@on_each_session
def test_the_mean_over_the_trainers_is_the_same_on_each(
    run_dir: Path, sessions: Sessions, kind: str
) -> None:
    """All copies of a task read before any copy writes."""
    trainers = [f"trainer_{i}" for i in range(8)]
    with Job("mean", nodes={n: {"start": float(i)} for i, n in enumerate(trainers)}) as job:
        with job.init, Node("trainer_*"):
            Task(lambda start: np.full(100, start), "start", out="w", name="start")
        with Node("trainer_*"):
            Task(lambda w, start: w + start, ["w", "start"], out="w", name="own_step")
            Task(lambda ws: np.mean(ws, axis=0), "trainer_*:w", out="w", name="average")
        job.stop(epochs=3)
    ended = train(job, run_dir, session=sessions(kind))
    mean = 3.5
    for _ in range(3):
        mean += 3.5
    for node in trainers:
        assert set(ended.blobs[f"{node}:w"]) == {mean}


@on_each_session
def test_an_exchange_between_two_nodes_reads_before_it_writes(
    sessions: Sessions, kind: str
) -> None:
    with Job("swap", nodes={"a": {"other": 1}, "b": {"other": 0}}) as job:
        with job.init, Node("*"):
            Task(lambda node: node, "node", out="x", name="name")
        with Node("*"):
            Task(lambda both, other: both[other], ["*:x", "other"], out="x", name="swap")
        job.stop(epochs=5)
    ended = train(job, session=sessions(kind))
    assert (ended.blobs["a:x"], ended.blobs["b:x"]) == ("b", "a")


@on_each_session
def test_one_value_to_each_node(sessions: Sessions, kind: str) -> None:
    with Job("scatter", nodes=["a", "b", "c"]) as job:
        with job.init, Node("b"):
            Task(lambda: [1, 2.0, "three"], out="*:x", name="deal")
        with Node("a"):
            Task(lambda a, b, c: [a, b, c], ["a:x", "b:x", "c:x"], out="all", name="collect")
        with job.exit, Node("a"):
            Task(lambda values: None, "all", name="keep")
        job.stop(epochs=1)
    ended = train(job, session=sessions(kind))
    assert ended.blobs["a:all"] == [1, 2.0, "three"]


@on_each_session
def test_data_finished_means_any_node(sessions: Sessions, kind: str) -> None:
    with Job("unequal", nodes={"a": {"count": 12}, "b": {"count": 6}, "c": {"count": 9}}) as job:
        with job.setup, Node("*"):
            Task(np.arange, "count", out="rows")
        with job.init, Node("*"):
            Task(make_total, out="total")
        with Node("*"):
            step = Task(add, "val", update="total")
            Pipe({"val": "rows"}, batches_per_epoch=3, passes=1, do=[step], name="sum")
        job.stop(data_finished="sum")
    ended = train(job, session=sessions(kind))
    assert ended.epochs == 2
    assert {ended.blobs[f"{node}:total"].item() for node in "abc"} == {115}
    assert ended.outcome.reason == "data finished: sum of node b has read all its data"


@on_each_session
def test_the_reference_job_on_three_nodes(run_dir: Path, sessions: Sessions, kind: str) -> None:
    """100, 103, 115, 136, 145; the same from each checkpoint on; nothing after the end."""
    ended = train(reference(nodes=TRAINERS), run_dir, session=sessions(kind))
    assert ended.epochs == 4
    for epoch, total in enumerate(TOTALS):
        for names in (["trainer_1:total", "trainer_2:total"], ["trainer_*:total"]):
            found = load_blobs(run_dir, names, epoch=epoch)
            assert {int(v[0]) for v in found.values()} == {total}
    with pytest.raises(NotFoundError, match=r"no checkpoint of epoch 5; there are 0\.\.4"):
        load_blobs(run_dir, ["trainer_1:total"], epoch=5)
    assert train(reference(nodes=TRAINERS), run_dir, session=sessions(kind)).outcome.ran == 0
    for epoch in (3, 2, 1, 0):
        again = train(reference(nodes=TRAINERS), run_dir, epoch, session=sessions(kind))
        assert (again.epochs, again.outcome.ran) == (4, 4 - epoch)
        assert [again.blobs[f"{n}:total"].item() for n in TRAINERS] == [145] * 3
    longer = reference(nodes=TRAINERS, batches_per_epoch=5)
    more = train(longer, run_dir, 1, session=sessions(kind))
    assert (more.epochs, more.blobs["trainer_2:total"].item()) == (3, 145)


@on_each_session
def test_download_gathers_what_is_scattered(sessions: Sessions, kind: str) -> None:
    with Job("download", nodes=["a", "b"]) as job:
        with job.init, Node("*"):
            Task(np.ones, with_={"shape": 8}, out="vector", name="start")
        with job.init, Node("a"):
            Task(np.zeros, with_={"shape": 8}, out="output", name="zero")
        with Node("a"):
            Task(lambda x, y: x + y, ["a:vector", "b:vector"], out="output", name="add")
        with job.download, Node("b"):
            Task(lambda x: x, "a:output", out="result", name="copy")
        with job.exit, Node("b"):
            Task(lambda x: None, "result", name="look")
        job.stop(epochs=1)
    ended = train(job, session=sessions(kind))
    assert ended.blobs["a:output"].tolist() == ended.blobs["b:result"].tolist() == [2.0] * 8


# One checkpoint for all.


def test_a_checkpoint_is_whole_only_if_every_nodes_part_is(run_dir: Path) -> None:
    train(reference(nodes=TRAINERS), run_dir)
    (run_dir / "checkpoint_4" / "manifest.trainer_1.json").unlink()
    (run_dir / "checkpoint_3" / "trainer_2" / "total" / "0").unlink()
    catalog = Catalog(run_dir)
    assert [id for id in catalog.ids() if catalog.is_whole(id)] == [0, 1, 2]
    ended = train(reference(nodes=TRAINERS), run_dir)
    assert [e.id for e in ended.said(CheckpointSkipped)] == [4, 3]
    assert [e.id for e in ended.said(CheckpointLoaded)] == [2]
    assert (ended.epochs, ended.outcome.ran) == (4, 2)
    assert [ended.blobs[f"{n}:total"].item() for n in TRAINERS] == [145] * 3


def test_a_part_with_one_flipped_bit_lets_no_node_load_half(run_dir: Path) -> None:
    train(reference(nodes=TRAINERS), run_dir)
    chunk = run_dir / "checkpoint_2" / "trainer_2" / "total" / "0"
    data = bytearray(chunk.read_bytes())
    data[0] ^= 1
    chunk.write_bytes(data)
    with pytest.raises(DamagedError, match="trainer_2/total") as caught:
        train(reference(nodes=TRAINERS), run_dir, 2)
    assert caught.value.exit_code == 5
    ended = train(reference(nodes=TRAINERS), run_dir, 1)
    assert [ended.blobs[f"{n}:total"].item() for n in TRAINERS] == [145] * 3


@pytest.mark.parametrize("nodes", [None, TRAINERS[:2], ("a", "b", "c")])
def test_parts_of_a_run_with_other_nodes_are_a_clear_error(
    run_dir: Path, nodes: tuple[str, ...] | None
) -> None:
    train(reference(nodes=TRAINERS), run_dir)
    before = state_of_disk(run_dir)
    with pytest.raises(RunRefusedError, match="nodes"):
        train(reference(nodes=nodes), run_dir, 2)
    assert state_of_disk(run_dir) == before
    with pytest.raises(DamagedError, match="is of the nodes trainer_0, trainer_1, trainer_2"):
        train(reference(nodes=nodes), run_dir, request=Request(epoch=2, accept_changes=True))
    assert ids_and_epochs(run_dir) == {e: e for e in range(5)}


def test_eight_threads_leave_the_bytes_of_one(run_dir: Path) -> None:
    for threads in (1, 8):
        train(reference(nodes=TRAINERS), run_dir / str(threads), threads=threads)
    assert bytes_of_checkpoints(run_dir / "1") == bytes_of_checkpoints(run_dir / "8")
