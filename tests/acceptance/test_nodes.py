"""Several nodes: namespaces of their own, steps that read across them, parts of one checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from reference_job import TRAINERS, add, make_total, reference
from whole_runs import bytes_of_checkpoints, ids_and_epochs, state_of_disk, train

from jobrun import Job, Node, Pipe, Task, load_blobs
from jobrun.decide import Request
from jobrun.errors import DamagedError, RunRefusedError
from jobrun.events import CheckpointLoaded, CheckpointSkipped

threads_1_and_8 = pytest.mark.parametrize("threads", [1, 8])


@threads_1_and_8
def test_nodes_that_use_one_name_never_see_each_others_value(run_dir: Path, threads: int) -> None:
    def grow(w: np.ndarray, rate: int) -> None:
        w *= rate

    with Job("grow", nodes={"a": {"rate": 2}, "b": {"rate": 3}, "c": {"rate": 5}}) as job:
        with job.init, Node("*"):
            Task(lambda rate: np.full(1000, rate), "rate", out="w", name="start")
        with Node("*"):
            Task(grow, {"rate": None}, update={"w": None})
        job.stop(epochs=4)
    ended = train(job, run_dir, threads=threads)
    for node, rate in (("a", 2), ("b", 3), ("c", 5)):
        assert set(ended.blobs[f"{node}:w"]) == {rate**5}
        for epoch in range(5):
            found = load_blobs(run_dir, f"{node}:w", epoch=epoch)
            assert set(found[f"{node}:w"]) == {rate ** (epoch + 1)}


@threads_1_and_8
def test_the_mean_over_the_trainers_is_the_same_on_each(run_dir: Path, threads: int) -> None:
    """All copies of a task read before any copy writes."""
    trainers = [f"trainer_{i}" for i in range(8)]
    with Job("mean", nodes={n: {"start": float(i)} for i, n in enumerate(trainers)}) as job:
        with job.init, Node("trainer_*"):
            Task(lambda start: np.full(100, start), "start", out="w", name="start")
        with Node("trainer_*"):
            Task(lambda w, start: w + start, ["w", "start"], out="w", name="own_step")
            Task(lambda ws: np.mean(ws, axis=0), "trainer_*:w", out="w", name="average")
        job.stop(epochs=3)
    ended = train(job, run_dir, threads=threads)
    mean = 3.5
    for _ in range(3):
        mean += 3.5
    for node in trainers:
        assert set(ended.blobs[f"{node}:w"]) == {mean}


@threads_1_and_8
def test_an_exchange_between_two_nodes_reads_before_it_writes(threads: int) -> None:
    with Job("swap", nodes={"a": {"other": 1}, "b": {"other": 0}}) as job:
        with job.init, Node("*"):
            Task(lambda node: node, "node", out="x", name="name")
        with Node("*"):
            Task(lambda both, other: both[other], ["*:x", "other"], out="x", name="swap")
        job.stop(epochs=5)
    ended = train(job, threads=threads)
    assert (ended.blobs["a:x"], ended.blobs["b:x"]) == ("b", "a")


def test_one_value_to_each_node() -> None:
    with Job("scatter", nodes=["a", "b", "c"]) as job:
        with job.init, Node("b"):
            Task(lambda: [1, 2.0, "three"], out="*:x", name="deal")
        with Node("a"):
            Task(lambda a, b, c: [a, b, c], ["a:x", "b:x", "c:x"], out="all", name="collect")
        with job.exit, Node("a"):
            Task(lambda values: None, "all", name="keep")
        job.stop(epochs=1)
    assert train(job).blobs["a:all"] == [1, 2.0, "three"]


def test_data_finished_means_any_node() -> None:
    with Job("unequal", nodes={"a": {"count": 12}, "b": {"count": 6}, "c": {"count": 9}}) as job:
        with job.setup, Node("*"):
            Task(np.arange, "count", out="rows")
        with job.init, Node("*"):
            Task(make_total, out="total")
        with Node("*"):
            step = Task(add, "val", update="total")
            Pipe({"val": "rows"}, batches_per_epoch=3, passes=1, do=[step], name="sum")
        job.stop(data_finished="sum")
    ended = train(job)
    assert ended.epochs == 2
    assert {ended.blobs[f"{node}:total"].item() for node in "abc"} == {115}


# One checkpoint for all.


def test_a_checkpoint_is_whole_only_if_every_nodes_part_is(run_dir: Path) -> None:
    train(reference(nodes=TRAINERS), run_dir)
    (run_dir / "checkpoint_4" / "manifest.trainer_1.json").unlink()
    (run_dir / "checkpoint_3" / "trainer_2" / "total" / "0").unlink()
    assert list(ids_and_epochs(run_dir)) == [0, 1, 2]
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
