"""Tasks: one call of a function or program, and the blobs it reads, updates and writes.

Plain values.  A task that is made inside ``with job.<group>:`` joins that group, on the node of the
innermost ``with Node(...)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

from jobrun.core.template import TemplateError, templated
from jobrun.errors import Problem, SpecError, Where
from jobrun.model.options import Load, Number, Retries
from jobrun.model.shell import Shell

__all__ = [
    "NODE_REDUCTIONS",
    "Argument",
    "Named",
    "Outputs",
    "Task",
    "arguments",
    "callable_name",
    "current_node",
    "current_tasks",
    "outputs",
]

current_tasks: ContextVar[list[Task] | None] = ContextVar("jobrun_tasks", default=None)
"""The tasks of the group that is being built: a new one is added to them."""

current_node: ContextVar[str | None] = ContextVar("jobrun_node", default=None)
"""The node, or glob of nodes, of the tasks that are being made."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a task's function: ``parameter`` is None for a positional one.

    ``name`` is the blob as written: ``x``, ``model/w1``, ``trainer_1:w``, ``trainer_*:w``,
    ``best:model``, or a reserved name.  ``reduce`` is how the blobs of a pattern become one value:
    one of ``NODE_REDUCTIONS``, or None.
    """

    parameter: str | None
    name: str
    reduce: str | None = None


NODE_REDUCTIONS = ("mean", "sum", "min", "max")
"""Ways to reduce a blob of several nodes to one value."""

Named = str | Mapping[str, str] | None
"""A name, ``{reduce: mean, of: name}``, or None for a parameter of the same name."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """The destination of the returned value.

    ``form`` is ``none``; ``one``: the value goes to ``names[0]``; ``many``: a tuple, one name an
    element; ``keys``: a dict, of which ``keys[i]`` goes to ``names[i]``.
    """

    form: str
    names: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


def callable_name(function: Callable[..., Any]) -> str:
    """Return ``module:function``, of a partial that of its function, of an object its class's."""
    while isinstance(function, partial):
        function = function.func
    kind = type(function)
    module = getattr(function, "__module__", None) or kind.__module__
    return f"{module}:{getattr(function, '__qualname__', kind.__qualname__)}"


