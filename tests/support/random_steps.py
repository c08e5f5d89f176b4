"""Random jobs of steps that the oracle can run too: see ``oracle``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from oracle import Step

from jobrun.core.blob_paths import overlaps
from jobrun.model.job import Job, Pipe, Task

__all__ = ["FIRST", "first_values", "job_of", "steps"]

FIRST = ("a", "b", "c", "t")
_READ = ("a", "b", "c", "t", "t/x", "t/y")
_WRITTEN = (*_READ, "t/n0", "t/n1", "t/n2")


def first_values(number: int = 0) -> dict[str, Any]:
    """What ``init`` writes."""
    blobs: dict[str, Any] = {n: np.arange(3.0) + number + i for i, n in enumerate("abc")}
    blobs["t"] = {"y": np.ones(3) * number, "x": np.zeros(3)}
    return blobs


@st.composite
def steps(draw: st.DrawFn, nodes: Sequence[str] = (), across: bool = False) -> list[Step]:
    """Tasks with random accesses; no two writes of one task overlap.

    ``across``: those of a single node may write on others, and be pipes.
    """
    made = []
    for number in range(draw(st.integers(1, 9))):
        names = draw(st.lists(st.sampled_from(_WRITTEN), max_size=3, unique=True))
        writes: list[str] = []
        for name in names:
            if not any(overlaps(name, w) for w in writes):
                writes.append(name)
        split = draw(st.integers(0, len(writes)))
        updates = tuple(w for w in writes[:split] if w in _READ)
        reads = draw(st.lists(st.sampled_from(_READ), max_size=3, unique=True))
        node = draw(st.sampled_from(nodes)) if nodes else "main"
        free = across and "*" not in node
        if free:
            prefixes = ["", "", *(f"{n}:" for n in dict.fromkeys(nodes) if "*" not in n)]
            writes = [draw(st.sampled_from(prefixes)) + w for w in writes]
            updates = tuple(w for w in writes[:split] if w.rpartition(":")[2] in _READ)
        if nodes:
            reads = [draw(st.sampled_from(["", "n0:", "n1:", "n*:"])) + r for r in reads]
        made.append(
            Step(
                number,
                tuple(reads),
                updates,
                tuple(writes[split:]),
                node,
                draw(st.sampled_from([1, 1, 1, 2])),
                (free or not nodes) and draw(st.sampled_from([False, False, True])),
                tuple(draw(st.sets(st.integers(0, number - 1), max_size=1)) if number else ()),
            )
        )
    return made


def job_of(specs: list[Step], nodes: Sequence[str] = ()) -> Job:
    job = Job("random", nodes=nodes or None)
    with job.setup:
        for node in nodes or (None,):
            Task(lambda: np.arange(5), out="data", node=node)
    with job.init:
        for number, node in enumerate(nodes or (None,)):
            Task(lambda n=number: first_values(n), out=dict.fromkeys(FIRST), node=node)
    with job.epoch:
        for step in specs:
            task_of(step)
    return job


def task_of(step: Step) -> Task:
    after = [f"s{k}" for k in step.after]
    task = Task(
        step,
        ["x", *step.reads] if step.pipe else list(step.reads),
        update=list(step.updates),
        out=list(step.outs) or None,
        name=f"s{step.number}",
        after=() if step.pipe else after,
        every=None if step.pipe else step.every,
        node=None if step.node == "main" else step.node,
    )
    if not step.pipe:
        return task
    # The pipe takes the task's place in the group.
    return Pipe(
        {"x": "data"},
        batch=2,
        do=[task],
        name=f"s{step.number}",
        after=after,
        every=step.every,
        node=task.node,
    )
