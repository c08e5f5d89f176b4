"""Random jobs over several nodes: gatherings, opaque objects and aliases of them, and pipes.

A description is drawn by hypothesis (``descriptions``) and turned into a job, any number of times,
by ``build``.  The numbers depend on the order in which the users of an object come, and on which
values a gathering has seen, so that a cut in a wrong place shows in their bits.
"""

from __future__ import annotations

import threading
import time
import zlib
from typing import Any

import numpy as np
from hypothesis import strategies as st

from jobrun import Job, Node, Pipe, Task

SAVED = ("w", "v")
"""The blobs of each node that persist."""


class Tool:
    """An opaque object: notices two users at once, and gives each the number of what it has seen.

    Without ``remembers`` it sees the last value only: a resume makes the objects of ``setup`` anew.
    """

    def __init__(self, remembers: bool = True, seconds: float = 0.0) -> None:
        self._remembers = remembers
        self._seconds = seconds
        self._seen = 0
        self._busy = threading.Lock()

    def __reduce__(self) -> Any:
        raise TypeError("a tool stays where it was made")

    def use(self, value: np.ndarray) -> int:
        assert self._busy.acquire(blocking=False), "two use one object at a time"
        try:
            self._seen = zlib.crc32(value.tobytes(), self._seen if self._remembers else 0)
            time.sleep(self._seconds)  # so that another user may come now
            return self._seen % 1009
        finally:
            self._busy.release()


# Functions of tasks.


def make_two(remembers: bool, seconds: float) -> tuple[Tool, Tool]:
    """Two names of one object."""
    tool = Tool(remembers, seconds)
    return tool, tool


