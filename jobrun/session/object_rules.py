"""The rules for opaque objects, which are in no checkpoint and cannot be copied.

- An object that ``setup`` makes is made at every start.  A change to it by an epoch is lost on a
  resume, and cannot be detected: a warning names each one that epochs use, once, before the first
  epoch.  A task of ``epoch`` that would *update* one, under another name of it, is refused.
- A call that is repeated gets the original blobs; of an object there is no copy.  For one under
  ``in`` that is a warning, under ``update`` an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from jobrun.analysis.accesses import access
from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.dataflow import KEEP_CHANGES, inner_steps
from jobrun.analysis.graph import Plan
from jobrun.analysis.names import resolve
from jobrun.core.blob_paths import Key, PathSet, overlaps
from jobrun.errors import TaskError, Where
from jobrun.model.job import Task
from jobrun.session.object_order import ObjectOrder
from jobrun.values.opaque import changeable_objects
from jobrun.values.workspace import Workspace

__all__ = ["ObjectRules"]


@dataclass(frozen=True, slots=True)
class _Use:
    """A call of a unit that gets a blob under ``role``: ``in`` or ``update``."""

    unit: int
    step: Task
    role: str
    name: str
    key: Key

    def of(self, key: Key) -> bool:
        """Return whether it gets the blob stored under ``key``, or a part of it."""
        return self.key[0] == key[0] and overlaps(self.key[1], key[1])

    @property
    def where(self) -> Where | None:
        """Return the place of the name in the spec."""
        return self.step.mark(f"{self.role}:{self.name}", self.role)


class ObjectRules:
    """The rules for the objects that the units of ``plan`` use; ``nodes`` holds the blobs."""

    def __init__(
        self,
        analysis: JobAnalysis,
        plan: Plan,
        objects: ObjectOrder,
        nodes: Mapping[str, Workspace],
    ) -> None:
        self._job = analysis.job
        self._live = analysis.live
        self._constants = PathSet(analysis.live.constants)
        self._plan = plan
        self._objects = objects
        self._nodes = nodes
        uses = [use for number in range(len(plan.units)) for use in self._uses(number)]
        self._updates = [use for use in uses if use.role == "update"]
        self._retried = [use for use in uses if use.step.retries is not None]
        self._said: set[tuple[str, str]] = set()

    def _uses(self, number: int) -> Iterator[_Use]:
        unit = self._plan.units[number]
        if unit.gathers or not unit.access.reads:
            return
        known = set(unit.access.reads)
        for step in inner_steps(unit.task):
            for role, arguments in (("in", step.inputs), ("update", step.updates)):
                for argument in arguments:
                    for key in resolve(self._job, unit.node, argument.name).keys:
                        if key in known:  # else it is a column, or from an earlier step
                            yield _Use(number, step, role, argument.name, key)

    def at_start(self) -> list[str]:
        """Return the warnings to give before the group first runs."""
        held: dict[int, list[Key]] = {}
        types: dict[int, type] = {}
        for node, workspace in self._nodes.items():
            for name, value in workspace.root.items():
                for path, obj in changeable_objects(value, name):
                    held.setdefault(id(obj), []).append((node, path))
                    types[id(obj)] = type(obj)
        found = [line for keys in held.values() for key in keys for line in self._of_retries([key])]
        found += self._of_live_retries()
        if self._plan.group == "epoch":
            found += self._of_setup(held, types)
        return found

    def _of_setup(self, held: Mapping[int, list[Key]], types: Mapping[int, type]) -> Iterator[str]:
        """Yield a line for each object of ``setup`` that epochs use, joined over the nodes."""
        alike: dict[tuple[tuple[str, ...], type], list[Key]] = {}
        for number, keys in held.items():
            constant = any(self._constants.touches(key) for key in keys)
            if not constant and any(self._objects.readers(key) for key in keys):
                paths = tuple(dict.fromkeys(path for _, path in keys))
                alike.setdefault((paths, types[number]), []).extend(keys)
        for (paths, kind), keys in alike.items():
            users = {n: None for key in keys for n in self._objects.readers(key)}
            tasks = dict.fromkeys(f"{self._plan.units[n].task.name!r}" for n in sorted(users))
            nodes = dict.fromkeys(node for node, _ in keys)
            at = f" on {', '.join(nodes)}" if self._job.multi_node else ""
            yield _line(
                f"{_and(map(repr, paths))} of 'setup'{at} is {_described(kind)}, which "
                f"{_and(tasks)} of 'epoch' use{'s' if len(tasks) == 1 else ''}: changes to "
                "it in an epoch are in no checkpoint, and lost on a resume",
                KEEP_CHANGES,
                self._made_at(keys[0]),
            )

    def _made_at(self, key: Key) -> Where | None:
        """Return the place in the spec where ``setup`` writes a blob."""
        for task in self._job.groups["setup"].tasks:
            if key[0] in self._job.nodes_of(task):
                for node, path in access(self._job, task, key[0]).writes:
                    if node == key[0] and overlaps(path, key[1]):
                        return task.mark(f"out:{path}", "out")
        return None

    def stored(self, key: Key) -> list[str]:
        """Return the warnings about an object that has been stored under ``key``.

        Raises TaskError for a use that is not allowed.
        """
        names = self._objects.names[key]
        if self._plan.group == "epoch" and any(self._objects.is_older(name) for name in names):
            for use in self._updates:
                if any(use.of(name) for name in names):
                    raise self._updates_setup(use, names)
        return list(self._of_retries(names))

    def _updates_setup(self, use: _Use, names: Iterable[Key]) -> TaskError:
        made = sorted(path for node, path in names if self._objects.is_older((node, path)))
        return TaskError(
            f"{self._place(use)} updates {use.name!r}, which is the object that 'setup' made as "
            f"{made[0]!r}: the change would be in no checkpoint, and lost on a resume",
            where=use.where,
            hint=KEEP_CHANGES,
        )

    def _of_retries(self, names: Iterable[Key]) -> Iterator[str]:
        for use in self._retried:
            if not any(use.of(name) for name in names):
                continue
            if use.role == "update":
                raise TaskError(
                    f"{self._place(use)} has retries and updates {use.name!r}, an object that "
                    "cannot be copied: a retry could not get its original state",
                    where=use.where,
                    hint="name it under 'in', if a failed try leaves no change in it; "
                    "or do without 'retries'",
                )
            about = (self._place(use), use.name)
            if about not in self._said:
                self._said.add(about)
                yield _line(
                    f"{self._place(use)} has retries and reads {use.name!r}, an object that "
                    "cannot be copied: a retry sees the changes of the failed try",
                    "",
                    use.where,
                )

    def _of_live_retries(self) -> Iterator[str]:
        """Yield a line for each task whose retries cost a copy of live state for every call."""
        tasks: dict[str, tuple[_Use, dict[str, None]]] = {}
        for use in self._retried:
            if use.key in self._live:
                _, names = tasks.setdefault(self._place(use), (use, {}))
                names.update((path, None) for _, path in self._live.linked([use.key]))
        for place, (use, names) in tasks.items():
            yield _line(
                f"{place} has retries: the state of {_and(map(repr, names))} is copied before each "
                "call, and restored after one that failed",
                "",
                use.step.mark("retries"),
            )

    def _place(self, use: _Use) -> str:
        unit = self._plan.units[use.unit]
        name = unit.task.name
        if use.step is not unit.task:
            name = f"{name}/{use.step.name}"
        return f"task {name!r} of group {self._plan.group!r}"


def _line(text: str, hint: str, where: Where | None) -> str:
    return (f"{where}: " if where else "") + text + (f"; {hint}" if hint else "")


def _and(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def _described(kind: type) -> str:
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    return f"an object of type {name}"
