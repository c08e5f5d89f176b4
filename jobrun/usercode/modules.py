"""Importing the user's modules, with an error for each way to fail.

The spec's folder comes first on the import path.  Modules of the same name from another spec of
this process are removed first, so that each spec gets its own; a module that is hidden by one of
Python or of an installed package is an error that names both files.
"""

from __future__ import annotations

import importlib
import linecache
import os
import shlex
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from jobrun.core.paths import shown
from jobrun.core.suggestions import did_you_mean, listed
from jobrun.errors import BindError, Where
from jobrun.usercode.imported import recorded
from jobrun.usercode.traces import user_trace

__all__ = ["activate", "attribute_of", "forget", "importing", "load_module"]

_folders: list[str] = []
"""The folders of specs on the import path, the newest first."""
importing = threading.RLock()
"""Held while a job is bound: another one's folder must not come first on the path meanwhile."""


def activate(folder: str) -> None:
    """Put a folder first on the import path, and remove other specs' modules of the same names."""
    importlib.invalidate_caches()
    if _folders[:1] == [folder] and sys.path[:1] == [folder]:
        return
    for paths in (sys.path, _folders):
        if folder in paths:
            paths.remove(folder)
    _forget(_folders, folder)
    sys.path.insert(0, folder)
    _folders.insert(0, folder)


def forget(folder: str | os.PathLike[str]) -> None:
    """Remove the changed modules of a spec's folder, so that they are imported again."""
    path = os.path.abspath(folder)
    _forget([path], path)
    importlib.invalidate_caches()


def _forget(others: Sequence[str], folder: str) -> None:
    """Remove the modules of ``others`` that ``folder`` has too, and their submodules."""
    if not others:
        return
    below = tuple(other + os.sep for other in others)
    loaded = list(sys.modules.items())
    tops = {
        name
        for name, module in loaded
        if "." not in name and _file_of(module).startswith(below) and _has(folder, name)
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


def load_module(name: str, folder: str | None, where: Where | None) -> ModuleType:
    """Import a module of the folder, or one installed; raises BindError."""
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
    files = listed([f"{module}.py" for module in here], f"in {shown(folder)}:")
    return did_you_mean(name, here) or files or f"there is no .py file in {folder}"


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


def attribute_of(module: ModuleType, path: str, where: Where | None) -> Any:
    """Return the attribute at the dotted ``path`` of a module; raises BindError."""
    value: Any = module
    at = module.__name__
    for part in path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            known = [n for n in dir(value) if not n.startswith("__")]
            own = [n for n in known if callable(getattr(value, n, None)) and not n.startswith("_")]
            hint = did_you_mean(part, known) or listed(own, "it has")
            raise BindError(f"{at!r} has no {part!r}", where=where, hint=hint) from None
        except Exception as error:  # a module's or class's own __getattr__
            text = f"{at!r} raised an error for {part!r}: {type(error).__name__}: {error}"
            raise BindError(text, where=where, trace=user_trace(error)) from error
        at = f"{at}.{part}"
    return value
