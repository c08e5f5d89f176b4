"""Random numbers without hidden state: the same on resume, on any threads, beside any tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from whole_runs import train, train_and_die

from jobrun import Job, Node, Pipe, Task
from jobrun.errors import SpecError

Draws = dict[tuple[Any, ...], float]


def drawing(
    draws: Draws,
    *,
    seed: int = 1,
    more: bool = False,
    nodes: list[str] | None = None,
    name: str = "drawing",
) -> Job:
    """A job that draws in every group, on every node, and for each batch; and notes what."""

    def note(place: str) -> Any:
        def draw(rng: np.random.Generator, epoch: int, node: str, *x: Any) -> float:
            number = float(rng.random())
            key = (place, node, epoch, *(int(a[0]) for a in x))
            assert draws.setdefault(key, number) == number
            return number

        return draw

    common = ["rng", "epoch", "node"]
    with Job(name, seed=seed, nodes=nodes) as job, Node("*" if nodes else "main"):
        with job.setup:
            Task(lambda: np.arange(6), out="rows", name="rows")
            Task(note("setup"), common, out="in_setup", name="draw")
        with job.init:
            Task(note("init"), common, out="in_init", name="draw")
        if more:
            Task(lambda rng: rng.random(9).sum(), "rng", out="other", name="another")
        Task(note("epoch"), common, out="in_epoch", name="draw")
        map_step = Task(note("map"), [*common, "x"], out="y", name="mapped")
        steps = [Task(note("do"), [*common, "x"], out="z", name="draw")]
        if more:
            steps.insert(0, Task(lambda rng: rng.random(3).sum(), "rng", out="q", name="before"))
        Pipe({"x": "rows"}, 2, map=[map_step], do=steps, name="pipe")
        with job.exit:
            Task(note("exit"), common, out="in_exit", name="draw")
        job.stop(epochs=3)
    return job


def drawn(threads: int = 1, **how: Any) -> Draws:
    draws: Draws = {}
    train(drawing(draws, **how), threads=threads)
    return draws


def test_numbers_differ_by_group_task_node_epoch_and_batch() -> None:
    draws = drawn(nodes=["a", "b"])
    assert len(draws) == 2 * (3 + 3 + 2 * 9)
    assert len(set(draws.values())) == len(draws)


def test_the_same_on_any_number_of_threads() -> None:
    assert drawn(8, nodes=["a", "b"]) == drawn(1, nodes=["a", "b"])


def test_the_same_whatever_other_tasks_exist() -> None:
    assert drawn(more=True) == drawn()


def test_the_same_whatever_the_job_is_called_and_others_with_another_seed() -> None:
    assert drawn(name="other") == drawn()
    assert not set(drawn(seed=2).values()) & set(drawn().values())


@pytest.mark.parametrize("after", range(4))
def test_the_same_on_a_resumed_run(run_dir: Path, after: int) -> None:
    """``draws`` holds what the first run drew; the second asserts to draw the same."""
    draws: Draws = {}
    train_and_die(drawing(draws), run_dir, after)
    train(drawing(draws), run_dir, threads=8)
    assert draws == drawn()


def test_setup_and_init_are_drawn_as_for_epoch_0_also_on_resume(run_dir: Path) -> None:
    draws: Draws = {}
    train_and_die(drawing(draws), run_dir, after=2)
    assert ("setup", "main", 0) in draws
    assert ("init", "main", 0) in draws
    again: Draws = {}
    train(drawing(again), run_dir)
    assert again["setup", "main", 0] == draws["setup", "main", 0]
    assert ("init", "main", 0) not in again


def test_two_tasks_with_one_default_name_and_rng_must_be_named() -> None:
    def draw(rng: np.random.Generator) -> float:
        return rng.random()

    with Job("twins") as job:
        Task(draw, "rng", out="a")
        Task(draw, "rng", out="b")
        job.stop(epochs=1)
    with pytest.raises(
        SpecError, match="two tasks draw random numbers under the same name, 'draw'"
    ):
        train(job)
