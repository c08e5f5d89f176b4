"""A job as boxes and arrows: the plain values from which every format is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.graph import BlobUse, Plan, Unit, make_plan
from jobrun.analysis.names import step_names
from jobrun.analysis.persistence import persistent
from jobrun.core.blob_paths import Key, overlaps
from jobrun.core.text import duration
from jobrun.model.job import GROUPS, Job, Pipe, Task
from jobrun.model.options import Load
from jobrun.model.shell import Shell

__all__ = ["WHEN", "Arrow", "GroupPicture", "Picture", "State", "TaskBox", "picture"]

WHEN = {
    "setup": "at every start",
    "init": "once",
    "epoch": "again and again",
    "download": "after the loop",
    "exit": "at the end",
}
"""When each group runs, as pictures say it."""


LANES = 6
"""Number of nodes above which the copies of a task on its nodes are one box."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of a task in a run: ``status`` is done, running, failed, interrupted or waiting.

    ``seconds`` is its mean time, None if it was always too short to be recorded; ``share`` is its
    share of the group's time, 0 if the group never finished.
    """

    status: str
    seconds: float | None = None
    share: float = 0.0

    @property
    def took(self) -> str:
        """The time and share, as ``44.9 ms, 89%``; empty if no time is known."""
        if self.seconds is None:
            return ""
        return duration(self.seconds) + (f", {self.share:.0%}" if self.share else "")


@dataclass(frozen=True)
class TaskBox:
    """A task on a node or, with ``copies`` above 1, on this number of nodes.

    ``kind`` is call, pipe, shell or load, ``detail`` what is called, ``every`` how often if not in
    each epoch.  ``rank`` is the longest path to it within its group:
    tasks of one rank can run at the same time.  ``steps`` are the lines inside a pipe.  ``reads``
    (only read), ``updates`` (read, then written) and ``writes`` are names of blobs as the task's
    node knows them.
    """

    key: str
    name: str
    kind: str
    detail: str
    group: str
    node: str
    rank: int
    steps: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    copies: int = 1
    state: State | None = None
    every: str = ""

    @property
    def description(self) -> str:
        """What is called, and how often."""
        return ", ".join(filter(None, (self.detail, self.every)))


@dataclass(frozen=True, slots=True)
class Arrow:
    """From a box to a later one, by number, carrying ``blobs``; without any, it is order only.

    ``kept`` are those of ``blobs`` that persist.
    """

    source: int
    target: int
    blobs: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class GroupPicture:
    """A group of tasks: the numbers of its boxes, and a note on its runs."""

    name: str
    when: str
    boxes: tuple[int, ...]
    note: str = ""


@dataclass(frozen=True)
class Picture:
    """All that is drawn.  ``kept`` are the blobs that persist, by node."""

    job: str
    nodes: tuple[str, ...]
    groups: tuple[GroupPicture, ...]
    boxes: tuple[TaskBox, ...]
    arrows: tuple[Arrow, ...]
    kept: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def persists(self, node: str, name: str) -> bool:
        """Return whether a blob, or a part of it, is in the checkpoints."""
        own, colon, path = name.rpartition(":")
        kept = self.kept.get(own if colon else node, ())
        return any(overlaps(k, path) for k in kept)


def picture(
    job: Job,
    states: Mapping[tuple[str, str], State] | None = None,
    notes: Mapping[str, str] | None = None,
) -> Picture:
    """Return the picture of a job that has been checked.

    ``states`` are by group and key of a unit, ``notes`` by group.  Raises SpecError for a cycle.
    """
    analysis = JobAnalysis(job)
    drawer = _Drawer(analysis, states or {})
    groups = []
    for group in GROUPS:
        if job.groups[group].tasks:
            numbers = drawer.group(make_plan(job, job.groups[group], analysis))
            note = (notes or {}).get(group, "")
            groups.append(GroupPicture(group, WHEN[group], numbers, note))
    nodes = tuple(job.nodes) if job.multi_node else ()
    return Picture(
        job.name, nodes, tuple(groups), tuple(drawer.boxes), drawer.arrows(), drawer.kept
    )


class _Drawer:
    """Goes through the units of all groups in order, and remembers the writers of blobs."""

    def __init__(self, analysis: JobAnalysis, states: Mapping[tuple[str, str], State]) -> None:
        job = self.job = analysis.job
        self.states = states
        self.kept = persistent(analysis)
        self.merge = len(job.nodes) > LANES
        self.boxes: list[TaskBox] = []
        self.use = BlobUse()
        self.flow: dict[tuple[int, int], dict[str, bool]] = {}
        self.order: set[tuple[int, int]] = set()

    def group(self, plan: Plan) -> tuple[int, ...]:
        """Draw a group; return the numbers of its boxes."""
        first = len(self.boxes)
        heights = _heights(plan)
        box_of: dict[int, int] = {}
        for _, numbers in groupby(range(len(plan.units)), key=lambda n: id(plan.units[n].task)):
            copies = [n for n in numbers if not plan.units[n].gathers]
            for copy in copies[:1] if self.merge else copies:
                self.boxes.append(self._box(plan.group, plan.units[copy], heights[copy]))
            first_copy = len(self.boxes) - (1 if self.merge else len(copies))
            for place, copy in enumerate(copies):
                box_of[copy] = first_copy + (0 if self.merge else place)
            for copy in copies:  # all read before any writes
                self._reads(plan.units[copy], box_of[copy])
            for copy in copies:
                for key in plan.units[copy].access.writes:
                    self.use.write(key, box_of[copy])
        self._order(plan, heights, box_of)
        return tuple(range(first, len(self.boxes)))

    def _box(self, group: str, unit: Unit, rank: int) -> TaskBox:
        task = unit.task
        copies = len(self.job.nodes_of(task)) if self.merge else 1
        reads, writes = set(unit.access.reads), set(unit.access.writes)
        return TaskBox(
            key=task.name if copies > 1 else unit.key,
            name=task.name,
            kind=_kind(task),
            detail=_detail(task),
            group=group,
            node=unit.node,
            rank=rank,
            steps=tuple(_steps(task)),
            reads=(*_names(unit, reads - writes), *(f"best:{p}" for _, p in unit.access.best)),
            updates=_names(unit, reads & writes),
            writes=_names(unit, writes - reads),
            copies=copies,
            state=self.states.get((group, unit.key)),
            every=_every(task),
        )

    def _reads(self, unit: Unit, box: int) -> None:
        """Add the arrows of the blobs that a unit reads."""
        for key in unit.access.reads:
            for writer in self.use.writers(key):
                if writer != box:
                    label = key[1] if key[0] == unit.node else f"{key[0]}:{key[1]}"
                    kept = any(overlaps(k, key[1]) for k in self.kept[key[0]])
                    self.flow.setdefault((writer, box), {})[label] = kept
        for node, path in unit.access.best:
            for writer in self.use.writers((node, path)):
                self.flow.setdefault((writer, box), {})[f"best:{path}"] = True

    def _order(self, plan: Plan, heights: Sequence[int], box_of: Mapping[int, int]) -> None:
        """Add the arrows of order only: those that no other path between two boxes implies."""
        reach = [0] * len(plan.units)
        for unit in sorted(range(len(plan.units)), key=heights.__getitem__, reverse=True):
            behind = 0
            for other in sorted(plan.successors[unit], key=heights.__getitem__):
                if not behind >> other & 1 and not plan.units[unit].gathers:
                    for end in plan.units[other].gathers or (other,):
                        self._order_arrow(box_of[unit], box_of[end])
                behind |= (1 << other) | reach[other]
            reach[unit] = behind

    def _order_arrow(self, source: int, target: int) -> None:
        if source != target:
            self.order.add((source, target))

    def arrows(self) -> tuple[Arrow, ...]:
        """Return all arrows, in the order of the boxes."""
        found = []
        for source, target in sorted({*self.flow, *self.order}):
            blobs = self.flow.get((source, target), {})
            kept = tuple(b for b, k in blobs.items() if k)
            found.append(Arrow(source, target, tuple(blobs), kept))
        return tuple(found)


def _heights(plan: Plan) -> list[int]:
    """Return the longest path to each unit; a gathering adds nothing to a path."""
    heights = [0] * len(plan.units)
    waits = list(plan.waits)
    ready = [u for u, n in enumerate(waits) if n == 0]
    for unit in ready:  # grows during the loop
        step = 0 if plan.units[unit].gathers else 1
        for other in plan.successors[unit]:
            heights[other] = max(heights[other], heights[unit] + step)
            waits[other] -= 1
            if waits[other] == 0:
                ready.append(other)
    return heights


def _names(unit: Unit, keys: Iterable[Key]) -> tuple[str, ...]:
    """Return blobs as the node of a unit knows them, in the order of the spec."""
    wanted = set(keys)
    in_order = dict.fromkeys([*unit.access.reads, *unit.access.writes])
    return tuple(p if n == unit.node else f"{n}:{p}" for n, p in in_order if (n, p) in wanted)


def _kind(task: Task) -> str:
    if isinstance(task, Pipe):
        return "pipe"
    return {Shell: "shell", Load: "load"}.get(type(task.fn), "call")


def _detail(task: Task) -> str:
    """Return what is called, in one line."""
    if isinstance(task, Pipe):
        reader = task.reader
        parts = [f"batches of {reader.batches.batch}"]
        parts += ["shuffled"] if reader.shuffle is not None else []
        parts += [f"{reader.workers.threads} threads"] if reader.workers.threads != 1 else []
        return ", ".join(parts)
    return f"$ {task.function_name}" if isinstance(task.fn, Shell) else task.function_name


def _steps(task: Task) -> Iterator[str]:
    """Yield the lines inside a pipe: ``map normalize: x → x``."""
    if not isinstance(task, Pipe):
        return
    names = step_names(task)
    for what, steps in (("map", task.map), ("do", task.do)):
        for step in steps:
            often = f" ({every})" if (every := _every(step)) else ""
            yield f"{what} {names[id(step)]}{often}: {_flow(step)}"


def _every(task: Task) -> str:
    """Return ``every 2 epochs`` or ``every 50 batches``, empty for each epoch or batch."""
    given = task.every if isinstance(task.every, Mapping) else {"epochs": task.every}
    return "".join(f"every {n} {unit}" for unit, n in given.items() if n not in (None, 1))


def _flow(step: Task) -> str:
    """Return ``x, y; updates model → loss``."""
    reads = ", ".join(a.name for a in step.inputs)
    updates = ", ".join(a.name for a in step.updates)
    parts = [part for part in (reads, updates and f"updates {updates}") if part]
    text = "; ".join(parts)
    writes = ", ".join(step.outputs.names)
    return f"{text} → {writes}".lstrip() if writes else text
