"""A run continues with another number of nodes: the rule of ``jobrun resume --nodes N``.

Its result follows from the checkpoint and N alone, bit for bit: on any session, number of workers
and threads, and whatever interrupts it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
from averaging import bits
from engine import within
from whole_runs import Died, start, state_of_disk, train

from jobrun import CheckpointManager, Job, JobRunner, LocalSession, Node, Pipe, Task
from jobrun.core.events import Event, RunStarted
from jobrun.engine.resume_policy import Request
from jobrun.errors import DamagedError, RunRefusedError
from jobrun.runs.node_map import resized
from jobrun.runs.rundir import RunDir
from jobrun.session.base import Session


def step(x: Any, w: Any, seen: Any, rng: Any) -> Any:
    gradient = np.cos(w + x.sum()) + rng.normal(size=3)
    return gradient, np.concatenate([seen, x])


def averaged(nodes: int, epochs: int, **reader: Any) -> Job:
    """Gradients averaged over the nodes in each batch, each node with its share of the rows."""
    names = [f"n{number}" for number in range(nodes)]
    with Job("sgd", nodes=names, seed=3, state=["rng.numpy"]) as job:
        with job.setup, Node("*"):
            Task(lambda: np.arange(24.0), out="rows", name="load")
        with job.init, Node("*"):
            Task(lambda: (np.zeros(3), np.zeros(0), []), out=["w", "seen", "drawn"], name="start")
        with Node("*"):
            Task(lambda drawn: [*drawn, float(np.random.rand())], "drawn", out="drawn", name="draw")
            Pipe(
                from_={"x": "rows"},
                batch=2,
                shuffle=True,
                shard="node",
                do=[
                    Task(step, ["x", "w", "seen", "rng"], out=["g", "seen"], name="gradient"),
                    Task(
                        lambda g, w: w + 0.1 * g,
                        [{"reduce": "mean", "of": "*:g"}, "w"],
                        out="w",
                        name="step",
                    ),
                ],
                name="train",
                **reader,
            )
        job.stop(epochs=epochs)
    return job


def request(old: int, new: int) -> Request:
    names = [[f"n{number}" for number in range(count)] for count in (old, new)]
    return Request(nodes=resized(*names), resized=True)


def resumed(run: Path, old: int, new: int, session: Session) -> Any:
    """Return the blobs of the run once it has continued to epoch 4 with other nodes."""
    runner = JobRunner(averaged(new, 4), CheckpointManager(run), request=request(old, new))
    within(60, lambda: runner.train(session))
    return bits(runner.blobs)


@pytest.mark.filterwarnings("ignore::jobrun.core.events.JobrunWarning")
@pytest.mark.parametrize(("old", "new"), [(2, 4), (4, 3), (3, 1)])
def test_the_result_follows_from_the_checkpoint_and_the_number(
    tmp_path: Path, old: int, new: int
) -> None:
    pytest.importorskip("distributed")
    from fake_cluster import FakeCluster

    from jobrun.session.dask.session import DaskSession

    train(averaged(old, 2), tmp_path / "run")
    runs = [copytree(tmp_path / "run", tmp_path / f"run{number}") for number in range(4)]
    expected = resumed(runs[0], old, new, LocalSession(1))
    assert resumed(runs[1], old, new, LocalSession(4)) == expected
    with FakeCluster(2) as client:
        assert resumed(runs[2], old, new, DaskSession(client)) == expected
    with FakeCluster(3, die_at=[60]) as client:
        assert resumed(runs[3], old, new, DaskSession(client, threads=2)) == expected


def test_a_new_node_gets_a_copy_of_the_first_and_a_share_of_the_rows(tmp_path: Path) -> None:
    before = train(averaged(2, 2), tmp_path)
    after = train(averaged(4, 3), tmp_path, request=request(2, 4))
    seen = {n: after.blobs[f"n{n}:seen"] for n in range(4)}
    for node in range(4):
        start = before.blobs[f"n{node if node < 2 else 0}:seen"]
        assert seen[node][: len(start)].tolist() == start.tolist()
    last_epoch = [row for n in range(4) for row in seen[n][24:].tolist()]
    assert sorted(last_epoch) == list(range(24))  # each row once
    assert len({after.blobs[f"n{n}:w"].tobytes() for n in range(4)}) == 1


def test_random_numbers_of_a_new_node_are_seeded_by_its_name(tmp_path: Path) -> None:
    """As those of a node that was there from the start, not as copies of the first node's."""
    train(averaged(2, 2), tmp_path / "run")
    after = train(averaged(4, 3), tmp_path / "run", request=request(2, 4))
    fresh = train(averaged(4, 1), tmp_path / "fresh")
    undisturbed = train(averaged(2, 3), tmp_path / "two")
    for node in (2, 3):
        assert after.blobs[f"n{node}:drawn"][2] == fresh.blobs[f"n{node}:drawn"][0]
    for node in (0, 1):
        assert after.blobs[f"n{node}:drawn"] == undisturbed.blobs[f"n{node}:drawn"]


