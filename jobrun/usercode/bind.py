"""Binding: from ``"module:function"`` to a callable, with an error for each way to fail.

The spec's folder comes first on the import path.  Modules of the same name from another spec of
this process are removed first, so that each spec gets its own; a module that is hidden by one of
Python or of an installed package is an error that names both files.  Modules whose files have
changed since they were imported are imported anew when a job is bound.
"""

from __future__ import annotations

import importlib
import linecache
import os
import shlex
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from jobrun.core.paths import shown
from jobrun.errors import BindError, Problem, Where, by_place, did_you_mean
from jobrun.model.job import GROUPS, Job, Pipe, Task
from jobrun.model.options import Load
from jobrun.model.shell import Shell
from jobrun.usercode.imported import forget_changed, recorded
from jobrun.usercode.reference import nameless
from jobrun.usercode.requirements import state_needs, task_needs, upload_needs
from jobrun.usercode.returning import check_return
from jobrun.usercode.signature import check_call, order_warning
from jobrun.values.adapters.base import LiveAdapter

__all__ = [
    "bind",
    "bind_adapter",
    "bind_job",
    "bind_object",
    "code_problems",
    "forget",
    "order_warnings",
    "user_trace",
]

Function = Callable[..., Any]

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_folders: list[str] = []
"""The folders of specs on the import path, the newest first."""
_importing = threading.RLock()
"""Held while a job is bound: another one's folder must not come first on the path meanwhile."""


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
    with _importing:
        if root is not None:
            _activate(root)
        return _attribute(_module(module_name, root, where), path, where)


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
    with _importing:
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


# Modules.


def _activate(folder: str) -> None:
    """Put a folder first on the import path, and remove other specs' modules of the same names."""
    importlib.invalidate_caches()
    if _folders[:1] == [folder] and sys.path[:1] == [folder]:
        return
    for paths in (sys.path, _folders):
        if folder in paths:
            paths.remove(folder)
    for other in _folders:
        _forget(other, folder)
    sys.path.insert(0, folder)
    _folders.insert(0, folder)


def forget(folder: str | os.PathLike[str]) -> None:
    """Remove the modules of a spec's folder, which have changed, so that they are imported anew."""
    path = os.path.abspath(folder)
    _forget(path, path)
    importlib.invalidate_caches()


def _forget(other: str, folder: str) -> None:
    """Remove the modules of ``other`` that ``folder`` has too, and their submodules."""
    loaded = list(sys.modules.items())
    tops = {
        name
        for name, module in loaded
        if "." not in name and _file_of(module).startswith(other + os.sep) and _has(folder, name)
    }
    for name, _ in loaded:
        if name.partition(".")[0] in tops:
            del sys.modules[name]


def _has(folder: str, top: str) -> bool:
    return _local(folder, top) is not None or os.path.isdir(os.path.join(folder, top))


def _local(folder: str, top: str) -> str | None:
    """Return the file that a spec's folder has for a module, or None."""
    base = os.path.join(folder, top)
    files = (os.path.join(base, "__init__.py"), base + ".py")
    return next((f for f in files if os.path.isfile(f)), None)


