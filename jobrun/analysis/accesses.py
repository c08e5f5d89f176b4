"""The blobs that each task of a job reads and writes, and the problems with its names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from jobrun.analysis.names import StepColumns, resolve
from jobrun.core.blob_paths import Key, PathSet
from jobrun.core.suggestions import did_you_mean, did_you_mean_or_all
from jobrun.errors import Problem
from jobrun.model.job import RESERVED, SHARD, Argument, Job, Pipe, Task

__all__ = ["Access", "Accesses", "Reduced", "access"]


@dataclass(frozen=True, slots=True)
class Reduced:
    """A blob of several nodes, reduced to one value: ``how``, and the blobs in node order."""

    how: str
    keys: tuple[Key, ...]


@dataclass(slots=True)
class Access:
    """The blobs that one task on one node reads and writes, in the order of the spec.

    ``begun`` are those of ``reads`` of which an earlier step of the same pipe writes a part.
    ``reduced`` are the reductions among the reads, whose blobs ``reads`` has too.
    """

    reads: list[Key] = field(default_factory=list)
    writes: list[Key] = field(default_factory=list)
    best: list[Key] = field(default_factory=list)
    begun: set[Key] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    reduced: list[Reduced] = field(default_factory=list)

    def read_whole(self) -> list[Key]:
        """Return the blobs that are read otherwise than by a reduction, or also otherwise."""
        counts = Counter(self.reads)
        counts.subtract(key for reduction in self.reduced for key in reduction.keys)
        return [key for key, count in counts.items() if count > 0]


def access(job: Job, task: Task, node: str) -> Access:
    """Return the accesses of ``task`` on ``node``, and the problems with its names."""
    found = Access()
    if isinstance(task, Pipe):
        _pipe_access(job, task, node, found)
    else:
        _step_access(job, task, node, found, None)
    return found


def _step_access(
    job: Job, step: Task, node: str, found: Access, columns: Collection[str] | None
) -> None:
    for argument in step.inputs:
        if argument.reduce is None:
            _read(job, step, node, argument.name, f"in:{argument.name}", found, columns)
        else:
            _read_reduced(job, step, node, argument, found)
    for argument in step.updates:
        for key in _write_keys(job, step, node, argument.name, "update", found, columns):
            found.reads.append(key)
            found.writes.append(key)
    for name in step.outputs.names:
        found.writes += _write_keys(job, step, node, name, "out", found, columns)


def _read(
    job: Job,
    task: Task,
    node: str,
    name: str,
    mark: str,
    found: Access,
    columns: Collection[str] | None,
) -> None:
    try:
        source = resolve(job, node, name, columns)
    except LookupError as error:
        found.problems.append(Problem(str(error), task.mark(mark)))
        return
    if source.form == "best":
        found.best.append((node, source.keys[0][1]))
    elif source.form in ("blob", "blobs"):
        found.reads += source.keys


def _read_reduced(job: Job, task: Task, node: str, argument: Argument, found: Access) -> None:
    """Record the reads of a blob of several nodes that is reduced."""
    name, mark = argument.name, f"in:{argument.name}"
    if ":" not in name:
        text = f"'of' names the blob of some nodes, got {name!r}"
        found.problems.append(Problem(text, task.mark(mark, "in"), f"of: '*:{name}'"))
        return
    before = len(found.reads)
    _read(job, task, node, name, mark, found, None)
    keys = tuple(found.reads[before:])
    if keys:
        found.reduced.append(Reduced(str(argument.reduce), keys))
    elif not found.problems:
        text = f"{name!r} is not a blob of nodes, so it cannot be reduced over them"
        found.problems.append(Problem(text, task.mark(mark, "in")))


def _write_keys(
    job: Job,
    task: Task,
    node: str,
    name: str,
    role: str,
    found: Access,
    columns: Collection[str] | None,
) -> tuple[Key, ...]:
    """Return the keys that ``name`` under ``update`` or ``out`` writes; none if it is invalid."""
    problem = ""
    try:
        source = resolve(job, node, name, columns)
    except LookupError as error:
        problem = str(error)
    else:
        if source.form in ("blob", "blobs") and not (role == "update" and source.form == "blobs"):
            return source.keys
        what = {
            "column": "a column of the pipe",
            "var": "a var",
            "blobs": "a list of blobs",
            "best": "a blob of the best checkpoint",
        }
        problem = f"{name!r} is {what.get(source.form, 'reserved')} and cannot be written here"
    found.problems.append(Problem(problem, task.mark(f"{role}:{name}", role)))
    return ()


def _pipe_access(job: Job, pipe: Pipe, node: str, found: Access) -> None:
    reader = pipe.reader
    for column, name in reader.data.blob_names():
        _read_source(job, pipe, node, name, ("blob",), f"from:{column}", found)
    for step in reader.data.calls():
        for argument in step.inputs:
            _read_for_call(job, step, node, argument.name, found)
    for key, value in reader.numbers.items():
        if isinstance(value, str):
            _read_source(job, pipe, node, value, ("blob", "var"), key, found)
    found.problems += _shard_problems(job, pipe, node)
    columns = _Columns(job, pipe, node)
    found.problems += columns.problems
    for step in pipe.map:
        _map_access(job, step, node, found, columns)
        columns.add(step.outputs.names)
    put = PathSet()
    for step in pipe.do:
        inside = Access()
        _step_access(job, step, node, inside, columns)
        # The copies are in lock step: what this one has written, the others have too.
        whole = {*inside.read_whole()}
        reads = [
            k
            for k in inside.reads
            if not (put.covers(k) or (k not in whole and put.covers((node, k[1]))))
        ]
        found.reads += reads
        found.begun |= {k for k in reads if put.touches(k)}
        found.writes += inside.writes
        found.best += inside.best
        found.problems += inside.problems
        found.reduced += inside.reduced
        found.problems += _lock_step_problems(job, pipe, step, inside)
        for written in inside.writes:
            put.add(written)


def _lock_step_problems(job: Job, pipe: Pipe, step: Task, inside: Access) -> Iterator[Problem]:
    """Yield the problems of a step that reduces over nodes in each batch."""
    copies = job.nodes_of(pipe) if inside.reduced else ()
    for reduction in inside.reduced:
        node = next((node for node, _ in reduction.keys if node not in copies), None)
        if node is not None:
            text = f"pipe {pipe.name!r} reduces a blob of node {node!r}, on which it has no copy"
            mark = next(f"in:{a.name}" for a in step.inputs if a.reduce is not None)
            yield Problem(text, step.mark(mark), "reduce it in a task of its own, before the pipe")


def _read_source(
    job: Job, pipe: Pipe, node: str, name: str, forms: Collection[str], mark: str, found: Access
) -> None:
    """Record the reads of a reader: one blob per column; one blob, or a var, per number."""
    before = len(found.problems)
    _read(job, pipe, node, name, mark, found, None)
    if len(found.problems) == before and resolve(job, node, name).form not in forms:
        wanted = "the blob of a column" if forms == ("blob",) else "a number"
        found.problems.append(Problem(f"{name!r} cannot be {wanted}", pipe.mark(mark, "from")))


def _shard_problems(job: Job, pipe: Pipe, node: str) -> Iterator[Problem]:
    """Yield the problems of ``shard``: ``node``, or ``i/n`` of numbers and vars."""
    text = pipe.reader.shard
    if text is None or text == "node":
        return
    match = SHARD.fullmatch(text)
    if match is None:
        yield Problem(f"'shard': expected 'node' or i/n, got {text!r}", pipe.mark("shard"))
        return
    own = job.node_vars(node)
    for part in match.groups():
        if not part.isdecimal() and part not in own:
            hint = did_you_mean(part, list(own))
            yield Problem(f"'shard' names {part!r}, which is not a var", pipe.mark("shard"), hint)


def _read_for_call(job: Job, step: Task, node: str, name: str, found: Access) -> None:
    """Record the reads of a function that returns a source: only what never changes."""
    before = len(found.problems)
    _read(job, step, node, name, f"in:{name}", found, None)
    if len(found.problems) > before:
        return
    form = resolve(job, node, name).form
    if form == "best":
        found.best.pop()
    if form not in ("blob", "blobs", "var", "node"):
        text = f"{name!r} cannot be read for a source: it differs at each call"
        found.problems.append(Problem(text, step.mark(f"in:{name}"), "use a var or a blob"))


def _map_access(job: Job, step: Task, node: str, found: Access, columns: _Columns) -> None:
    """Record the accesses of ``map`` steps, which see columns, vars and reserved names only."""
    for argument in step.updates:
        found.problems.append(
            Problem(
                "a 'map' step cannot update: it runs ahead of the blobs",
                step.mark(f"update:{argument.name}", "update"),
                "return the new column with 'out', or use a 'do' step",
            )
        )
    for argument in step.inputs:
        mark = step.mark(f"in:{argument.name}")
        try:
            source = resolve(job, node, argument.name, columns)
        except LookupError as error:
            found.problems.append(Problem(str(error), mark))
            continue
        if source.form in ("blob", "blobs", "best"):
            hint = did_you_mean_or_all(argument.name, list(columns.names), "columns here:")
            found.problems.append(
                Problem(
                    f"{argument.name!r} is not a column; 'map' steps see columns only", mark, hint
                )
            )


class _Columns(StepColumns):
    """The columns of a pipe; of a file whose columns are not named, every unknown name is one."""

    def __init__(self, job: Job, pipe: Pipe, node: str) -> None:
        data = pipe.reader.data
        super().__init__(data.columns)
        self.problems: list[Problem] = []
        own = job.node_vars(node)
        for name in self.names:
            if name in own or name in RESERVED:
                what = "a var" if name in own else "reserved"
                self.problems.append(
                    Problem(
                        f"{name!r} is a column of the pipe and {what} at once",
                        pipe.mark(f"from:{name}", "from", "pipe"),
                        "rename the column",
                    )
                )
        self._open = data.is_open
        self._known = {*own, *RESERVED, *_written_names(job)} if self._open else set()

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name):
            return True
        return self._open and ":" not in str(name) and str(name) not in self._known


def _written_names(job: Job) -> Iterator[str]:
    """Yield every name under ``out`` or ``update`` of the job, as written."""
    for group in job.groups.values():
        for task in group.tasks:
            for step in (task, *task.do) if isinstance(task, Pipe) else (task,):
                yield from step.outputs.names
                yield from (a.name for a in step.updates)


class Accesses:
    """The accesses of a complete job, computed once for each task and node.

    The job must not change from here on.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._found: dict[tuple[int, str], Access] = {}

    def access(self, task: Task, node: str) -> Access:
        """Return the accesses of a task, or of a step, on a node."""
        key = (id(task), node)
        if key not in self._found:
            self._found[key] = access(self.job, task, node)
        return self._found[key]

    def copies(self, task: Task) -> list[tuple[str, Access]]:
        """Return the accesses of a task on each of its nodes."""
        return [(node, self.access(task, node)) for node in self.job.nodes_of(task)]

    def units_of(self, group: str) -> Iterator[tuple[Task, list[tuple[str, Access]]]]:
        """Return the tasks of a group, each with its accesses on its nodes."""
        for task in self.job.groups[group].tasks:
            yield task, self.copies(task)

    def writes_of(self, group: str) -> Iterator[Key]:
        """Return every blob that a group writes, in the order of the spec."""
        for _, copies in self.units_of(group):
            for _, found in copies:
                yield from found.writes