def begin(k: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(3.0) + k, np.ones(2) * k


def use(tool: Tool, v: np.ndarray) -> np.ndarray:
    return v * 0.5 + tool.use(v)


def use_in_place(tool: Tool, v: np.ndarray, w: np.ndarray) -> None:
    w *= 0.75
    w += tool.use(v)


def average(ws: list[np.ndarray]) -> np.ndarray:
    return np.asarray(sum(ws) / len(ws) + 1)


def average_with(ws: list[np.ndarray], tool: Tool) -> np.ndarray:
    mean = sum(ws) / len(ws)
    return np.asarray(mean + tool.use(mean))


def average_in_place(ws: list[np.ndarray], tool: Tool, w: np.ndarray) -> None:
    w *= 0.5
    w += sum(ws) + tool.use(w)


def same(tool: Tool) -> Tool:
    return tool


def in_tree(tool: Tool) -> dict[str, Tool]:
    return {"t": tool}


def draw(w: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return w[1:] * rng.random()


def make_rows() -> np.ndarray:
    return np.arange(5.0)


def batch_step(x: np.ndarray, tool: Tool, w: np.ndarray) -> None:
    w += x.sum()
    w *= 0.5 + tool.use(w) / 2048


# Descriptions.

_KINDS = ("use", "use", "use", "place", "pipe", "gather", "gather_with", "gather_with")
_MORE = ("gather_place", "alias", "inside", "make", "draw")


def _descriptions(*kinds: str) -> st.SearchStrategy[dict[str, Any]]:
    tasks = st.fixed_dictionaries(
        {
            "task": st.sampled_from(kinds),
            "node": st.sampled_from([0, 1, "*"]),
            "tool": st.sampled_from([0, 0, 0, 1, 1, 2, -1, -1, -2]),
        }
    )
    return st.fixed_dictionaries(
        {
            "seed": st.integers(0, 2**32 - 1),
            "nodes": st.sampled_from([2, 2, 3]),
            "seconds": st.sampled_from([0, 0, 0.001]),
            "tasks": st.lists(tasks, min_size=2, max_size=8),
        }
    )


descriptions = _descriptions(*_KINDS, *_MORE)
"""Random jobs over nodes; see ``build``."""

many_pipes = _descriptions(*_KINDS, *_MORE, *["pipe"] * 6)
"""Random jobs of which about half of the tasks are pipes."""


def described(*tasks: tuple[str, int | str, int]) -> dict[str, Any]:
    """The description of a job on two nodes, whose tasks are (kind, node, tool)."""
    keys = ("task", "node", "tool")
    made = [dict(zip(keys, task, strict=True)) for task in tasks]
    return {"seed": 1, "nodes": 2, "seconds": 0.01, "tasks": made}


WAITING_COPY = described(
    *(("use", 1, tool) for tool in (0, 1, 0, 1)), ("gather_with", "*", 0), ("pipe", 0, 2)
)
"""The gathering waits for nothing, and one of its copies for users of its object."""

LATE_ALIAS = described(
    ("use", 1, 0), ("use", 1, 0), ("alias", "*", 0), ("use", 1, 0), ("gather_with", "*", -1)
)
"""That a copy waits for the third user shows only when the alias is made."""


def build(description: dict[str, Any], epochs: int = 2, *, remembers: bool = True) -> Job:
    """The job of a description: ``w`` and ``v`` on each node, and objects of ``setup`` and epochs.

    ``remembers``: the objects of ``setup`` do; not for a run that is to be resumed.
    """
    nodes = {f"n_{i}": {"k": 3 * i + 1} for i in range(description["nodes"])}
    how = {"remembers": remembers, "seconds": description["seconds"]}
    with Job("nodes", seed=description["seed"], nodes=nodes) as job:
        with job.setup, Node("*"):
            Task(Tool, with_=how, out="tool", name="make_tool")
            Task(make_two, with_=how, out=["p", "q"], name="make_two")
            Task(make_rows, out="rows", name="make_rows")
        with job.init, Node("*"):
            Task(begin, "k", out=list(SAVED), name="begin")
        tools: dict[str, list[str]] = {node: ["p", "q", "tool"] for node in nodes}
        for number, task in enumerate(description["tasks"]):
            _add_task(number, task, tools)
        job.stop(epochs=epochs)
    return job


def _add_task(number: int, task: dict[str, Any], tools: dict[str, list[str]]) -> None:
    """One task of ``epoch``; ``tools`` are the names of objects on each node so far."""
    kind = task["task"]
    node = "*" if task["node"] == "*" or kind.startswith("gather") else f"n_{task['node']}"
    on = list(tools) if node == "*" else [node]
    known = [name for name in tools[on[0]] if all(name in tools[n] for n in on)]
    tool, more = known[task["tool"] % len(known)], {"name": f"{kind}_{number}", "node": node}
    if kind == "use":
        Task(use, [tool, "v"], out="v", **more)
    elif kind == "place":
        Task(use_in_place, [tool, "v"], update=["w"], **more)
    elif kind == "gather":
        Task(average, "n_*:w", out="w", **more)
    elif kind == "gather_with":
        Task(average_with, ["n_*:w", tool], out="w", **more)
    elif kind == "gather_place":
        Task(average_in_place, ["n_*:w", tool], update=["w"], **more)
    elif kind == "draw":
        Task(draw, ["w", "rng"], out="v", **more)
    elif kind == "pipe":
        step = Task(batch_step, ["x", tool], update=["w"], name=f"step_{number}")
        Pipe({"x": "rows"}, 2, do=[step], **more)
    else:
        name = f"{kind}_{number}"
        functions: dict[str, tuple[Any, ...]] = {
            "alias": (same, tool),
            "inside": (in_tree, tool),
            "make": (Tool,),
        }
        Task(*functions[kind], out=name, **more)
        for one in on:
            tools[one].append(f"{name}/t" if kind == "inside" else name)


def names(description: dict[str, Any]) -> list[str]:
    """The blobs that persist, by name."""
    return [f"n_{i}:{name}" for i in range(description["nodes"]) for name in SAVED]
