"""Checks of what a task's function returns, as far as its code shows.

Python returns None from a function that ends without a ``return``, so a forgotten one silently
makes a blob None.  An explicit ``return None`` is intended.
"""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from jobrun.core.paths import shown
from jobrun.errors import Problem
from jobrun.model.job import Task
from jobrun.usercode.python_function import running_function

__all__ = ["FORGOTTEN", "check_return", "place_of", "returns_by_accident"]

FORGOTTEN = "did you forget 'return'? ('return None' is for an intended None)"
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def check_return(task: Task, fn: Any, *, is_source: bool = False) -> list[Problem]:
    """Return the problem with what a task's function returns, found without calling it.

    ``is_source``: a pipe reads the result, so it may be a generator function.  Functions without
    source code, and those that only end by raising, are not checked.
    """
    function = running_function(fn)
    if function is None:
        return []
    flags = function.__code__.co_flags
    where = task.mark("call")
    if flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        text = f"{task.function_name} is an 'async' function ({place_of(function)}), whose call "
        hint = "make it a plain function that calls asyncio.run(...)"
        return [Problem(text + "returns before it has done anything", where, hint)]
    if flags & inspect.CO_GENERATOR:
        if is_source:
            return []
        text = f"{task.function_name} is a generator function ({place_of(function)}): it has a "
        hint = "return the value (a list of all values); only what a pipe reads ('pipe: {call: …}')"
        return [Problem(text + "'yield'", where, f"{hint} may be one")]
    if not task.outputs.names or not _ends_of(function.__code__).never:
        return []
    names = ", ".join(repr(n) for n in task.outputs.names)
    text = (
        f"{task.function_name} ({place_of(function)}) has no 'return' with a value, "
        f"but 'out' names {names}"
    )
    return [Problem(text, task.mark("out", "call"), FORGOTTEN)]


def place_of(function: FunctionType) -> str:
    """Return ``file:line`` of a function."""
    code = function.__code__
    return f"{shown(code.co_filename)}:{code.co_firstlineno}"


def returns_by_accident(fn: Any) -> FunctionType | None:
    """Return the function that a call runs, if it can end without a ``return`` of a value.

    None if it cannot, or if its source is unknown.
    """
    function = running_function(fn)
    if function is None or not _ends_of(function.__code__).by_accident:
        return None
    return function


@dataclass(frozen=True, slots=True)
class _Ends:
    """The ways a function can end: ``never`` with a value; ``by_accident``, without ``return``."""

    never: bool = False
    by_accident: bool = False


_parsing = threading.Lock()


@lru_cache(maxsize=4096)
def _ends_of(code: CodeType) -> _Ends:
    """Return how a function can end; neither way if its source is unknown."""
    returned = _returned(code)
    if True not in returned:
        return _Ends()
    node = _node_of(code)
    if node is None:
        return _Ends()
    values = [r.value for r in _returns(node)]
    has_value = any(value is not None for value in values)
    never = False not in returned and not has_value
    return _Ends(never, any(v is None for v in values) or _completes(node.body))


def _returned(code: CodeType) -> set[bool]:
    """Return whether the bytecode returns None, and whether other values; needs no source."""
    found: set[bool] = set()
    before: dis.Instruction | None = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "RETURN_CONST":
            found.add(instruction.argval is None)
        elif instruction.opname == "RETURN_VALUE":
            is_constant = before is not None and before.opname == "LOAD_CONST"
            found.add(is_constant and before is not None and before.argval is None)
        before = instruction
    return found


def _node_of(code: CodeType) -> _Function | None:
    """Return the definition of a function in its source; None for a lambda, and without source."""
    try:
        with _parsing:
            tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError, SystemError):  # Python 3.11 fails if two threads parse at once
        return None
    for node in ast.walk(tree):
        if isinstance(node, _Function) and node.name == code.co_name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
    return None


def _returns(node: ast.AST) -> Iterator[ast.Return]:
    """Yield the ``return`` statements of a function, without those of inner functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Return):
            yield child
        elif not isinstance(child, _Function | ast.Lambda | ast.ClassDef):
            yield from _returns(child)


def _completes(body: Sequence[ast.stmt]) -> bool:
    """Return whether control can reach the end of statements; True if unknown."""
    return all(_passes(statement) for statement in body)


def _passes(statement: ast.stmt) -> bool:
    """Return whether control can reach what follows a statement."""
    match statement:
        case ast.Return() | ast.Raise() | ast.Continue() | ast.Break():
            return False
        case ast.If():
            return _completes(statement.body) or _completes(statement.orelse)
        case ast.While(test=ast.Constant(value=value)) if value:
            return any(True for _ in _breaks(statement.body))
        case ast.For() | ast.AsyncFor() | ast.While():
            return _completes(statement.orelse) or any(True for _ in _breaks(statement.body))
        case ast.With() | ast.AsyncWith():
            return _completes(statement.body)
        case ast.Try() | ast.TryStar():
            ends = [[*statement.body, *statement.orelse], *(h.body for h in statement.handlers)]
            return _completes(statement.finalbody) and any(_completes(end) for end in ends)
        case ast.Match():
            last = statement.cases[-1]
            is_total = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None
            is_total = is_total and last.guard is None
            return not is_total or any(_completes(c.body) for c in statement.cases)
    return True


def _breaks(body: Sequence[ast.AST]) -> Iterator[ast.Break]:
    """Yield the ``break`` statements that leave the loop with this body."""
    for node in body:
        if isinstance(node, ast.Break):
            yield node
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            yield from _breaks(node.orelse)
        elif not isinstance(node, _Function | ast.Lambda | ast.ClassDef):
            yield from _breaks(list(ast.iter_child_nodes(node)))