class Task:
    """One call of a function in a group, and the blobs it reads, updates and writes.

    ``fn`` is a callable, ``"module:function"``, or a ``Shell``: a program, for which ``in_`` and
    ``out`` are mappings ``{file: blob}``.  ``in_`` and ``update`` name blobs: a string or
    list for positional arguments (first ``in_``, then ``update``), a mapping ``{parameter: blob}``
    for keyword arguments (a None value: the blob of the same name); ``{"reduce": "mean", "of":
    "trainer_*:g"}`` instead of a name is one value of all nodes.  ``with_`` holds literal
    keyword arguments; in their strings ``${run.dir}`` and others are replaced, as in a spec.
    ``out`` is a name, a list of names for a returned tuple, or a mapping
    ``{key in the returned dict: blob}``.  ``after`` names tasks of the same group; ``every=5``
    runs the task every fifth epoch only.

    With ``retries`` (their number, or ``Retries``) a call that fails is repeated, each time with
    ``update`` blobs as they were.  ``timeout`` is in seconds: a program is ended then; if it is
    a function, the run ends without it, since a thread cannot be killed.  ``fn`` may be a ``Load``
    too: blobs of another run or of a file, ``out`` being a mapping ``{name there: blob}``.

    ``thread="same"`` is for values bound to the thread that made them, such as a SQLite
    connection: the task, and all tasks that read its output, run on one thread.

    Made inside ``with job.<group>:`` (or ``with job:``, then in ``epoch``) it joins that group, on
    the node of the innermost ``with Node(...)``.  Raises SpecError for invalid arguments.
    """

    def __init__(
        self,
        fn: Callable[..., Any] | str | Shell | Load,
        in_: str | Sequence[str | Mapping[str, str]] | Mapping[str, Named] | None = None,
        with_: Mapping[str, Any] | None = None,
        update: str | Sequence[str] | Mapping[str, str | None] | None = None,
        out: str | Sequence[str] | Mapping[str, str | None] | None = None,
        name: str | None = None,
        after: str | Sequence[str] = (),
        *,
        every: Number | Mapping[str, Number] | None = None,
        retries: int | Retries | None = None,
        timeout: float | None = None,
        thread: str | None = None,
        node: str | None = None,
        where: Where | None = None,
        marks: Mapping[str, Where] | None = None,
    ) -> None:
        self.fn = fn
        self.retries = Retries(retries) if isinstance(retries, int) else retries
        self.timeout = timeout
        self.thread = thread
        self.inputs = arguments(in_)
        self.updates = arguments(update)
        self.outputs = outputs(out)
        self._describe(name, after, every, node, where, marks)
        self.literals: dict[str, Any] = self._templated(dict(with_ or {}), "with")
        if isinstance(fn, Load):
            self.fn = self._with_templates(fn)
        self._check_arguments()
        self._check_options()
        if isinstance(fn, Shell):
            self._check_program(fn)
        elif isinstance(fn, Load):
            self._check_load(fn)
        self._join()

    def _describe(
        self,
        name: str | None,
        after: str | Sequence[str],
        every: Number | Mapping[str, Number] | None,
        node: str | None,
        where: Where | None,
        marks: Mapping[str, Where] | None,
    ) -> None:
        """Set the attributes that a task and a pipe have in common."""
        self.given_name = name
        self.name = name or self.default_name
        self.after = (after,) if isinstance(after, str) else tuple(after)
        self.every = every
        self.node = node if node is not None else current_node.get()
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
        """The name ``module:function``, for messages and for the digest of a job."""
        if isinstance(self.fn, str):
            return self.fn
        if isinstance(self.fn, Shell):
            return self.fn.command or "a script"
        if isinstance(self.fn, Load):
            return f"load of {self.fn.run if self.fn.file is None else self.fn.file}"
        return callable_name(self.fn)

    def mark(self, *keys: str) -> Where | None:
        """Return the place in the spec of the first of ``keys`` that has one, else of the task."""
        return next((self.marks[k] for k in keys if k in self.marks), self.where)

    def _templated(self, value: Any, key: str) -> Any:
        """Return a value with its strings that hold ``${`` as templates."""
        try:
            return templated(value)
        except TemplateError as error:
            self._refuse(f"{key!r}: {error.message}", key, error.hint)

    def _with_templates(self, load: Load) -> Load:
        run, file = (self._templated(path, "load") for path in (load.run, load.file))
        return replace(load, run=run, file=file)

    def _check_arguments(self) -> None:
        """Check that arguments are positional or by keyword, and no parameter is given twice."""
        given = [*self.inputs, *self.updates]
        forms = {a.parameter is None for a in given}
        if len(forms) > 1:
            in_by_position = any(a.parameter is None for a in self.inputs)
            key, listed = ("in", self.inputs) if in_by_position else ("update", self.updates)
            names = ", ".join(a.name for a in listed)
            self._refuse(
                "'in' and 'update' of one task are both positional or both by keyword",
                "update",
                f"write {key}: {{{names}}}, or {{parameter: blob}} where the names differ",
            )
        seen: set[str] = set(self.literals)
        for a in given:
            if a.parameter is not None and a.parameter in seen:
                self._refuse(f"parameter {a.parameter!r} is given twice", f"in:{a.name}")
            seen.add(a.parameter or "")

    def _check_options(self) -> None:
        """Check the values of ``retries``, ``timeout`` and ``thread``."""
        if not isinstance(self.retries, Retries | None):
            self._refuse(
                f"'retries' is {self.retries!r}, not a number",
                "retries",
                "write retries=3, or retries=Retries(3, delay=1.0, backoff=2.0)",
            )
        fault = self.retries.fault() if self.retries is not None else None
        if fault:
            self._refuse(f"'retries': {fault}", "retries")
        timeout = self.timeout
        if timeout is not None and not (
            isinstance(timeout, int | float) and 0 < timeout < float("inf")
        ):
            self._refuse(f"'timeout' is {self.timeout!r}, not a number of seconds", "timeout")
        self._check_thread()
        if isinstance(self.fn, Load) and self.outputs.form != "keys":
            self._refuse("a task that loads blobs has a mapping {name there: blob} as 'out'", "out")

    def _check_load(self, load: Load) -> None:
        """Check that a load is given nothing, and names what there may be in a file."""
        if given := [*self.inputs, *self.updates, *self.literals]:
            self._refuse(f"a task that loads blobs is given nothing, not {given[0]!r}", "load")
        if fault := load.fault():
            self._refuse(f"'load': {fault}", "load")
        for name in self.outputs.keys if load.file is not None else ():
            if name.count("*") > 1:
                self._refuse(f"{name!r} has more than one '*'", "load", "write one: encoder.*")

    def _check_thread(self) -> None:
        if self.thread is None:
            return
        if self.thread != "same":
            self._refuse(f"'thread' is {self.thread!r}, which can only be 'same'", "thread")
        if isinstance(self.fn, Shell | Load):
            what = "program" if isinstance(self.fn, Shell) else "load"
            self._refuse(f"'thread' is for functions, not for a {what}", "thread")

    def _check_program(self, shell: Shell) -> None:
        """Check that a program has files for inputs and outputs."""
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

    def _join(self) -> None:
        tasks = current_tasks.get()
        if tasks is not None:
            tasks.append(self)

    def _refuse(self, message: str, key: str, hint: str = "") -> NoReturn:
        raise SpecError([Problem(f"task {self.name!r}: {message}", self.mark(key), hint)])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def arguments(
    given: str | Sequence[str | Mapping[str, str]] | Mapping[str, Named] | None,
) -> tuple[Argument, ...]:
    """Return ``in`` or ``update`` as arguments, in order."""
    if given is None:
        return ()
    if isinstance(given, str):
        return (Argument(None, given),)
    if isinstance(given, Mapping):
        return tuple(_argument(p, p if n is None else n) for p, n in given.items())
    return tuple(_argument(None, n) for n in given)


def _argument(parameter: str | None, given: str | Mapping[str, str]) -> Argument:
    if isinstance(given, str):
        return Argument(parameter, given)
    if set(given) != {"reduce", "of"} or given["reduce"] not in NODE_REDUCTIONS:
        text = f"expected a name or {{reduce: mean, of: 'node_*:blob'}}, got {given!r}"
        raise SpecError([Problem(text, None, f"reduce is {', '.join(NODE_REDUCTIONS)}")])
    return Argument(parameter, given["of"], given["reduce"])


def outputs(given: str | Sequence[str] | Mapping[str, str | None] | None) -> Outputs:
    """Return ``out`` as outputs."""
    if given is None:
        return Outputs("none")
    if isinstance(given, str):
        return Outputs("one", (given,))
    if isinstance(given, Mapping):
        names = tuple(k if n is None else n for k, n in given.items())
        return Outputs("keys", names, tuple(given))
    return Outputs("many", tuple(given))
