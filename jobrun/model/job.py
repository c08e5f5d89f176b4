"""Jobs, groups, tasks and pipes as plain values, and the builder for Python.

A job has five groups, always run in this order: ``setup`` at every start, ``init`` once, ``epoch``
repeatedly, ``download`` and ``exit`` after the loop.  Its nodes are namespaces of blobs; a job
without nodes has one, ``main``.

::

    with Job("sum", seed=7) as job:
        with job.init:
            Task(make_total, out="total")
        with job.epoch:                      # also the group of a bare Task in the body
            Task(add_one, update="total")
        job.stop(epochs=3)

A YAML spec is turned into the same objects by ``jobrun.jobspec``.  Nothing here looks at values,
imports user code or runs anything; ``jobrun.analysis.graph`` checks a job as a whole.

The model of the classes is Caffe2's Job, TaskGroup, Task and Node contexts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import import_module
from operator import index
from pathlib import Path
from typing import Any, Self

from jobrun.core.suggestions import did_you_mean, listed
from jobrun.errors import Problem, SpecError, Where
from jobrun.model.pipe import REDUCTIONS, Pipe, data
from jobrun.model.policy import DEFAULT_POLICY, CheckpointPolicy, SessionSpec, Upload
from jobrun.model.reporter import Reporter
from jobrun.model.rows import SHARD, CallSource, Data, FileSource, Reader
from jobrun.model.task import Argument, Outputs, Task, current_node, current_tasks

__all__ = [
    "GENERATORS",
    "GROUPS",
    "MAIN",
    "REDUCTIONS",
    "RESERVED",
    "SHARD",
    "Argument",
    "CallSource",
    "ConditionSpec",
    "Data",
    "FileSource",
    "Job",
    "Node",
    "Outputs",
    "Pipe",
    "Reader",
    "SpecOrigin",
    "Task",
    "TaskGroup",
    "data",
    "numbered",
]

GROUPS = ("setup", "init", "epoch", "download", "exit")
MAIN = "main"
RESERVED = ("epoch", "rng", "node", "best")
GENERATORS = ("rng.python", "rng.numpy", "rng.torch")
"""The global random generators that ``state`` may name."""

_LOADING, _DRAWING = "jobrun.jobspec.load_job", "jobrun.drawing.job_svg"
"""Modules of higher layers, loaded when a user asks a job for it; nothing here rests on them."""

_job: ContextVar[Job | None] = ContextVar("jobrun_job", default=None)


@dataclass(frozen=True, slots=True)
class ConditionSpec:
    """One entry of ``stop`` or ``fail`` as written: ``ConditionSpec("stop", "epochs", 3)``.

    ``marks`` maps keys below the entry (``""`` for the entry itself) to places in the spec.
    """

    section: str
    kind: str
    value: Any
    marks: Mapping[str, Where] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpecOrigin:
    """The spec of a job: the folder of its code, its file, its text, and the text as resolved."""

    folder: Path
    path: Path
    text: str
    resolved: str


class _Scope:
    """A context that sets variables while entered; it may be entered again."""

    def __init__(self) -> None:
        self._entered: list[list[tuple[ContextVar[Any], Token[Any]]]] = []

    def _values(self) -> list[tuple[ContextVar[Any], Any]]:
        raise AssertionError(self)  # every subclass has its own

    def __enter__(self) -> Self:
        self._entered.append([(v, v.set(value)) for v, value in self._values()])
        return self

    def __exit__(self, *raised: object) -> None:
        for variable, token in self._entered.pop():
            variable.reset(token)


class TaskGroup(_Scope):
    """The tasks of one phase of a job, in the order of the spec; a context for new tasks."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.tasks: list[Task] = []

    def _values(self) -> list[tuple[ContextVar[Any], Any]]:
        return [(current_tasks, self.tasks)]

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def __repr__(self) -> str:
        return f"TaskGroup({self.name!r}, {self.tasks!r})"

    def named(self) -> None:
        """Make the names of tasks unique: the second ``step`` becomes ``step_2``."""
        taken = {t.given_name for t in self.tasks if t.given_name}
        numbers: dict[str, int] = {}
        for task in self.tasks:
            if task.given_name:
                continue
            default = task.default_name
            number = numbers.get(default, 1)
            name = default if number == 1 else f"{default}_{number}"
            while name in taken:
                number += 1
                name = f"{default}_{number}"
            numbers[default] = number
            taken.add(name)
            task.name = name


