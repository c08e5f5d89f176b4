"""Data flow from top to bottom: is every blob written before it is read, and by who may?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jobrun.access import Access, Key, access, overlaps, resolve
from jobrun.errors import Problem, Where, did_you_mean
from jobrun.graph import reads_across
from jobrun.job import GROUPS, Job, Pipe, Task

__all__ = ["flow_problems", "inner_steps", "units_of", "writes_of", "written"]

# What each group may read, beside what its own earlier tasks wrote.
_BEFORE = {
    "setup": (),
    "init": ("setup",),
    "epoch": ("setup", "init"),
    "download": ("setup", "init", "epoch"),
    "exit": ("setup", "init", "epoch", "download"),
}


def units_of(job: Job, group: str) -> Iterator[tuple[Task, list[tuple[str, Access]]]]:
    """The tasks of a group, each with its accesses on its nodes."""
    for task in job.groups[group].tasks:
        yield task, [(node, access(job, task, node)) for node in job.nodes_of(task)]


def writes_of(job: Job, group: str) -> Iterator[Key]:
    """Every blob that a group writes, in the order of the spec."""
    for _, copies in units_of(job, group):
        for _, found in copies:
            yield from found.writes


def written(job: Job) -> set[str]:
    """Every blob name that a task writes, with ``node:`` in front if there are several nodes.

    Includes the bare names too, which a metric may use for the blob of each node.
    """
    names: set[str] = set()
    for group in GROUPS:
        for node, path in writes_of(job, group):
            names.add(path)
            if job.multi_node:
                names.add(f"{node}:{path}")
    return names


def inner_steps(task: Task) -> Sequence[Task]:
    """The calls of a task: itself, or the steps of a pipe."""
    return (*task.map, *task.do) if isinstance(task, Pipe) else (task,)


def flow_problems(job: Job) -> Iterator[Problem]:
    """From top to bottom: is every blob written before it is read, and by who may?"""
    made: dict[str, list[Key]] = {}
    setup: _Paths | None = None
    for group in GROUPS:
        have = _Paths(k for g in _BEFORE[group] for k in made[g])
        made[group] = []
        sometimes: dict[Key, object] = {}
        for task, copies in units_of(job, group):
            for _, found in copies:
                yield from found.problems
                yield from _reads(job, group, task, found, have, sometimes)
            if isinstance(task, Pipe):
                yield from _pipe_reads(job, task, copies)
            for _, found in copies:
                yield from _twice(job, task, copies, found)
                for key in found.writes:
                    if setup is not None and setup.touches(key):
                        yield _protected(job, task, key)
                    if task.every is not None and not have.touches(key):
                        sometimes.setdefault(key, task.every)
                    elif task.every is None:
                        sometimes.pop(key, None)
                    have.add(key)
                    made[group].append(key)
        if group == "setup":
            setup = _Paths(made["setup"])


def _pipe_reads(job: Job, pipe: Pipe, copies: Sequence[tuple[str, Access]]) -> Iterator[Problem]:
    """What a pipe may not read, since its batches would depend on when they are run."""
    if reads_across([a for _, a in copies]):
        yield Problem(
            f"the copies of pipe {pipe.name!r} read what other copies of it write",
            pipe.where,
            "exchange blobs between nodes in a task of its own, after the pipe",
        )
    node, found = copies[0]
    if found.problems:
        return
    for mark, name in _reader_names(pipe):
        keys = resolve(job, node, name).keys
        if any(_overlap(key, k) for key in keys for k in found.writes):
            yield Problem(
                f"pipe {pipe.name!r} writes {name!r}, which it reads from",
                pipe.mark(mark, "from"),
                "write another blob, and copy it after the pipe",
            )


def _reader_names(pipe: Pipe) -> Iterator[tuple[str, str]]:
    """The names that the reader of a pipe reads, each with its mark."""
    for column, name in pipe.reader.blobs.items():
        yield f"from:{column}", name
    for field in ("batch", "batches_per_epoch", "passes", "threads", "ahead"):
        value = getattr(pipe.reader, field)
        if isinstance(value, str):
            yield field, value


class _Paths:
    """A set of blobs, asked by overlap."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._exact: set[Key] = set()
        self._above: set[Key] = set()
        for key in keys:
            self.add(key)

    def add(self, key: Key) -> None:
        """Add a blob."""
        self._exact.add(key)
        node, path = key
        while "/" in path:
            path = path.rpartition("/")[0]
            self._above.add((node, path))

    def touches(self, key: Key) -> bool:
        """Whether a blob of the set overlaps ``key``."""
        if key in self._exact or key in self._above:
            return True
        node, path = key
        while "/" in path:
            path = path.rpartition("/")[0]
            if (node, path) in self._exact:
                return True
        return False

    def names(self, node: str) -> list[str]:
        """The paths on a node."""
        return sorted(p for n, p in self._exact if n == node)


