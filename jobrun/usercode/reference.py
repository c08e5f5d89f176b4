"""References to functions by name, for other processes: ``module:function``.

Functions of a script (``python script.py``) are found by importing the script under another name
than ``__main__``, as Python's multiprocessing does; so its main code must be under
``if __name__ == "__main__":``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any

from jobrun.errors import BindError, Problem
from jobrun.model.job import Pipe

__all__ = ["Main", "forbid_while_importing", "import_main", "main_module", "nameless", "reference"]

Main = tuple[str, str]
"""The origin of ``__main__``: ``("module", name)``, or ``("file", path)`` of a script."""

_SCRIPT = "__mp_main__"
"""The name under which multiprocessing imports a script: guards and tools know it."""

_importing: list[str] = []
"""The script that is being imported, or None."""


def nameless(pipe: Pipe) -> Iterator[Problem]:
    """Yield the ``map`` steps of a pipe with ``processes`` whose functions cannot be named."""
    if pipe.reader.workers.processes is None:
        return
    for step in pipe.map:
        if not isinstance(step.fn, str):
            try:
                reference(step.fn)
            except LookupError as error:
                text = f"a worker process cannot find {step.function_name}: {error}"
                hint = "define it in a module (or in the script, outside of functions), or "
                yield Problem(text, step.mark("call"), hint + "use 'threads'")


def reference(function: Any) -> str:
    """Return the ``module:function`` by which another process finds a function.

    Raises LookupError with the reason if there is none.
    """
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not path:
        kind = type(function).__name__
        raise LookupError(f"an object of type {kind} has no module and name of its own")
    if "<" in path:
        where = "inside a function" if "<locals>" in path else "as a lambda"
        raise LookupError(f"it is defined {where}")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if found is not function:
        raise LookupError(f"{module}:{path} is another object")
    if module == "__main__":
        main_module()
    return f"{module}:{path}"


def main_module() -> Main:
    """Return the origin of ``__main__``; raises LookupError if it cannot be imported again."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m module
        return "module", spec.name
    file = getattr(main, "__file__", None)
    if not file or not os.path.isfile(file):
        raise LookupError("it is defined at a prompt or in a notebook")
    return "file", os.path.abspath(file)


def import_main(main: Main) -> str:
    """Import the ``__main__`` of another process; return its name here."""
    kind, name = main
    _importing.append(name)
    try:
        if kind == "module":
            return import_module(name).__name__
        loader = SourceFileLoader(_SCRIPT, name)
        spec = spec_from_loader(_SCRIPT, loader)
        assert spec is not None
        module = sys.modules[_SCRIPT] = module_from_spec(spec)
        loader.exec_module(module)
        return _SCRIPT
    finally:
        _importing.clear()


def forbid_while_importing() -> None:
    """Raise if a worker process imports the script that would run a job."""
    if _importing:
        raise BindError(
            f"{_importing[0]} runs a job when it is imported, which worker processes do",
            hint='put what it runs under: if __name__ == "__main__":',
        )
