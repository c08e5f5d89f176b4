"""What can be wrong with a job as a whole, found before anything runs.

``check`` gives all problems at once: names that mean nothing or two things, blobs read before they
are written, protected blobs of ``setup``, may-writes, cycles, metrics of blobs that nobody writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from jobrun.access import Access, Key, access, covers, overlaps, resolve
from jobrun.errors import Problem, SpecError, Where, did_you_mean
from jobrun.every import every_problems
from jobrun.graph import make_plan, reads_across
from jobrun.job import GROUPS, RESERVED, Job, Pipe, Task
from jobrun.names import check_name

__all__ = ["best_metric", "check", "metric_names", "written"]

# What each group may read, beside what its own earlier tasks wrote.
_BEFORE = {
    "setup": (),
    "init": ("setup",),
    "epoch": ("setup", "init"),
    "download": ("setup", "init", "epoch"),
    "exit": ("setup", "init", "epoch", "download"),
}


def check(job: Job) -> list[Problem]:
    """Every problem of ``job`` that can be seen without running or importing anything."""
    problems: list[Problem] = []
    for name in GROUPS:
        job.groups[name].named()
    steps: tuple[Callable[[Job], Iterable[Problem]], ...] = (
        _check_names,
        _check_nodes,
        _check_task_names,
    )
    for step in steps:
        problems += step(job)
    if problems:
        return list(dict.fromkeys(problems))
    for step in (
        every_problems,
        _check_flow,
        _check_meanings,
        _check_best,
        _check_metrics,
        _check_cycles,
    ):
        problems += step(job)
    return list(dict.fromkeys(problems))


def written(job: Job) -> set[str]:
    """Every blob name that a task writes, with ``node:`` in front if there are several nodes.

    Includes the bare names too, which a metric may use for the blob of each node.
    """
    names: set[str] = set()
    for group in GROUPS:
        for node, path in _writes(job, group):
            names.add(path)
            if job.multi_node:
                names.add(f"{node}:{path}")
    return names


def metric_names(job: Job) -> dict[str, str | None]:
    """The metrics by the name of their column, with their direction.

    With several nodes, a metric without a node stands for one column per node that writes it.
    """
    found: dict[str, str | None] = {}
    known = written(job) if job.multi_node and job.metrics else set()
    for name, direction in job.metrics.items():
        if job.multi_node and ":" not in name:
            nodes = [n for n in job.nodes if f"{n}:{name}" in known]
            found.update({f"{n}:{name}": direction for n in nodes})
        else:
            found[name] = direction
    return found


def best_metric(job: Job) -> tuple[str, str] | None:
    """The metric, and its direction, by which a checkpoint is the best one.

    The one of ``checkpoint.keep.best``, else the only metric that has a direction.
    """
    directed = {n: d for n, d in metric_names(job).items() if d is not None}
    keep = job.checkpoint.keep.best if job.checkpoint else None
    if keep is not None:
        return (keep.metric, directed[keep.metric]) if keep.metric in directed else None
    return next(iter(directed.items())) if len(directed) == 1 else None


def _units(job: Job, group: str) -> Iterator[tuple[Task, list[tuple[str, Access]]]]:
    """The tasks of a group, each with its accesses on its nodes."""
    for task in job.groups[group].tasks:
        yield task, [(node, access(job, task, node)) for node in job.nodes_of(task)]


def _writes(job: Job, group: str) -> Iterator[Key]:
    for _, copies in _units(job, group):
        for _, found in copies:
            yield from found.writes


def _check_names(job: Job) -> Iterator[Problem]:
    """Names of vars, outputs and nodes."""
    for name in job.nodes:
        bad = check_name(name)
        if bad or "/" in name or name == "best":
            text = f"{name!r} cannot name a node: letters, digits, '_', '.', '-'"
            yield Problem("'best' cannot name a node" if name == "best" else text, _mark(job, name))
    for own in ({}, *job.nodes.values()):
        for name in (*job.vars, *own):
            if name in RESERVED:
                yield Problem(f"{name!r} is reserved and cannot name a var", _mark(job, name))
    for _, step in _steps(job):
        for name in step.outputs.names:
            problem = check_name(name.rpartition(":")[2])
            if problem and name.rpartition(":")[2] not in RESERVED:
                yield Problem(problem, step.mark(f"out:{name}", "out"))


def _mark(job: Job, name: str) -> Where | None:
    return job.marks.get(f"vars:{name}") or job.marks.get(f"nodes:{name}")


def _steps(job: Job) -> Iterator[tuple[str, Task]]:
    """Every function call of the job, with its group."""
    for group in GROUPS:
        for task in job.groups[group].tasks:
            yield from ((group, s) for s in inner_steps(task))


def inner_steps(task: Task) -> Sequence[Task]:
    """The calls of a task: itself, or the steps of a pipe."""
    return (*task.map, *task.do) if isinstance(task, Pipe) else (task,)


def _check_nodes(job: Job) -> Iterator[Problem]:
    for group in GROUPS:
        for task in job.groups[group].tasks:
            try:
                job.nodes_of(task)
            except SpecError as error:
                yield from error.problems


def _check_task_names(job: Job) -> Iterator[Problem]:
    """Given names are unique; two tasks with one default name and ``rng`` must be named."""
    for group in GROUPS:
        tasks = job.groups[group].tasks
        yield from _same_names(tasks, f"group {group!r}")
        yield from _same_rng(tasks)
        for task in tasks:
            if isinstance(task, Pipe):
                yield from _same_names((*task.map, *task.do), f"pipe {task.name!r}")
                yield from _same_rng((*task.map, *task.do))


def _same_names(tasks: Sequence[Task], place: str) -> Iterator[Problem]:
    seen: set[str] = set()
    for task in tasks:
        if task.given_name is None:
            continue
        if task.given_name in seen:
            yield Problem(f"{place} has two tasks named {task.given_name!r}", task.mark("name"))
        seen.add(task.given_name)


def _same_rng(tasks: Sequence[Task]) -> Iterator[Problem]:
    seen: set[str] = set()
    for task in tasks:
        if task.given_name or not any(a.name == "rng" for a in task.inputs):
            continue
        if task.default_name in seen:
            yield Problem(
                f"two tasks draw random numbers under one name, {task.default_name!r}",
                task.where,
                "give each a 'name:', so that their numbers differ and stay the same",
            )
        seen.add(task.default_name)


def _check_flow(job: Job) -> Iterator[Problem]:
    """From top to bottom: is every blob written before it is read, and by who may?"""
    made: dict[str, list[Key]] = {}
    setup: _Paths | None = None
    for group in GROUPS:
        have = _Paths(k for g in _BEFORE[group] for k in made[g])
        made[group] = []
        sometimes: dict[Key, object] = {}
        for task, copies in _units(job, group):
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
    for field in ("batch", "batches_per_epoch", "passes", "threads"):
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
        for field in ("batch", "batches_per_epoch", "passes", "threads"):
            if getattr(task.reader, field) in names and field in task.marks:
                return task.marks[field]
    return task.where


def _missing(job: Job, group: str, task: Task, key: Key, have: _Paths) -> Problem:
    """A blob is read that has no value at this place of the spec."""
    name = _shown(job, key)
    updates = any(a.name in (key[1], name) for s in inner_steps(task) for a in s.updates)
    verb = "updates" if updates else "reads"
    later = next(
        (g for g in GROUPS for k in _writes(job, g) if k[0] == key[0] and overlaps(k[1], key[1])),
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


def _check_meanings(job: Job) -> Iterator[Problem]:
    """Two meanings of one name in one place."""
    bare = {n.rpartition(":")[2] for n in written(job)}
    all_vars = {*job.vars, *(v for own in job.nodes.values() for v in own)}
    for group in GROUPS:
        for task in job.groups[group].tasks:
            for step in inner_steps(task):
                for name in step.outputs.names:
                    if name in all_vars:
                        yield Problem(
                            f"{name!r} is a blob and a var at once",
                            step.mark(f"out:{name}", "out"),
                            "rename one of them",
                        )
            if isinstance(task, Pipe):
                yield from _column_meanings(task, bare)
    folded: dict[str, str] = {}
    for name in sorted(bare):
        other = folded.setdefault(name.casefold(), name)
        if other != name:
            yield Problem(
                f"blobs {other!r} and {name!r} differ in case only",
                None,
                "some file systems would keep one of them: rename one",
            )


def _column_meanings(pipe: Pipe, blobs: set[str]) -> Iterator[Problem]:
    columns = dict(pipe.reader.blobs)
    if pipe.reader.file is not None:
        columns = dict.fromkeys(pipe.reader.file.columns, "")
    columns.update({n: "" for s in pipe.map for n in s.outputs.names if n not in columns})
    for column, source in columns.items():
        if column in blobs and source.rpartition(":")[2] != column:
            yield Problem(
                f"{column!r} is a column of pipe {pipe.name!r} and a blob at once",
                pipe.mark(f"from:{column}", "from", "pipe"),
                "rename the column",
            )


def _check_best(job: Job) -> Iterator[Problem]:
    """``best:`` needs a metric to be best by, a checkpoint, and a blob that persists."""
    for group in GROUPS:
        for task, copies in _units(job, group):
            for _, found in copies:
                for node, path in found.best:
                    mark = task.mark(f"in:best:{path}")
                    if group not in ("download", "exit"):
                        yield Problem(
                            f"'best:{path}' can be read in 'download' and 'exit' only", mark
                        )
                    elif job.checkpoint is None:
                        yield Problem(f"'best:{path}' needs checkpoints", mark)
                    elif best_metric(job) is None:
                        yield Problem(
                            f"'best:{path}': best by which metric?",
                            mark,
                            "name it under checkpoint.keep.best, with a direction in 'metrics'",
                        )
                    elif not any(
                        k[0] == node and overlaps(k[1], path)
                        for g in ("init", "epoch")
                        for k in _writes(job, g)
                    ):
                        known = [p for n, p in _writes(job, "init") if n == node]
                        text = f"'best:{path}': no checkpoint holds a blob {path!r}"
                        yield Problem(text, mark, did_you_mean(path, known))


def _check_metrics(job: Job) -> Iterator[Problem]:
    known = written(job)
    for name in job.metrics:
        if name not in known and not any(covers(k, name) for k in known):
            yield Problem(
                f"metric {name!r} is no blob of this job",
                job.marks.get(f"metrics:{name}"),
                did_you_mean(name, sorted(known)),
            )
    best = job.checkpoint.keep.best if job.checkpoint else None
    if best is not None and metric_names(job).get(best.metric) is None:
        directed = [n for n, d in metric_names(job).items() if d]
        yield Problem(
            f"checkpoint.keep.best: {best.metric!r} is no metric with a direction",
            job.marks.get("checkpoint.keep.best"),
            did_you_mean(best.metric, directed)
            or f"add '{best.metric}: min' (or max) to 'metrics'",
        )


def _check_cycles(job: Job) -> Iterator[Problem]:
    for group in GROUPS:
        try:
            make_plan(job, job.groups[group])
        except SpecError as error:
            yield from error.problems
