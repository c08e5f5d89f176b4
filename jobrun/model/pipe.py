"""Pipes: tasks that read batches and run steps on each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobrun.core.suggestions import did_you_mean_or_all
from jobrun.core.template import Template, TemplateError, templated
from jobrun.errors import Problem, SpecError, Where
from jobrun.model.options import Number
from jobrun.model.rows import (
    LIBRARIES,
    RESUMES,
    Batches,
    CallSource,
    ColumnNames,
    Data,
    FileOptions,
    FileSource,
    Reader,
    Shuffle,
    Workers,
)
from jobrun.model.task import Outputs, Task, arguments, current_tasks

__all__ = ["REDUCTIONS", "Pipe", "data"]

From = Sequence[str] | Mapping[str, str | Sequence[str] | None]
"""Names of columns, or a mapping of columns to names, or lists of names, elsewhere."""

REDUCTIONS = ("mean", "last", "sum", "min", "max")


def data(
    from_: From | None = None,
    *,
    file: str | Template | None = None,
    types: Mapping[str, str] | None = None,
    cell_limit: int | None = None,
    call: Callable[..., Any] | str | None = None,
    in_: str | Sequence[str] | Mapping[str, str | None] | None = None,
    with_: Mapping[str, Any] | None = None,
    resume: str | None = None,
    zip: Sequence[Data] = (),
    concat: Sequence[Data] = (),
    where: Where | None = None,
    marks: Mapping[str, Where] | None = None,
) -> Data:
    """Return a source for ``zip`` and ``concat`` of a Pipe; the arguments are those of a Pipe."""
    columns = _column_names(from_)
    options = FileOptions(dict(types or {}), cell_limit)
    made = Data(
        {} if file or call or zip or concat else _blobs(columns),
        None if file is None else FileSource(_path(file, where, marks), columns, options),
        None if call is None else _call_source(call, in_, with_, columns, where, marks),
        tuple(zip),
        tuple(concat),
    )
    problem = _data_fault(made, columns, options)
    if problem:
        place = (marks or {}).get("pipe", where)
        raise SpecError([Problem(problem, place)])
    if resume is not None:
        return _resumed(made, resume, (marks or {}).get("resume", where))
    return made


def _path(
    file: str | Template, where: Where | None, marks: Mapping[str, Where] | None
) -> str | Template:
    """Return the path, a template if it holds ``${``; raises SpecError."""
    try:
        path: str | Template = templated(file)
    except TemplateError as error:
        place = (marks or {}).get("file", where)
        raise SpecError([Problem(f"'file': {error.message}", place, error.hint)]) from None
    return path


def _column_names(given: From | None) -> dict[str, str | tuple[str, ...]]:
    """Return ``from`` as a mapping of columns to a name, or several, elsewhere."""
    if isinstance(given, Mapping):
        names = ((c, c if n is None else n) for c, n in given.items())
        return {c: n if isinstance(n, str) else tuple(n) for c, n in names}
    return {a.name: a.name for a in arguments(given)}


def _blobs(columns: ColumnNames) -> dict[str, str]:
    """Return the blobs of columns that are one each; ``_data_fault`` refuses the others."""
    return {c: name if isinstance(name, str) else name[0] for c, name in columns.items()}


def _resumed(made: Data, resume: str, where: Where | None) -> Data:
    """Return the source of a ``call`` with the way in which it resumes at a place."""
    if made.call is None:
        raise SpecError([Problem("'resume' is for a 'call'", where)])
    if resume not in RESUMES:
        hint = did_you_mean_or_all(resume, RESUMES)
        raise SpecError([Problem(f"a source cannot be resumed by {resume!r}", where, hint)])
    return replace(made, call=replace(made.call, resume=resume))


def _call_source(
    call: Callable[..., Any] | str,
    in_: str | Sequence[str] | Mapping[str, str | None] | None,
    with_: Mapping[str, Any] | None,
    columns: ColumnNames,
    where: Where | None,
    marks: Mapping[str, Where] | None,
) -> CallSource:
    step = Task(call, in_, with_, where=where, marks=marks)
    _leave(step)
    return CallSource(step, columns)


def _data_fault(made: Data, columns: ColumnNames, options: FileOptions) -> str:
    """Return an error message for a source as a whole, or an empty string."""
    if not made.forms:
        return "a pipe reads 'from' blobs, a 'file', a 'call', or a 'zip' or 'concat' of such"
    if len(made.forms) > 1:
        return f"a pipe reads one source, not both {made.forms[0]!r} and {made.forms[1]!r}"
    several = next((c for c, name in columns.items() if not isinstance(name, str)), None)
    if several is not None and made.blobs:
        return f"column {several!r} is one blob: a matrix is made of columns of a 'file' or 'call'"
    if made.call is not None and not columns:
        return "a 'call' needs 'from': the columns that its items have"
    if columns and (made.zip or made.concat):
        return f"'from' belongs to the sources under {made.forms[0]!r}"
    if options.given and made.file is None:
        return f"{options.given[0]!r} is for a 'file'"
    return ""


class Pipe(Task):
    """A task that reads batches: ``map`` steps see columns, ``do`` steps columns and blobs.

    ``from_`` maps columns to blobs (a list: columns of the same names), to the columns of ``file``
    (without ``from_``: all of them; a list of names makes a matrix), or to the keys of the items
    that ``call`` yields, which is given ``in_`` and ``with_``.  An iterable is read again up to the
    place where a run resumes; with ``resume="state"`` it goes there by its own
    ``load_state_dict``.  ``zip`` and ``concat`` join sources made by ``data``.  ``shuffle`` may be
    ``{"buffer": n}``.  ``map`` and ``do`` are lists of Tasks; they belong to the pipe alone.
    With ``processes``, the ``map`` steps run in that many worker processes, which find their
    functions by module and name.  ``rows`` names the column whose length is the number of rows that
    the ``map`` steps leave of a batch, if these do not return all columns that they filter.
    With ``as_="torch"`` the ``do`` steps are given the columns of numbers as tensors over the same
    memory, with ``as_="jax"`` as arrays of JAX; ``map`` steps see arrays of numpy.
    ``reduce`` is how a number that the ``do`` steps only return is reduced over the epoch:
    ``mean`` (weighted by rows, the default), ``last``, ``sum``, ``min`` or ``max``.
    """

    def __init__(
        self,
        from_: From | None = None,
        batch: Number = 1,
        *,
        file: str | Template | None = None,
        types: Mapping[str, str] | None = None,
        cell_limit: int | None = None,
        call: Callable[..., Any] | str | None = None,
        in_: str | Sequence[str] | Mapping[str, str | None] | None = None,
        with_: Mapping[str, Any] | None = None,
        resume: str | None = None,
        zip: Sequence[Data] = (),
        concat: Sequence[Data] = (),
        shuffle: bool | Mapping[str, Number] = False,
        drop_last: bool = False,
        batches_per_epoch: Number | None = None,
        passes: Number | None = None,
        threads: Number = 1,
        shard: str | None = None,
        ahead: Number | None = None,
        processes: Number | None = None,
        rows: str | None = None,
        as_: str | None = None,
        map: Sequence[Task] = (),
        do: Sequence[Task] = (),
        reduce: Mapping[str, str] | None = None,
        name: str | None = None,
        after: str | Sequence[str] = (),
        every: Number | None = None,
        thread: str | None = None,
        node: str | None = None,
        where: Where | None = None,
        marks: Mapping[str, Where] | None = None,
    ) -> None:
        self.fn = "pipe"
        self.retries, self.timeout, self.thread = None, None, thread
        self.reader = Reader(
            data(
                from_,
                file=file,
                types=types,
                cell_limit=cell_limit,
                call=call,
                in_=in_,
                with_=with_,
                resume=resume,
                zip=zip,
                concat=concat,
                where=where,
                marks=marks,
            ),
            Batches(batch, drop_last, batches_per_epoch, passes),
            _shuffle(shuffle),
            Workers(threads, ahead, processes),
            shard,
            rows,
            as_,
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
            if step.thread is not None:
                text = f"'thread' of step {step.name!r} belongs to the pipe, whose steps share one"
                self._refuse(text, "thread", "give it to the pipe itself")
        if not self.do:
            self._refuse("a pipe without 'do' steps does nothing", "pipe")
        self._check_reduce()
        self._check_processes()
        self._check_rows()
        self._check_library()
        self._check_thread()
        self._join()

    def _check_reduce(self) -> None:
        """Check that ``reduce`` maps outputs of the ``do`` steps to one of the reductions."""
        put = [n for step in self.do for n in step.outputs.names]
        for name, way in self.reduce.items():
            if name not in put:
                hint = did_you_mean_or_all(name, put, "they return") or "they return nothing"
                text = f"'reduce' names {name!r}, which no 'do' step returns"
                self._refuse(text, f"reduce:{name}", hint)
            if way not in REDUCTIONS:
                hint = did_you_mean_or_all(way, REDUCTIONS)
                self._refuse(f"{name!r} cannot be reduced by {way!r}", f"reduce:{name}", hint)

    def _check_processes(self) -> None:
        """Check that ``processes`` comes with ``map`` steps, and without ``threads``."""
        if self.reader.workers.processes is None:
            return
        if not self.map:
            hint = "move what needs columns alone from 'do' to 'map', or leave out 'processes'"
            self._refuse("'processes' runs 'map' steps, and there are none", "processes", hint)
        if self.reader.workers.threads != 1:
            text = "'map' steps run on 'threads' or in 'processes', not both"
            self._refuse(text, "processes", "leave out one of them")

    def _check_rows(self) -> None:
        """Check that ``rows`` is a column, and comes with ``map`` steps: only they drop rows."""
        rows = self.reader.rows
        if rows is None:
            return
        if not self.map:
            text = "'rows' says which rows the 'map' steps leave, and there are none"
            self._refuse(text, "rows", "leave it out")
        known = [*self.reader.data.columns, *(n for s in self.map for n in s.outputs.names)]
        found = any(f"{rows}/".startswith(f"{column}/") for column in known)
        if not found and not self.reader.data.is_open:
            hint = did_you_mean_or_all(rows, known)
            self._refuse(f"'rows' names {rows!r}, which is not a column", "rows", hint)

    def _check_library(self) -> None:
        """Check that ``as`` is a library whose arrays the steps can be given."""
        library = self.reader.library
        if library is not None and library not in LIBRARIES:
            hint = did_you_mean_or_all(library, LIBRARIES)
            self._refuse(f"the columns cannot be arrays of {library!r}", "as", hint)

    @property
    def default_name(self) -> str:
        """The name ``pipe``; two pipes in one group are named ``pipe`` and ``pipe_2``."""
        return "pipe"


def _shuffle(given: bool | Mapping[str, Number]) -> Shuffle | None:
    """Return ``shuffle`` as written (``true``, ``{buffer: n}``) as a value."""
    if isinstance(given, Mapping):
        return Shuffle(given["buffer"])
    return Shuffle() if given else None


def _leave(step: Task) -> None:
    """Remove a step from the group that is being built: it belongs to its pipe alone."""
    tasks = current_tasks.get()
    if tasks is not None:
        tasks[:] = [t for t in tasks if t is not step]
