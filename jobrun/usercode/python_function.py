"""The Python function behind a callable: the one that declares its parameters."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

__all__ = ["declaring_function", "running_function"]


def declaring_function(fn: Any) -> FunctionType | None:
    """Return the Python function that declares the parameters of a callable.

    Looks through ``functools.partial``, ``functools.wraps``, methods, classes (the first Python
    function that makes an instance) and objects that can be called.  Returns None where the
    parameters are declared in C: such a declaration does not prove what a call accepts (numpy 2.4
    declares the first parameter of ``arange`` positional-only, and takes it by keyword).
    """
    *_, last = _layers(fn)
    return last if isinstance(last, FunctionType) else None


def running_function(fn: Any) -> FunctionType | None:
    """Return the Python function whose body a call runs, and whose result the call returns.

    Looks through ``functools.partial``, methods and objects that can be called; a wrapper is what
    runs, not what it wraps.  Returns None for a class, and for what is not Python.
    """
    for layer in _layers(fn):
        if isinstance(layer, FunctionType):
            return layer
        if isinstance(layer, type) or _wrapped(layer) is not None:
            return None
    return None


def _layers(fn: Any) -> Iterator[Any]:
    """Yield the callable and what it wraps, from the outside in."""
    seen: set[int] = set()
    while id(fn) not in seen:
        seen.add(id(fn))
        yield fn
        fn = _behind(fn)


def _behind(fn: Any) -> Any:
    """Return what the callable wraps; itself if nothing."""
    if isinstance(fn, functools.partial):
        return fn.func
    if isinstance(fn, MethodType):
        return fn.__func__
    if isinstance(fn, type):
        of_metaclass = inspect.getattr_static(type(fn), "__call__", None)
        makers = (of_metaclass, fn.__new__, getattr(fn, "__init__", None))
        return next((m for m in makers if isinstance(m, FunctionType)), fn)
    wrapped = _wrapped(fn)
    if wrapped is not None:
        return wrapped
    call = inspect.getattr_static(type(fn), "__call__", None)
    return call if isinstance(call, FunctionType) else fn


def _wrapped(fn: Any) -> Any:
    """Return what ``functools.wraps`` recorded, unless the wrapper declares its own signature."""
    if inspect.getattr_static(fn, "__signature__", None) is not None:
        return None
    return inspect.getattr_static(fn, "__wrapped__", None)