def test_within_a_pass_their_number_stays(tmp_path: Path) -> None:
    train(averaged(2, 5, batches_per_epoch=3), tmp_path)  # a pass has six
    with pytest.raises(RunRefusedError, match="epoch 5 is within one") as caught:
        train(averaged(3, 6, batches_per_epoch=3), tmp_path, request=request(2, 3))
    assert caught.value.hint == "--epoch 0 or 2 or 4 names such a checkpoint"


def start_and_die(job: Job, run: Path, epoch: int | None = None, **how: Any) -> None:
    """An attempt that ends before its first save: in ``setup``, or killed."""

    def die(event: Event) -> None:
        if isinstance(event, RunStarted):
            raise Died

    ended = start(job, run, epoch, watch=die, **how)
    with pytest.raises(Died):
        ended.runner.train(ended.session)


def test_an_attempt_that_saved_nothing_is_repeated(tmp_path: Path) -> None:
    """With the same command, with none that names nodes, or back to the number before."""
    train(averaged(2, 2), tmp_path / "run")
    copies = [copytree(tmp_path / "run", tmp_path / f"run{number}") for number in range(2)]
    expected = resumed(copies[0], 2, 4, LocalSession(1))
    undisturbed = bits(train(averaged(2, 4), copies[1]).blobs)
    start_and_die(averaged(4, 4), tmp_path / "run", request=request(2, 4))
    again, plain, back = (copytree(tmp_path / "run", tmp_path / name) for name in "abc")
    assert resumed(again, 2, 4, LocalSession(1)) == expected
    assert bits(train(averaged(4, 4), plain).blobs) == expected
    assert bits(train(averaged(2, 4), back, request=request(2, 2)).blobs) == undisturbed


def test_a_rewind_that_fails_before_the_load_leaves_the_maps(tmp_path: Path) -> None:
    train(averaged(2, 2), tmp_path)
    train(averaged(4, 3), tmp_path, request=request(2, 4))
    before = RunDir(tmp_path).state()
    start_and_die(averaged(2, 5), tmp_path, epoch=1, request=replace(request(2, 2), epoch=1))
    after = RunDir(tmp_path).state()
    assert before is not None
    assert after is not None
    assert after.node_maps == before.node_maps != ()
    train(averaged(2, 3), tmp_path, request=replace(request(2, 2), epoch=1))
    left = RunDir(tmp_path).state()
    assert left is not None
    assert not left.node_maps


def test_a_checkpoint_of_other_nodes_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    train(averaged(2, 2), tmp_path)
    train(averaged(3, 3), tmp_path, request=request(2, 3))
    before = state_of_disk(tmp_path)
    with pytest.raises(DamagedError, match="checkpoint_1 is of the nodes n0, n1, but"):
        train(averaged(3, 4), tmp_path, epoch=1)
    assert state_of_disk(tmp_path) == before


def test_no_other_change_comes_along(tmp_path: Path) -> None:
    train(averaged(2, 2), tmp_path)
    job = averaged(3, 3)
    job.seed = 4
    with pytest.raises(RunRefusedError, match="seed: 3 -> 4") as caught:
        train(job, tmp_path, request=request(2, 3))
    assert "nodes" not in caught.value.message