def _reads(
    job: Job, group: str, task: Task, found: Access, have: _Paths, sometimes: dict[Key, object]
) -> Iterator[Problem]:
    for key in dict.fromkeys(found.reads):
        if not have.touches(key) and key not in found.begun:
            yield _missing(job, group, task, key, have)
        every = next((e for k, e in sometimes.items() if _overlap(k, key)), None)
        if every is not None and every != task.every:
            yield Problem(
                f"{_shown(job, key)!r} is written every {every} epochs only, "
                f"but task {task.name!r} reads it in others too",
                _read_mark(task, key),
                f"give the task 'every: {every}' too, or write the blob in 'init' first",
            )


def _overlap(a: Key, b: Key) -> bool:
    return a[0] == b[0] and overlaps(a[1], b[1])


def _read_mark(task: Task, key: Key) -> Where | None:
    names = (key[1], f"{key[0]}:{key[1]}")
    for step in (*inner_steps(task), task):
        for role in ("in", "update", "from"):
            for name in names:
                if f"{role}:{name}" in step.marks:
                    return step.marks[f"{role}:{name}"]
        for argument in step.inputs:
            if argument.name.rpartition(":")[2] == key[1] and f"in:{argument.name}" in step.marks:
                return step.marks[f"in:{argument.name}"]
    if isinstance(task, Pipe):
        for column, blob in task.reader.blobs.items():
            if blob in names and f"from:{column}" in task.marks:
                return task.marks[f"from:{column}"]
        for field in ("batch", "batches_per_epoch", "passes", "threads", "ahead"):
            if getattr(task.reader, field) in names and field in task.marks:
                return task.marks[field]
    return task.where


def _missing(job: Job, group: str, task: Task, key: Key, have: _Paths) -> Problem:
    """A blob is read that has no value at this place of the spec."""
    name = _shown(job, key)
    updates = any(a.name in (key[1], name) for s in inner_steps(task) for a in s.updates)
    verb = "updates" if updates else "reads"
    later = next(
        (g for g in GROUPS for k in writes_of(job, g) if k[0] == key[0] and overlaps(k[1], key[1])),
        None,
    )
    if later is None:
        known = [*have.names(key[0]), *job.node_vars(key[0])]
        if isinstance(task, Pipe):
            known += [*task.reader.blobs, *(n for s in task.map for n in s.outputs.names)]
        text = f"task {task.name!r} {verb} {name!r}, which no task writes"
        return Problem(text, _read_mark(task, key), did_you_mean(key[1], known))
    if later == group:
        text = f"task {task.name!r} {verb} {name!r} before it is written"
        hint = "write its first value in 'init'" if group == "epoch" else "move the task down"
        return Problem(text, _read_mark(task, key), hint)
    text = f"task {task.name!r} of {group!r} {verb} {name!r}, which only {later!r} writes"
    return Problem(text, _read_mark(task, key), f"{later!r} runs after {group!r}")


def _shown(job: Job, key: Key) -> str:
    return f"{key[0]}:{key[1]}" if job.multi_node else key[1]


def _protected(job: Job, task: Task, key: Key) -> Problem:
    return Problem(
        f"task {task.name!r} writes {_shown(job, key)!r}, which belongs to 'setup'",
        task.mark(f"out:{key[1]}", f"update:{key[1]}", "out", "update"),
        "blobs of 'setup' are rebuilt at every start and no other group may write them",
    )


def _twice(
    job: Job, task: Task, copies: Sequence[tuple[str, Access]], found: Access
) -> Iterator[Problem]:
    """Two copies of one task, or two outputs of it, must not write one blob."""
    for other in (a for _, a in copies if a is not found):
        for key in found.writes:
            if any(_overlap(key, k) for k in other.writes):
                yield Problem(
                    f"the copies of task {task.name!r} all write {_shown(job, key)!r}",
                    task.mark(f"out:{key[1]}", "out"),
                    "each copy needs a blob of its own",
                )
                return
    if isinstance(task, Pipe):
        return
    for i, key in enumerate(found.writes):
        if any(_overlap(key, k) for k in found.writes[:i]):
            yield Problem(
                f"task {task.name!r} writes {_shown(job, key)!r} twice",
                task.mark(f"out:{key[1]}", "out"),
            )