class Node(_Scope):
    """A context: tasks made inside run on this node; a glob makes a copy for each that matches."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def _values(self) -> list[tuple[ContextVar[Any], Any]]:
        return [(current_node, self.name)]


class Job(_Scope):
    """A job: vars, groups of tasks, stop conditions, metrics and a checkpoint policy.

    ``nodes`` is a list of names, a mapping of name to vars of that node, or a number (``8``: n0 to
    n7); a number in the mapping stands for as many nodes (``{"trainer": 8}``: trainer_0 to
    trainer_7).  ``metrics`` maps a scalar blob to ``"min"``, ``"max"`` or None, the direction that
    is better.  ``checkpoint`` is a policy, or None for a job without checkpoints; ``upload`` is
    where they are copied after the loop.  ``session`` is the session in which the command line
    runs it.

    ``state`` names objects of ``setup`` whose content persists, as a sequence, or as a mapping to
    the adapter that reads and restores them: an object, ``"module:Class"``, or None for the adapter
    of their type.  It may name the global generators in ``GENERATORS`` too.  ``constant`` names
    objects of ``setup`` that no task changes.  ``origin`` is the spec that it was loaded from, if
    any, and ``doubts`` are warnings of what seems to be a mistake in it.
    """

    def __init__(
        self,
        name: str,
        *,
        seed: int = 0,
        vars: Mapping[str, Any] | None = None,
        nodes: int | Sequence[str] | Mapping[str, Mapping[str, Any] | int | None] | None = None,
        metrics: Mapping[str, str | None] | None = None,
        checkpoint: CheckpointPolicy | None = DEFAULT_POLICY,
        upload: Upload | None = None,
        state: Sequence[str] | Mapping[str, Any] = (),
        constant: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.name = name
        self.seed = index(seed)
        self.vars: dict[str, Any] = dict(vars or {})
        self.multi_node = nodes is not None
        self.nodes = _vars_by_node((MAIN,) if nodes is None else nodes)
        self.metrics: dict[str, str | None] = dict(metrics or {})
        self.checkpoint = checkpoint
        self.upload = upload
        self.state: dict[str, Any] = (
            dict(state) if isinstance(state, Mapping) else dict.fromkeys(_names(state))
        )
        self.constant = _names(constant)
        self.session = SessionSpec()
        self.groups: dict[str, TaskGroup] = {g: TaskGroup(g) for g in GROUPS}
        self.conditions: list[ConditionSpec] = []
        self.never_stops = False
        self.reporters: list[Reporter] = []
        self.marks: dict[str, Where] = {}
        self.origin: SpecOrigin | None = None
        self.doubts: list[Problem] = []

    @staticmethod
    def load(
        spec: str | os.PathLike[str],
        set: Mapping[str, Any] | None = None,
        *,
        code: str | os.PathLike[str] | None = None,
    ) -> Job:
        """Return the job of a spec file, checked, for ``JobRunner``.

        ``set`` changes vars and keys as ``--set`` does: ``{"lr": 0.05, "stop.epochs": 3}``; None
        drops a key.  ``code`` is the folder of its code, if not beside the spec.  The run continues
        by ``jobrun resume`` too.  Raises UsageError if there is no such file or key, or for a sweep
        of several runs, SpecError with everything that is wrong with the spec.
        """
        job: Job = import_module(_LOADING).load_job(spec, set or {}, code)
        return job

    def _repr_svg_(self) -> str | None:
        """Return the graph of the job, as a notebook shows it."""
        found: str | None = import_module(_DRAWING).job_svg(self)
        return found

    # The groups by name, as in ``with job.epoch:``.

    @property
    def setup(self) -> TaskGroup:
        """The group run at every start; its blobs are never checkpointed."""
        return self.groups["setup"]

    @property
    def init(self) -> TaskGroup:
        """The group run once; the blobs it writes persist."""
        return self.groups["init"]

    @property
    def epoch(self) -> TaskGroup:
        """The group run repeatedly."""
        return self.groups["epoch"]

    @property
    def download(self) -> TaskGroup:
        """The group run after the loop, before ``exit``: gathers scattered blobs."""
        return self.groups["download"]

    @property
    def exit(self) -> TaskGroup:
        """The group run at the end."""
        return self.groups["exit"]

    def _values(self) -> list[tuple[ContextVar[Any], Any]]:
        return [(_job, self), (current_tasks, self.epoch.tasks)]

    @staticmethod
    def current() -> Job:
        """Return the job of the innermost ``with job:``; raises LookupError outside of one."""
        job = _job.get()
        if job is None:
            raise LookupError("no job is being built: use 'with Job(...) as job:'")
        return job

    def stop(self, *, never: bool = False, **conditions: Any) -> None:
        """Add stop conditions, with the keys of the spec: ``epochs=3``, ``when="loss < 0.1"`` …

        ``never=True`` is for endless jobs.  ``conditions.parse`` checks them once the job is
        whole.
        """
        self.never_stops = self.never_stops or never
        self.conditions += [ConditionSpec("stop", kind, v) for kind, v in conditions.items()]

    def fail(self, **conditions: Any) -> None:
        """Add conditions that end the run as a failure; they win over ``stop``."""
        self.conditions += [ConditionSpec("fail", kind, v) for kind, v in conditions.items()]

    @property
    def generators(self) -> tuple[str, ...]:
        """The global random generators that ``state`` names, in the order of ``GENERATORS``."""
        return tuple(name for name in GENERATORS if name in self.state)

    def node_vars(self, node: str) -> dict[str, Any]:
        """Return the vars of ``node``."""
        return {**self.vars, **self.nodes[node]}

    def shared_vars(self) -> dict[str, Any]:
        """Return the vars that have one value on all nodes."""
        first, *others = (self.node_vars(n) for n in self.nodes)
        return {k: v for k, v in first.items() if all(k in o and _same(o[k], v) for o in others)}

    def nodes_of(self, task: Task) -> tuple[str, ...]:
        """Return the nodes a task runs on; raises SpecError if there is none."""
        if task.node is None:
            if not self.multi_node:
                return (MAIN,)
            raise SpecError(
                [Problem(f"task {task.name!r} names no node", task.where, "add 'node:'")]
            )
        found = match_nodes(task.node, self.nodes)
        if not found:
            hint = did_you_mean(task.node, list(self.nodes)) or self._declaring(task.node)
            raise SpecError([Problem(f"no node {task.node!r}", task.mark("node"), hint)])
        return found

    def _declaring(self, node: str) -> str:
        """Return the hint for a node that there is not: those there are, or how one is declared."""
        if self.multi_node or "*" in node or "?" in node:
            return listed(list(self.nodes))
        tasks = [task for group in self.groups.values() for task in group.tasks]
        named = [t.node for t in tasks if t.node is not None and not set(t.node) & set("*?[")]
        every = ", ".join(dict.fromkeys((*self.nodes, *named)))
        text = f"there is only {', '.join(self.nodes)}; declare them: nodes: [{every}]"
        return text + (", and add 'node:' to the other tasks" if len(named) < len(tasks) else "")

    def pipes(self) -> Iterator[tuple[TaskGroup, Pipe]]:
        """Yield every pipe with its group."""
        for group in self.groups.values():
            for task in group.tasks:
                if isinstance(task, Pipe):
                    yield group, task

    def __repr__(self) -> str:
        return f"Job({self.name!r})"


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _same(a: Any, b: Any) -> bool:
    """Return whether two values are equal and of one type: 1, 1.0 and true are three values."""
    return type(a) is type(b) and repr(a) == repr(b)


def numbered(name: str, count: int) -> list[str]:
    """Return the names of ``count`` nodes: ``trainer_0``, ``trainer_1``, …."""
    return [f"{name}_{number}" for number in range(count)]


def _vars_by_node(
    nodes: int | Sequence[str] | Mapping[str, Mapping[str, Any] | int | None],
) -> dict[str, dict[str, Any]]:
    """Return the vars of each node, in the order of the nodes."""
    if isinstance(nodes, int):
        return {f"n{number}": {} for number in range(nodes)}
    found: dict[str, dict[str, Any]] = {}
    for name, own in (nodes if isinstance(nodes, Mapping) else dict.fromkeys(nodes)).items():
        if isinstance(own, int):
            found.update((n, {}) for n in numbered(name, own))
        else:
            found[name] = dict(own or {})
    return found


def match_nodes(pattern: str, nodes: Mapping[str, Any] | Sequence[str]) -> tuple[str, ...]:
    """Return the nodes that a name or glob matches, in the order of the job."""
    if pattern in nodes:
        return (pattern,)
    return tuple(n for n in nodes if fnmatchcase(n, pattern))
