"""What is to be run: jobs, groups, tasks and pipes as plain values, and the builder for Python.

A job has five groups, always run in this order: ``setup`` at every start, ``init`` once, ``epoch``
again and again, ``download`` and ``exit`` after the loop.  Its nodes are namespaces of blobs; a job
without nodes has one, ``main``.

::

    with Job("sum", seed=7) as job:
        with job.init:
            Task(make_total, out="total")
        with job.epoch:                      # also where a bare Task in the body lands
            Task(add_one, update="total")
        job.stop(epochs=3)

A YAML spec is turned into the same objects by ``jobrun.spec``.  Nothing here looks at values,
imports user code or runs anything; ``jobrun.graph`` checks a job as a whole.

The model of the classes is Caffe2's Job, TaskGroup, Task and Node contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from operator import index
from types import TracebackType
from typing import Any

from jobrun.errors import Problem, SpecError, Where, did_you_mean
from jobrun.options import Load, Retries
from jobrun.policy import DEFAULT_POLICY, CheckpointPolicy
from jobrun.rows import SHARD, CallSource, Data, FileSource, Number, Reader
from jobrun.shell import Shell
from jobrun.template import Template

__all__ = [
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
    "Task",
    "TaskGroup",
    "data",
]

GROUPS = ("setup", "init", "epoch", "download", "exit")
MAIN = "main"
RESERVED = ("epoch", "rng", "node", "best")
REDUCTIONS = ("mean", "last", "sum", "min", "max")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a task's function: ``parameter`` is None for a positional one.

    ``name`` is what it reads as written: ``x``, ``model/w1``, ``trainer_1:w``, ``trainer_*:w``,
    ``best:model``, or a reserved name.
    """

    parameter: str | None
    name: str


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where the returned value goes.

    ``form`` is ``none``; ``one``: the value goes to ``names[0]``; ``many``: a tuple, one name an
    element; ``keys``: a dict, of which ``keys[i]`` goes to ``names[i]``.
    """

    form: str
    names: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


def data(
    from_: Sequence[str] | Mapping[str, str | None] | None = None,
    *,
    file: str | Template | None = None,
    types: Mapping[str, str] | None = None,
    call: Callable[..., Any] | str | None = None,
    in_: str | Sequence[str] | Mapping[str, str | None] | None = None,
    with_: Mapping[str, Any] | None = None,
    zip: Sequence[Data] = (),
    concat: Sequence[Data] = (),
    where: Where | None = None,
    marks: Mapping[str, Where] | None = None,
) -> Data:
    """A source for ``zip`` and ``concat`` of a Pipe; the arguments are those of a Pipe."""
    columns = {a.parameter or a.name: a.name for a in arguments(from_)}
    made = Data(
        {} if file or call or zip or concat else columns,
        None if file is None else FileSource(file, columns, dict(types or {})),
        None if call is None else _call_source(call, in_, with_, columns, where, marks),
        tuple(zip),
        tuple(concat),
    )
    problem = _data_fault(made, columns, bool(types))
    if problem:
        place = (marks or {}).get("pipe", where)
        raise SpecError([Problem(problem, place)])
    return made


def _call_source(
    call: Callable[..., Any] | str,
    in_: str | Sequence[str] | Mapping[str, str | None] | None,
    with_: Mapping[str, Any] | None,
    columns: Mapping[str, str],
    where: Where | None,
    marks: Mapping[str, Where] | None,
) -> CallSource:
    step = Task(call, in_, with_, where=where, marks=marks)
    _leave(step)
    return CallSource(step, columns)


def _data_fault(made: Data, columns: Mapping[str, str], typed: bool) -> str:
    """What is wrong with a source as a whole."""
    if not made.forms:
        return "a pipe reads 'from' blobs, a 'file', a 'call', or a 'zip' or 'concat' of such"
    if len(made.forms) > 1:
        return f"a pipe reads one source, not both {made.forms[0]!r} and {made.forms[1]!r}"
    if made.call is not None and not columns:
        return "a 'call' needs 'from': the columns that its items have"
    if columns and (made.zip or made.concat):
        return f"'from' belongs to the sources under {made.forms[0]!r}"
    if typed and made.file is None:
        return "'types' is for a 'file'"
    return ""


class Task:
    """One call of a function in a group: what it reads, updates and puts out.

    ``fn`` is a callable, ``"module:function"``, or a ``Shell``: a program, for which ``in_`` and
    ``out`` are mappings ``{file: blob}``.  ``in_`` and ``update`` name blobs: a string or
    list for positional arguments (first ``in_``, then ``update``), a mapping ``{parameter: blob}``
    for keyword arguments (a None value: the blob of the same name).  ``with_`` holds literal
    keyword arguments.  ``out`` is a name, a list of names for a returned tuple, or a mapping
    ``{key in the returned dict: blob}``.  ``after`` names tasks of the same group.

    With ``retries`` (their number, or ``Retries``) a call that fails is made again, each time with
    ``update`` blobs as they were.  ``timeout`` is in seconds: a program is ended then; where it is
    a function, the run ends without it, since a thread cannot be killed.  ``fn`` may be a ``Load``
    too: blobs of another run, ``out`` being a mapping ``{name there: blob}``.

    Made inside ``with job.<group>:`` (or ``with job:``, then in ``epoch``) it joins that group, on
    the node of the innermost ``with Node(...)``.  Raises SpecError for what cannot be.
    """

    def __init__(
        self,
        fn: Callable[..., Any] | str | Shell | Load,
        in_: str | Sequence[str] | Mapping[str, str | None] | None = None,
        with_: Mapping[str, Any] | None = None,
        update: str | Sequence[str] | Mapping[str, str | None] | None = None,
        out: str | Sequence[str] | Mapping[str, str | None] | None = None,
        name: str | None = None,
        after: str | Sequence[str] = (),
        *,
        every: Number | Mapping[str, Number] | None = None,
        retries: int | Retries | None = None,
        timeout: float | None = None,
        node: str | None = None,
        where: Where | None = None,
        marks: Mapping[str, Where] | None = None,
    ) -> None:
        self.fn = fn
        self.retries = Retries(retries) if isinstance(retries, int) else retries
        self.timeout = timeout
        self.inputs = arguments(in_)
        self.literals: dict[str, Any] = dict(with_ or {})
        self.updates = arguments(update)
        self.outputs = outputs(out)
        self._describe(name, after, every, node, where, marks)
        self._check_arguments()
        self._check_options()
        if isinstance(fn, Shell):
            self._check_program(fn)
        elif isinstance(fn, Load) and (given := [*self.inputs, *self.updates, *self.literals]):
            self._refuse(f"a task that loads blobs is given nothing, not {given[0]!r}", "load")
        _join(self)

    def _describe(
        self,
        name: str | None,
        after: str | Sequence[str],
        every: Number | Mapping[str, Number] | None,
        node: str | None,
        where: Where | None,
        marks: Mapping[str, Where] | None,
    ) -> None:
        """What a task and a pipe have in common."""
        self.given_name = name
        self.name = name or self.default_name
        self.after = (after,) if isinstance(after, str) else tuple(after)
        self.every = every
        self.node = node if node is not None else _node.get()
        self.where = where
        self.marks: dict[str, Where] = dict(marks or {})

    @property
    def default_name(self) -> str:
        """The function's name, or the program's."""
        if isinstance(self.fn, Shell):
            return self.fn.name
        if isinstance(self.fn, Load):
            return "load"
        if isinstance(self.fn, str):
            return self.fn.rpartition(":")[2].rpartition(".")[2]
        return getattr(self.fn, "__name__", type(self.fn).__name__)

    @property
    def function_name(self) -> str:
        """``module:function``, for messages and for the digest of a job."""
        if isinstance(self.fn, str):
            return self.fn
        if isinstance(self.fn, Shell):
            return self.fn.command or "a script"
        if isinstance(self.fn, Load):
            return f"load of {self.fn.run}"
        module = getattr(self.fn, "__module__", None) or type(self.fn).__module__
        return f"{module}:{getattr(self.fn, '__qualname__', type(self.fn).__qualname__)}"

    def mark(self, *keys: str) -> Where | None:
        """The place in the spec of the first of ``keys`` that has one, else of the task."""
        return next((self.marks[k] for k in keys if k in self.marks), self.where)

    def _check_arguments(self) -> None:
        """Positional or by keyword, and no parameter twice."""
        given = [*self.inputs, *self.updates]
        forms = {a.parameter is None for a in given}
        if len(forms) > 1:
            self._refuse(
                "'in' and 'update' of one task are both positional or both by keyword",
                "update",
                "write both as mappings {parameter: blob}",
            )
        seen: set[str] = set(self.literals)
        for a in given:
            if a.parameter is not None and a.parameter in seen:
                self._refuse(f"parameter {a.parameter!r} is given twice", f"in:{a.name}")
            seen.add(a.parameter or "")

    def _check_options(self) -> None:
        """What ``retries`` and ``timeout`` can be."""
        fault = self.retries.fault() if self.retries is not None else None
        if fault:
            self._refuse(f"'retries': {fault}", "retries")
        if self.timeout is not None and not 0 < self.timeout < float("inf"):
            self._refuse(f"'timeout' is {self.timeout!r}, not a number of seconds", "timeout")
        if isinstance(self.fn, Load) and self.outputs.form != "keys":
            self._refuse("a task that loads blobs has a mapping {name there: blob} as 'out'", "out")

    def _check_program(self, shell: Shell) -> None:
        """A program is given files and leaves files."""
        for given, key in ((self.updates, "update"), (self.literals, "with")):
            if given:
                hint = "'in' and 'out' name the files: {file: blob}"
                self._refuse(f"a shell task has no {key!r}", key, hint)
        if any(a.parameter is None for a in self.inputs):
            self._refuse("'in' of a shell task is a mapping {file: blob}", "in")
        if self.outputs.form not in ("none", "keys"):
            self._refuse("'out' of a shell task is a mapping {file: blob}", "out")
        given_files = tuple(str(a.parameter) for a in self.inputs)
        for message, mark in shell.faults(given_files, self.outputs.keys):
            self._refuse(message, mark)

    def _refuse(self, message: str, key: str, hint: str = "") -> None:
        raise SpecError([Problem(f"task {self.name!r}: {message}", self.mark(key), hint)])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class Pipe(Task):
    """A task that reads batches: ``map`` steps see columns, ``do`` steps columns and blobs.

    ``from_`` maps columns to blobs (a list: columns of the same names), to the columns of ``file``
    (without ``from_``: all of them), or to the keys of the items that ``call`` gives, which is
    given ``in_`` and ``with_``.  ``zip`` and ``concat`` join sources made by ``data``.  ``shuffle``
    may be ``{"buffer": n}``.  ``map`` and ``do`` are lists of Tasks; they belong to the pipe alone.
    ``reduce`` says how a number that the ``do`` steps only put out is joined over the epoch:
    ``mean`` (weighted by rows, the default), ``last``, ``sum``, ``min`` or ``max``.
    """

    def __init__(
        self,
        from_: Sequence[str] | Mapping[str, str | None] | None = None,
        batch: Number = 1,
        *,
        file: str | Template | None = None,
        types: Mapping[str, str] | None = None,
        call: Callable[..., Any] | str | None = None,
        in_: str | Sequence[str] | Mapping[str, str | None] | None = None,
        with_: Mapping[str, Any] | None = None,
        zip: Sequence[Data] = (),
        concat: Sequence[Data] = (),
        shuffle: bool | Mapping[str, Number] = False,
        drop_last: bool = False,
        batches_per_epoch: Number | None = None,
        passes: Number | None = None,
        threads: Number = 1,
        shard: str | None = None,
        ahead: Number | None = None,
        map: Sequence[Task] = (),
        do: Sequence[Task] = (),
        reduce: Mapping[str, str] | None = None,
        name: str | None = None,
        after: str | Sequence[str] = (),
        every: Number | None = None,
        node: str | None = None,
        where: Where | None = None,
        marks: Mapping[str, Where] | None = None,
    ) -> None:
        self.fn = "pipe"
        self.retries, self.timeout = None, None
        self.reader = Reader(
            data(
                from_,
                file=file,
                types=types,
                call=call,
                in_=in_,
                with_=with_,
                zip=zip,
                concat=concat,
                where=where,
                marks=marks,
            ),
            batch,
            bool(shuffle),
            drop_last,
            batches_per_epoch,
            passes,
            threads,
            shuffle["buffer"] if isinstance(shuffle, Mapping) else None,
            shard,
            ahead,
        )
        self.map = tuple(map)
        self.do = tuple(do)
        self.reduce = dict(reduce or {})
        self.inputs, self.updates = (), ()
        self.literals = {}
        self.outputs = Outputs("none")
        self._describe(name, after, every, node, where, marks)
        for step in (*self.map, *self.do):
            _leave(step)
        if not self.do:
            self._refuse("a pipe without 'do' steps does nothing", "pipe")
        self._check_reduce()
        _join(self)

    def _check_reduce(self) -> None:
        """``reduce`` is of what the ``do`` steps put out, in one of a few ways."""
        put = [n for step in self.do for n in step.outputs.names]
        for name, way in self.reduce.items():
            if name not in put:
                hint = did_you_mean(name, put) or f"they put out {', '.join(put) or 'nothing'}"
                text = f"'reduce' names {name!r}, which no 'do' step puts out"
                self._refuse(text, f"reduce:{name}", hint)
            if way not in REDUCTIONS:
                hint = did_you_mean(way, REDUCTIONS) or f"there are {', '.join(REDUCTIONS)}"
                self._refuse(f"{name!r} cannot be reduced by {way!r}", f"reduce:{name}", hint)

    @property
    def default_name(self) -> str:
        """``pipe``; two pipes in one group are named ``pipe`` and ``pipe_2``."""
        return "pipe"


def arguments(given: str | Sequence[str] | Mapping[str, str | None] | None) -> tuple[Argument, ...]:
    """``in`` or ``update`` as arguments, in order."""
    if given is None:
        return ()
    if isinstance(given, str):
        return (Argument(None, given),)
    if isinstance(given, Mapping):
        return tuple(Argument(p, p if n is None else n) for p, n in given.items())
    return tuple(Argument(None, n) for n in given)


def outputs(given: str | Sequence[str] | Mapping[str, str | None] | None) -> Outputs:
    """``out`` as outputs."""
    if given is None:
        return Outputs("none")
    if isinstance(given, str):
        return Outputs("one", (given,))
    if isinstance(given, Mapping):
        names = tuple(k if n is None else n for k, n in given.items())
        return Outputs("keys", names, tuple(given))
    return Outputs("many", tuple(given))


@dataclass(frozen=True, slots=True)
class ConditionSpec:
    """One entry of ``stop`` or ``fail`` as written: ``ConditionSpec("stop", "epochs", 3)``.

    ``marks`` maps keys below the entry (``""`` for the entry itself) to places in the spec.
    """

    section: str
    kind: str
    value: Any
    marks: Mapping[str, Where] = field(default_factory=dict)


class TaskGroup:
    """The tasks of one phase of a job, in the order of the spec; a context for new tasks."""

    def __init__(self, name: str, job: Job) -> None:
        self.name = name
        self.tasks: list[Task] = []
        self._job = job
        self._tokens: list[Any] = []

    def __enter__(self) -> TaskGroup:
        self._tokens.append(_group.set(self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _group.reset(self._tokens.pop())

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def __repr__(self) -> str:
        return f"TaskGroup({self.name!r}, {self.tasks!r})"

    def named(self) -> None:
        """Give every task a name of its own: the second ``step`` becomes ``step_2``."""
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


class Node:
    """A context: tasks made inside run on this node; a glob makes a copy for each that matches."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._tokens: list[Any] = []

    def __enter__(self) -> Node:
        self._tokens.append(_node.set(self.name))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _node.reset(self._tokens.pop())


