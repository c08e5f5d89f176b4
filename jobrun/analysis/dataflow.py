"""Data flow from top to bottom: every blob is written before it is read, by a task that may."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from jobrun.analysis.accesses import Access, access
from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.graph import reads_across
from jobrun.analysis.names import resolve
from jobrun.core.blob_paths import Key, PathMap, PathSet, same_leaves
from jobrun.core.suggestions import did_you_mean, did_you_mean_or_all
from jobrun.data.formats import format_of
from jobrun.errors import Problem, Where
from jobrun.model.job import GROUPS, RESERVED, Job, Pipe, Task
from jobrun.model.rows import SHUFFLE_IN_BLOCKS

__all__ = [
    "KEEP_CHANGES",
    "flow_problems",
    "inner_steps",
    "pipe_of_last_batch",
    "read_mark",
    "reader_names",
    "shuffle_problems",
    "source_problems",
    "updated_blobs",
    "write_mark",
]

KEEP_CHANGES = (
    "name it under 'state' if its content is to be saved; else what changes belongs in arrays, "
    "numbers and dicts of those: write them in 'init' and 'update' them in 'epoch'"
)
"""The hint for a blob of ``setup`` that epochs would change."""

# What each group may read, beside what its own earlier tasks wrote.
_BEFORE = {
    "setup": (),
    "init": ("setup",),
    "epoch": ("setup", "init"),
    "download": ("setup", "init", "epoch"),
    "exit": ("setup", "init", "epoch", "download"),
}


def inner_steps(task: Task) -> Sequence[Task]:
    """Return the calls of a task: itself, or the sources and steps of a pipe."""
    if isinstance(task, Pipe):
        return (*task.reader.data.calls(), *task.map, *task.do)
    return (task,)


def pipe_of_last_batch(job: Job, key: Key) -> str:
    """Return the pipe of whose last batch a blob is kept, though nobody has asked for that.

    Its steps only put the blob out, and ``reduce`` does not name it: numbers would be averaged over
    the epoch.  An empty string for any other blob.
    """
    node, path = key
    for task in reversed(job.epoch.tasks):
        if node in job.nodes_of(task) and key in access(job, task, node).writes:
            steps = task.do if isinstance(task, Pipe) and path not in task.reduce else ()
            used = any(key in access(job, step, node).reads for step in steps)
            return task.name if steps and not used else ""
    return ""


def updated_blobs(job: Job) -> Callable[[str], bool]:
    """Return a predicate: whether a task of the job updates the blob at a path, or a part of it.

    On any node: the copies of a task have the same code.
    """
    steps = (s for group in job.groups.values() for task in group.tasks for s in inner_steps(task))
    paths = PathSet(("", a.name.rpartition(":")[2]) for step in steps for a in step.updates)
    return lambda path: paths.touches(("", path))


def flow_problems(analysis: JobAnalysis) -> Iterator[Problem]:
    """Yield a problem for each blob read before it is written, or written without permission."""
    job = analysis.job
    made: dict[str, list[Key]] = {}
    every_write = _EveryWrite(analysis)
    setup: PathSet | None = None
    live = analysis.live
    for group in GROUPS:
        have = PathSet(k for g in _BEFORE[group] for k in made[g])
        made[group] = []
        sometimes = PathMap[object]()
        for task, copies in analysis.units_of(group):
            for _, found in copies:
                yield from found.problems
                yield from _reads(every_write, group, task, found, have, sometimes)
            if isinstance(task, Pipe):
                yield from _pipe_reads(job, task, copies)
            writers = _writers(copies)
            for _, found in copies:
                yield from _twice(job, task, writers, found)
                for key in found.writes:
                    if setup is not None and key not in live and setup.touches(key):
                        yield _protected(job, task, key)
                    if task.every is not None and not have.touches(key):
                        sometimes[key] = sometimes.get(key) or task.every  # the first counts
                    elif task.every is None:
                        sometimes.drop(key)
                    have.add(key)
                    made[group].append(key)
        if group == "setup":
            setup = PathSet(made["setup"])


def _pipe_reads(job: Job, pipe: Pipe, copies: Sequence[tuple[str, Access]]) -> Iterator[Problem]:
    """Yield a problem for each read that would make batches depend on timing."""
    whole = [Access(reads=a.read_whole(), writes=a.writes) for _, a in copies]
    if reads_across(whole):
        yield Problem(
            f"the copies of pipe {pipe.name!r} read what other copies of it write",
            pipe.where,
            "exchange blobs between nodes in a task of its own, after the pipe",
        )
    node, found = copies[0]
    if found.problems:
        return
    for mark, name in reader_names(pipe):
        keys = resolve(job, node, name).keys
        if any(same_leaves(key, k) for key in keys for k in found.writes):
            yield Problem(
                f"pipe {pipe.name!r} writes {name!r}, which it reads from",
                pipe.mark(mark, "from"),
                "write another blob, and copy it after the pipe",
            )


def source_problems(analysis: JobAnalysis) -> Iterator[Problem]:
    """Yield a problem for each source that could differ when a resume makes it again."""
    job = analysis.job
    changed = PathSet(analysis.writes_of("epoch"))
    for task in job.groups["epoch"].tasks:
        steps = task.reader.data.calls() if isinstance(task, Pipe) else ()
        for step in steps:
            for argument in step.inputs:
                if _reads_one_of(job, task, argument.name, changed):
                    yield Problem(
                        f"pipe {task.name!r} makes its source of {argument.name!r}, which changes "
                        "from epoch to epoch",
                        step.mark(f"in:{argument.name}"),
                        "a resumed run could not make it again: use a var, or a blob of 'setup'",
                    )


def shuffle_problems(job: Job) -> Iterator[Problem]:
    """Yield a problem for each shuffle of a source that is read from front to back."""
    for _, pipe in job.pipes():
        if pipe.reader.shuffle is None or pipe.reader.shuffle.buffer is not None:
            continue
        files = [str(d.file.path) for d in pipe.reader.data.leaves() if d.file is not None]
        formats = ((path, format_of(path)) for path in files)
        streamed = [path for path, found in formats if found is not None and found.streamed]
        if streamed:
            yield Problem(
                f"pipe {pipe.name!r}: {streamed[0]} is read from front to back, so a pass over it "
                "cannot be shuffled as a whole",
                pipe.mark("shuffle"),
                SHUFFLE_IN_BLOCKS,
            )


def _reads_one_of(job: Job, task: Task, name: str, changed: PathSet) -> bool:
    return any(
        changed.touches(key) for node in job.nodes_of(task) for key in resolve(job, node, name).keys
    )


def reader_names(pipe: Pipe) -> Iterator[tuple[str, str]]:
    """Yield the names that the reader of a pipe reads, each with its mark."""
    for column, name in pipe.reader.data.blob_names():
        yield f"from:{column}", name
    for step in pipe.reader.data.calls():
        for argument in step.inputs:
            yield f"in:{argument.name}", argument.name
    for field, value in pipe.reader.numbers.items():
        if isinstance(value, str):
            yield field, value


class _EveryWrite:
    """The writes of each group of a job, computed when a message needs them."""

    def __init__(self, analysis: JobAnalysis) -> None:
        self.job = analysis.job
        self._analysis = analysis

    @cached_property
    def _paths(self) -> dict[str, PathSet]:
        return {group: PathSet(self._analysis.writes_of(group)) for group in GROUPS}

    def group(self, key: Key) -> str | None:
        """Return the first group that writes a blob or a part of it."""
        return next((group for group in GROUPS if self._paths[group].touches(key)), None)


def _reads(
    writes: _EveryWrite,
    group: str,
    task: Task,
    found: Access,
    have: PathSet,
    sometimes: PathMap[object],
) -> Iterator[Problem]:
    job = writes.job
    for key in dict.fromkeys(found.reads):
        if not have.touches(key) and key not in found.begun:
            yield _missing(writes, group, task, key, have)
        every = next(sometimes.overlapping(key), None)
        if every is not None and every != task.every:
            yield Problem(
                f"{_shown(job, key)!r} is written every {every} epochs only, "
                f"but task {task.name!r} reads it in others too",
                read_mark(task, key),
                f"give the task 'every: {every}' too, or write the blob in 'init' first",
            )


def read_mark(task: Task, key: Key) -> Where | None:
    """Return the place in the spec where a task, or a step of a pipe, names a blob it is given."""
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
        for column, blob in task.reader.data.blob_names():
            if blob in names and f"from:{column}" in task.marks:
                return task.marks[f"from:{column}"]
        for field, value in task.reader.numbers.items():
            if value in names and field in task.marks:
                return task.marks[field]
    return task.where


def write_mark(task: Task, key: Key) -> Where | None:
    """Return the place in the spec where a task, or a step of a pipe, writes a blob."""
    for step in (*inner_steps(task), task):
        names = [*step.outputs.names, *(a.name for a in step.updates)]
        own = [n for n in names if n in (key[1], f"{key[0]}:{key[1]}")]
        for name in own or [n for n in names if n.rpartition(":")[2] == key[1]]:
            return step.mark(f"out:{name}", f"update:{name}", "out", "update")
    return task.where


def _missing(writes: _EveryWrite, group: str, task: Task, key: Key, have: PathSet) -> Problem:
    """Return the problem of a blob that is read but has no value at this place of the spec."""
    job = writes.job
    name = _shown(job, key)
    updates = any(a.name in (key[1], name) for s in inner_steps(task) for a in s.updates)
    verb = "updates" if updates else "reads"
    later = writes.group(key)
    if later is None:
        known = [*have.paths(key[0]), *job.node_vars(key[0])]
        if isinstance(task, Pipe):
            known += [*task.reader.data.columns, *(n for s in task.map for n in s.outputs.names)]
        text = f"task {task.name!r} {verb} {name!r}, which no task writes"
        meant = did_you_mean(key[1], [*known, *(() if updates else RESERVED)])
        hint = meant or did_you_mean_or_all(key[1], known)
        if not meant and not updates and "." in key[1]:
            hint = f"if {key[1]!r} is a value, not a blob, give it under 'with'"
        return Problem(text, read_mark(task, key), hint)
    if later == group:
        text = f"task {task.name!r} {verb} {name!r} before it is written"
        hint = "write its first value in 'init'" if group == "epoch" else "move the task down"
        meant = did_you_mean(key[1], have.paths(key[0]))
        return Problem(text, read_mark(task, key), f"{hint}; or {meant}" if meant else hint)
    text = f"task {task.name!r} of {group!r} {verb} {name!r}, which only {later!r} writes"
    return Problem(text, read_mark(task, key), f"{later!r} runs after {group!r}")


def _shown(job: Job, key: Key) -> str:
    return f"{key[0]}:{key[1]}" if job.multi_node else key[1]


def _protected(job: Job, task: Task, key: Key) -> Problem:
    """Return the problem of a write to a blob of ``setup``, in place or under its name."""
    named = (key[1], _shown(job, key))
    updates = any(a.name in named for s in inner_steps(task) for a in s.updates)
    name = _shown(job, key)
    if updates:
        return Problem(
            f"task {task.name!r} updates {name!r}, which belongs to 'setup': the change would be "
            "lost on a resume",
            read_mark(task, key),
            f"'setup' creates it again at every start; {KEEP_CHANGES}",
        )
    return Problem(
        f"task {task.name!r} writes {name!r}, which belongs to 'setup'",
        write_mark(task, key),
        "blobs of 'setup' are rebuilt at every start and no other group may write them",
    )


Writers = Mapping[Key, Sequence[tuple[Access, Key]]]
"""Writes of the copies of a task, by node and first level: only these can overlap."""


def _writers(copies: Iterable[tuple[str, Access]]) -> Writers:
    writers: dict[Key, list[tuple[Access, Key]]] = {}
    for _, found in copies:
        for key in found.writes:
            writers.setdefault(_first_level(key), []).append((found, key))
    return writers


def _first_level(key: Key) -> Key:
    return key[0], key[1].partition("/")[0]


def _twice_hint(task: Task, key: Key) -> str:
    """Return what to do about a blob that is under ``update`` and under ``out``."""
    updated = next((a.name for a in task.updates if a.name in task.outputs.names), None)
    if updated is None or updated.rpartition(":")[2] != key[1]:
        return ""
    return (
        f"under 'update' {updated!r} is changed in place: remove it from 'out', and from what the "
        "function returns"
    )


def _twice(job: Job, task: Task, writers: Writers, found: Access) -> Iterator[Problem]:
    """Yield a problem for each blob that two copies of a task, or two outputs of it, write."""
    near = {key: writers[_first_level(key)] for key in found.writes}
    for key in found.writes:
        if any(other is not found and same_leaves(key, k) for other, k in near[key]):
            yield Problem(
                f"the copies of task {task.name!r} all write {_shown(job, key)!r}",
                write_mark(task, key),
                "each copy needs a blob of its own",
            )
            return
    if isinstance(task, Pipe):
        return
    before: dict[Key, list[Key]] = {}
    for key in found.writes:
        earlier = before.setdefault(_first_level(key), [])
        if any(same_leaves(key, k) for k in earlier):
            yield Problem(
                f"task {task.name!r} writes {_shown(job, key)!r} twice",
                write_mark(task, key),
                _twice_hint(task, key),
            )
        earlier.append(key)