def _file_of(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return os.path.abspath(file)
    paths = [p for p in list(getattr(module, "__path__", [])) if isinstance(p, str)]
    return os.path.abspath(paths[0]) + os.sep if paths else ""


def _module(name: str, folder: str | None, where: Where | None) -> ModuleType:
    """Import a module; raises BindError."""
    top = name.partition(".")[0]
    local = _local(folder, top) if folder is not None else None
    if local is not None and top in sys.stdlib_module_names:
        _refuse_shadowed(local, f"Python's own module {top!r}", where)
    loaded = sys.modules.get(top)
    if local is not None and loaded is not None and not _same(_file_of(loaded), local):
        _refuse_shadowed(local, f"the module {top!r} of {_file_of(loaded) or 'Python'}", where)
    try:
        if name in sys.modules or folder is None:
            module = importlib.import_module(name)
        else:
            with recorded(folder):
                module = importlib.import_module(name)
    except BaseException as error:
        raise _import_error(error, name, folder, where) from error
    found = sys.modules.get(top, module)
    if local is not None and not _same(_file_of(found), local):
        _refuse_shadowed(local, f"the module {top!r} of {_file_of(found)}", where)
    return module


def _same(file: str, local: str) -> bool:
    return os.path.realpath(file) == os.path.realpath(local)


def _refuse_shadowed(local: str, other: str, where: Where | None) -> NoReturn:
    message = f"{local} cannot be imported, since {other} has its name"
    raise BindError(message, where=where, hint="rename it")


def _import_error(
    error: BaseException, name: str, folder: str | None, where: Where | None
) -> BaseException:
    """Return the error for a failed import; the error itself if it is not about the module."""
    if isinstance(error, KeyboardInterrupt):
        return error
    if isinstance(error, ModuleNotFoundError) and error.name and _is_or_above(error.name, name):
        hint = _behind_link(name, where) or _nearest_module(name, folder)
        return BindError(f"there is no module {error.name!r}", where=where, hint=hint)
    if isinstance(error, SyntaxError) and error.filename:
        return _syntax_error(error)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    hint = _import_hint(error, folder)
    message = f"the module {name!r} fails on import: {text}"
    return BindError(message, where=where, hint=hint, trace=user_trace(error))


def _is_or_above(missing: str, name: str) -> bool:
    return name == missing or name.startswith(missing + ".")


def _behind_link(name: str, where: Where | None) -> str:
    """Return a hint if the spec is a symbolic link to one that has the module beside it."""
    if where is None or not os.path.islink(where.file):
        return ""
    target = Path(os.path.realpath(where.file))
    if not _holds(target.parent, name.partition(".")[0]):
        return ""
    return f"the spec is a link, and the code is beside its target: add {_code(target.parent)}"


def _code(folder: str | os.PathLike[str]) -> str:
    """Return the option that names a folder of code."""
    return f"--code {shlex.quote(shown(folder))}"


def _nearest_module(name: str, folder: str | None) -> str:
    if folder is None:
        return ""
    here = sorted(
        {p.stem for p in Path(folder).glob("*.py")}
        | {p.parent.name for p in Path(folder).glob("*/__init__.py")}
    )
    above = next((p for p in Path(folder).parents if _holds(p, name.partition(".")[0])), None)
    if above is not None:
        return f"it is in {above}: add {_code(above)}"
    near = did_you_mean(name, here)
    if near:
        return near
    listed = f"in {shown(folder)}: {', '.join(h + '.py' for h in here[:8])}" if here else ""
    return listed or f"there is no .py file in {folder}"


def _holds(folder: Path, module: str) -> bool:
    """Return whether a module, or a package, is in a folder."""
    places = (folder / f"{module}.py", folder / module / "__init__.py")
    return any(os.path.isfile(place) for place in places)


def _syntax_error(error: SyntaxError) -> BindError:
    file = str(error.filename)
    text = (error.text or linecache.getline(file, error.lineno or 0)).rstrip("\n")
    width = (error.end_offset or 0) - (error.offset or 0) if error.end_lineno == error.lineno else 1
    place = Where(file, error.lineno or 0, error.offset or 1, text, max(1, width))
    return BindError(f"syntax error: {error.msg}", where=place)


def _import_hint(error: BaseException, folder: str | None) -> str:
    """Return the usual cause: a missing package, or a file that hides Python's own module."""
    if isinstance(error, SystemExit):
        return "a module that is imported must not call sys.exit()"
    if isinstance(error, ImportError) and "no known parent package" in str(error) and folder:
        package = os.path.basename(folder)
        return (
            f"it is a module of the package {package!r}: call {package}.module:function, and add "
            f"{_code(os.path.dirname(folder))}"
        )
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"{error.name!r} is not installed in {sys.prefix}"
    names = {p.stem for p in Path(folder).glob("*.py")} if folder is not None else set()
    hiding = sorted(names & sys.stdlib_module_names)
    if hiding and isinstance(error, ImportError | AttributeError):
        return f"{hiding[0]}.py beside the spec hides Python's own {hiding[0]!r}: rename it"
    return ""


def _attribute(module: ModuleType, path: str, where: Where | None) -> Any:
    """Return the attribute at ``path`` of a module."""
    value: Any = module
    at = module.__name__
    for part in path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            known = [n for n in dir(value) if not n.startswith("__")]
            hint = did_you_mean(part, known) or _listed(value, known)
            raise BindError(f"{at!r} has no {part!r}", where=where, hint=hint) from None
        except Exception as error:  # a module's or class's own __getattr__
            text = f"{at!r} raised an error for {part!r}: {type(error).__name__}: {error}"
            raise BindError(text, where=where, trace=user_trace(error)) from error
        at = f"{at}.{part}"
    return value


def _listed(value: Any, known: list[str]) -> str:
    own = [n for n in known if callable(getattr(value, n, None)) and not n.startswith("_")]
    return f"it has {', '.join(own[:8])}{', …' if len(own) > 8 else ''}" if own else ""


# Traces.


def user_trace(error: BaseException) -> str:
    """Return the traceback of an error from the user's first line on, without jobrun's frames."""
    shown = traceback.TracebackException.from_exception(error, capture_locals=False)
    seen: set[int] = set()
    _strip(shown, seen)
    return "".join(shown.format()).rstrip("\n")


def _strip(shown: traceback.TracebackException | None, seen: set[int]) -> None:
    """Remove the frames of jobrun and of the import machinery from a trace and its causes."""
    if shown is None or id(shown) in seen:
        return
    seen.add(id(shown))
    kept = [f for f in shown.stack if not _is_ours(f.filename)]
    shown.stack = traceback.StackSummary.from_list(kept)
    for inner in (shown.__cause__, shown.__context__, *(shown.exceptions or ())):
        _strip(inner, seen)


def _is_ours(file: str) -> bool:
    return file.startswith((_OWN, "<frozen importlib")) or file == importlib.__file__