class Job:
    """A job: vars, groups of tasks, stop conditions, metrics and a checkpoint policy.

    ``nodes`` is a list of names, or a mapping of name to vars of that node.  ``metrics`` maps a
    scalar blob to ``"min"``, ``"max"`` or None, the direction that is better.  ``checkpoint`` is a
    policy, or None for a job that wants no checkpoints.
    """

    def __init__(
        self,
        name: str,
        *,
        seed: int = 0,
        vars: Mapping[str, Any] | None = None,
        nodes: Sequence[str] | Mapping[str, Mapping[str, Any] | None] | None = None,
        metrics: Mapping[str, str | None] | None = None,
        checkpoint: CheckpointPolicy | None = DEFAULT_POLICY,
    ) -> None:
        self.name = name
        self.seed = index(seed)
        self.vars: dict[str, Any] = dict(vars or {})
        self.multi_node = nodes is not None
        own = nodes if isinstance(nodes, Mapping) else dict.fromkeys(nodes or (MAIN,))
        self.nodes: dict[str, dict[str, Any]] = {n: dict(v or {}) for n, v in own.items()}
        self.metrics: dict[str, str | None] = dict(metrics or {})
        self.checkpoint = checkpoint
        self.groups: dict[str, TaskGroup] = {g: TaskGroup(g, self) for g in GROUPS}
        self.conditions: list[ConditionSpec] = []
        self.never_stops = False
        self.marks: dict[str, Where] = {}
        self._tokens: list[Any] = []

    # The groups by name, as in ``with job.epoch:``.

    @property
    def setup(self) -> TaskGroup:
        """Run at every start; its blobs are never checkpointed."""
        return self.groups["setup"]

    @property
    def init(self) -> TaskGroup:
        """Run once; what it writes persists."""
        return self.groups["init"]

    @property
    def epoch(self) -> TaskGroup:
        """Run again and again."""
        return self.groups["epoch"]

    @property
    def download(self) -> TaskGroup:
        """Run after the loop, before ``exit``: gathers what is scattered."""
        return self.groups["download"]

    @property
    def exit(self) -> TaskGroup:
        """Run at the end."""
        return self.groups["exit"]

    def __enter__(self) -> Job:
        self._tokens.append((_job.set(self), _group.set(self.epoch)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        job, group = self._tokens.pop()
        _group.reset(group)
        _job.reset(job)

    @staticmethod
    def current() -> Job:
        """The job of the innermost ``with job:``; LookupError outside of one."""
        job = _job.get()
        if job is None:
            raise LookupError("no job is being built: use 'with Job(...) as job:'")
        return job

    def stop(self, *, never: bool = False, **conditions: Any) -> None:
        """Add stop conditions, with the keys of the spec: ``epochs=3``, ``when="loss < 0.1"`` …

        ``never=True`` is for endless jobs.  ``jobrun.conditions`` checks them, once the job is
        whole.
        """
        self.never_stops = self.never_stops or never
        self.conditions += [ConditionSpec("stop", kind, v) for kind, v in conditions.items()]

    def fail(self, **conditions: Any) -> None:
        """Add conditions that end the run as a failure; they win over ``stop``."""
        self.conditions += [ConditionSpec("fail", kind, v) for kind, v in conditions.items()]

    def node_vars(self, node: str) -> dict[str, Any]:
        """The vars as ``node`` sees them."""
        return {**self.vars, **self.nodes[node]}

    def shared_vars(self) -> dict[str, Any]:
        """The vars that have one value on all nodes."""
        first, *others = (self.node_vars(n) for n in self.nodes)
        return {k: v for k, v in first.items() if all(k in o and _same(o[k], v) for o in others)}

    def nodes_of(self, task: Task) -> tuple[str, ...]:
        """The nodes a task runs on; raises SpecError if there is none."""
        if task.node is None:
            if not self.multi_node:
                return (MAIN,)
            raise SpecError(
                [Problem(f"task {task.name!r} names no node", task.where, "add 'node:'")]
            )
        found = match_nodes(task.node, self.nodes)
        if not found:
            hint = did_you_mean(task.node, list(self.nodes))
            hint = hint or f"there are {', '.join(self.nodes)}"
            raise SpecError([Problem(f"no node {task.node!r}", task.mark("node"), hint)])
        return found

    def pipes(self) -> Iterator[tuple[TaskGroup, Pipe]]:
        """Every pipe with its group."""
        for group in self.groups.values():
            for task in group.tasks:
                if isinstance(task, Pipe):
                    yield group, task

    def __repr__(self) -> str:
        return f"Job({self.name!r})"


def _same(a: Any, b: Any) -> bool:
    """Equal and of one type: 1, 1.0 and true are three values."""
    return type(a) is type(b) and repr(a) == repr(b)


def match_nodes(pattern: str, nodes: Mapping[str, Any] | Sequence[str]) -> tuple[str, ...]:
    """The nodes that a name or glob means, in the order of the job."""
    if pattern in nodes:
        return (pattern,)
    return tuple(n for n in nodes if fnmatchcase(n, pattern))


_job: ContextVar[Job | None] = ContextVar("jobrun_job", default=None)
_group: ContextVar[TaskGroup | None] = ContextVar("jobrun_group", default=None)
_node: ContextVar[str | None] = ContextVar("jobrun_node", default=None)


def _join(task: Task) -> None:
    group = _group.get()
    if group is not None:
        group.tasks.append(task)


def _leave(step: Task) -> None:
    group = _group.get()
    if group is not None:
        group.tasks[:] = [t for t in group.tasks if t is not step]
