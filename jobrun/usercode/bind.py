"""Binding: from ``"module:function"`` to a callable, with an error for each way to fail.

Modules whose files have changed since they were imported are imported again when a job is bound.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from jobrun.errors import BindError, Problem, Where, by_place
from jobrun.model.job import GROUPS, Job, Pipe, Task
from jobrun.model.options import Load
from jobrun.model.shell import Shell
from jobrun.usercode.imported import forget_changed
from jobrun.usercode.modules import activate, attribute_of, importing, load_module
from jobrun.usercode.reference import nameless
from jobrun.usercode.requirements import state_needs, task_needs, upload_needs
from jobrun.usercode.returning import check_return
from jobrun.usercode.signature import check_call, order_warning
from jobrun.usercode.traces import user_trace
from jobrun.values.adapters.base import LiveAdapter

__all__ = ["bind", "bind_adapter", "bind_job", "bind_object", "code_problems", "order_warnings"]

Function = Callable[..., Any]


def bind(
    fn: str | Function, folder: str | os.PathLike[str] | None = None, where: Where | None = None
) -> Function:
    """Return the callable named by ``module:function`` (or ``fn`` itself if it is a callable).

    ``folder`` comes first on ``sys.path``; without one the path is unchanged.
    Raises BindError, with a message for each case: no such module, a module that fails on import
    (with the user's own lines), a syntax error, no such attribute, an attribute that is not
    callable, a name taken by another module.
    """
    if not isinstance(fn, str):
        if not callable(fn):
            raise BindError(f"{fn!r} cannot be called", where=where)
        return fn
    value = bind_object(fn, folder, where)
    if not callable(value):
        kind = "a module" if isinstance(value, ModuleType) else f"of type {type(value).__name__}"
        raise BindError(f"{fn} is {kind} and cannot be called", where=where)
    found: Function = value
    return found


def bind_object(
    name: str, folder: str | os.PathLike[str] | None = None, where: Where | None = None
) -> Any:
    """Return the object named by ``module:name``, found as ``bind`` finds a function."""
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        hint = "a function is named module:function"
        raise BindError(f"{name!r} names no function", where=where, hint=hint)
    root = None if folder is None else os.path.abspath(folder)
    with importing:
        if root is not None:
            activate(root)
        return attribute_of(load_module(module_name, root, where), path, where)


def bind_adapter(
    given: Any, folder: str | os.PathLike[str] | None = None, where: Where | None = None
) -> LiveAdapter:
    """Return the adapter of a live object that ``state`` names: ``module:Class``, or an object.

    A class is called without arguments.  Raises BindError for any other object.
    """
    found = bind_object(given, folder, where) if isinstance(given, str) else given
    if isinstance(found, type):
        try:
            found = found()
        except Exception as error:
            text = f"{given} cannot be created without arguments: {type(error).__name__}: {error}"
            raise BindError(text, where=where, trace=user_trace(error)) from error
    if not isinstance(found, LiveAdapter):
        raise BindError(
            f"{given} is not an adapter of live objects",
            where=where,
            hint="it has name, version, state(obj), restore(obj, state) and copy(obj)",
        )
    return found


def bind_job(
    job: Job,
    folder: str | os.PathLike[str] | None = None,
    spec_dir: str | os.PathLike[str] | None = None,
) -> dict[str, Function]:
    """Return every function that a job names, by ``module:function``, with all calls checked.

    ``folder`` is that of the code, ``spec_dir`` that of the spec, if it is another one.  Other
    requirements are checked too (``usercode.requirements``).  Raises one BindError with all
    problems.
    """
    found = _bind_all(job, folder, spec_dir)
    if found.errors or found.problems:
        raise _joined(found.errors, found.problems)
    return found.functions


def code_problems(
    job: Job, folder: str | os.PathLike[str], spec_dir: str | os.PathLike[str]
) -> tuple[list[Problem], list[Problem], str]:
    """Return what is wrong with the code that a job names, in which there may be other errors.

    Returns the problems of finding and importing functions, those of the calls, and the user's own
    lines where an import failed.
    """
    found = _bind_all(job, folder, spec_dir)
    return _as_problems(found.errors), found.problems, _traces(found.errors)


@dataclass(frozen=True, slots=True)
class _Found:
    """The functions of a job, and what is wrong with them."""

    functions: dict[str, Function]
    errors: list[BindError]
    problems: list[Problem]


def _bind_all(
    job: Job, folder: str | os.PathLike[str] | None, spec_dir: str | os.PathLike[str] | None
) -> _Found:
    """Return every function that a job names, and everything that is wrong."""
    with importing:
        if folder is not None:
            forget_changed(os.path.abspath(folder))
        return _bind_each(job, folder, spec_dir)


def _bind_each(
    job: Job, folder: str | os.PathLike[str] | None, spec_dir: str | os.PathLike[str] | None
) -> _Found:
    spec_dir = spec_dir if spec_dir is not None else folder
    bound: dict[str, Function | BindError] = {}
    errors: dict[str, BindError] = {}
    problems: list[Problem] = []
    sources = {id(s) for _, pipe in job.pipes() for s in pipe.reader.data.calls()}
    for step in _calls(job):
        fn = step.fn
        problems += task_needs(step, spec_dir)
        if isinstance(fn, Shell | Load):
            continue
        if isinstance(fn, str) and fn not in bound:
            try:
                bound[fn] = bind(fn, folder, step.mark("call"))
            except BindError as error:
                bound[fn] = errors.setdefault(error.message, error)
        function = bound[fn] if isinstance(fn, str) else fn
        if not isinstance(function, BindError):
            problems += check_call(step, function)
            problems += check_return(step, function, is_source=id(step) in sources)
    for _, pipe in job.pipes():
        problems += [*task_needs(pipe, spec_dir), *nameless(pipe)]
    for find, name, where in _named_beside_tasks(job):
        try:
            find(name, folder, where)
        except BindError as error:
            errors.setdefault(error.message, error)
    problems += [*state_needs(job), *upload_needs(job)]
    functions = {name: f for name, f in bound.items() if not isinstance(f, BindError)}
    return _Found(functions, list(errors.values()), problems)


def order_warnings(job: Job, bound: Mapping[str, Function]) -> Iterator[Problem]:
    """Yield the calls whose arguments seem to be in another order than the parameters."""
    for step in _calls(job):
        function = bound.get(step.fn) if isinstance(step.fn, str) else step.fn
        if callable(function):
            found = order_warning(step, function)
            if found is not None:
                yield found


def _calls(job: Job) -> Iterator[Task]:
    for group in GROUPS:
        for task in job.groups[group].tasks:
            if isinstance(task, Pipe):
                yield from (*task.reader.data.calls(), *task.map, *task.do)
            else:
                yield task


def _named_beside_tasks(job: Job) -> Iterator[tuple[Callable[..., Any], Any, Where | None]]:
    """Yield what a job names outside of its tasks: how it is found, its name and its place."""
    if job.upload is not None and job.upload.call is not None:
        yield bind, job.upload.call, job.marks.get("upload")
    for blob, adapter in job.state.items():
        if adapter is not None:
            yield bind_adapter, adapter, job.marks.get(f"state:{blob}")
    if job.checkpoint is not None and isinstance(job.checkpoint.catalogue, str):
        yield bind_object, job.checkpoint.catalogue, job.marks.get("checkpoint.catalogue")


def _joined(errors: list[BindError], problems: list[Problem]) -> BindError:
    if len(errors) == 1 and not problems:
        return errors[0]
    if len(problems) == 1 and not errors:
        problem = problems[0]
        return BindError(problem.message, where=problem.where, hint=problem.hint)
    each = by_place([*_as_problems(errors), *problems])
    return BindError("\n".join(map(str, each)), problems=each, trace=_traces(errors))


def _as_problems(errors: list[BindError]) -> list[Problem]:
    return [Problem(e.message, _place(e), e.hint) for e in errors]


def _traces(errors: list[BindError]) -> str:
    return "\n".join(e.trace for e in errors if e.trace)


def _place(error: BindError) -> Where | None:
    return Where(error.where) if isinstance(error.where, str) else error.where
