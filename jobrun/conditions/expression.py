"""Expressions of ``when:``: a small, allow-listed part of Python's syntax over numbers.

Names are scalar blobs, vars, ``epoch`` and ``elapsed``; ``blob("trainer_0:loss")`` reads a blob
whose name is not an identifier.  Nothing is evaluated by Python itself: the tree is walked here.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from jobrun.errors import TaskError

__all__ = ["Expression", "ExpressionError", "MissingName"]

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "min": lambda *values: _extreme(min, values),
    "max": lambda *values: _extreme(max, values),
    "isnan": math.isnan,
    "isfinite": math.isfinite,
}


def _extreme(choose: Callable[[Iterable[Any]], Any], values: Sequence[Any]) -> Any:
    """Return the least or greatest value; NaN if one is NaN, wherever it stands."""
    return next((v for v in values if v != v), None) or choose(values)


_MOST_NODES = 500
_LONGEST = 2000


class ExpressionError(ValueError):
    """A string that is not an expression of the allowed syntax; ``column`` is 1-based."""

    def __init__(self, message: str, column: int = 1, hint: str = "") -> None:
        super().__init__(message)
        self.column = column
        self.hint = hint


class MissingName(LookupError):  # noqa: N818 - a state of the data, not a fault
    """A name of the expression that has no value now."""


@dataclass(frozen=True)
class Expression:
    """A checked expression: its text, and the names that it reads in order of appearance."""

    text: str
    names: tuple[str, ...]
    _body: ast.expr

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Parse ``text``; raises ExpressionError with the column of the first disallowed syntax."""
        if len(text) > _LONGEST:
            raise ExpressionError("this expression is too long")
        lead = len(text) - len(text.lstrip())
        try:
            body = _parse(text.strip())
            names: dict[str, None] = {}
            _check(body, names)
        except ExpressionError as error:
            error.column += lead
            raise
        return cls(text.strip(), tuple(names), body)

    def value(self, scalars: Mapping[str, Any]) -> Any:
        """Return the value of the expression; raises MissingName if it needs a name that has none.

        ``or`` needs none where one of its parts is true, in either order, nor ``and`` where one is
        false.  Comparisons with NaN are false (``!=`` is true), ``min`` and ``max`` of NaN are NaN,
        a division by zero has the IEEE result.  Raises TaskError if a value is not a number.
        """
        try:
            return _value(self._body, scalars)
        except (TypeError, ValueError, OverflowError) as error:
            wrong = [f"{n} is {scalars[n]!r}" for n in self.names if not _is_number(scalars.get(n))]
            why = ", ".join(wrong) or str(error)
            raise TaskError(f"'{self.text}' cannot be computed: {why}") from error

    def blocked(self, without: Collection[str]) -> bool:
        """Return whether it cannot be true while the names ``without`` have no value.

        The values of the others may be any.  ``a < 1 or b < 1`` is blocked by both names together.
        """
        return _blocked(self._body, True, without)


def _is_number(value: Any) -> bool:
    try:
        return float(value) == float(value) or True
    except (TypeError, ValueError, OverflowError):
        return False


_TEMPLATE = re.compile(r"\$?\{+ *([A-Za-z_]\w*) *\}+")
_OF_NODE = re.compile(r"[A-Za-z_][\w.-]*:[A-Za-z_][\w/]*")


def _parse(text: str) -> ast.expr:
    """Return the tree of ``text``, of bounded size."""
    if "{" in text:
        raise ExpressionError("this is not an expression" + _habit(text), text.index("{") + 1)
    try:
        with warnings.catch_warnings():  # such as "invalid decimal literal" of 1if
            warnings.simplefilter("ignore")
            body = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        column = (getattr(error, "offset", 1) or 1) if isinstance(error, SyntaxError) else 1
        raise ExpressionError("this is not an expression" + _habit(text), column) from None
    if sum(1 for _ in ast.walk(body)) > _MOST_NODES:
        raise ExpressionError("this expression is too long")
    return body


def _habit(text: str) -> str:
    plain = _TEMPLATE.sub(r"\1", text)
    if plain != text:
        return f"; a name is enough: {plain}"
    if of_node := _OF_NODE.search(text):
        return f'; a blob of a node is blob("{of_node.group()}")'
    if "&&" in text or "||" in text:
        return "; write 'and', 'or'"
    if "=" in text and not any(op in text for op in ("==", "<=", ">=", "!=")):
        return "; write '==' to compare"
    return ""


def _check(node: ast.expr, names: dict[str, None]) -> None:
    """Raise ExpressionError for disallowed syntax, and collect the names."""
    if isinstance(node, ast.Constant):
        if not isinstance(node.value, int | float):
            raise ExpressionError(f"{node.value!r} is not a number", node.col_offset + 1)
    elif isinstance(node, ast.Name):
        if node.id in _FUNCTIONS or node.id == "blob":
            raise ExpressionError(f"{node.id!r} is a function: {node.id}(…)", node.col_offset + 1)
        names[node.id] = None
    elif isinstance(node, ast.BoolOp):
        _check_all(node.values, names)
    elif isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
        _check_all([node.left, *node.comparators], names)
    elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        _check_all([node.left, node.right], names)
    elif isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        _check(node.operand, names)
    elif isinstance(node, ast.Call) and not node.keywords and isinstance(node.func, ast.Name):
        _check_call(node, node.func.id, names)
    else:
        raise ExpressionError(
            "only numbers, names, + - * / // %, comparisons, and, or, not, abs, min, max, isnan, "
            'isfinite and blob("name") are allowed in an expression',
            node.col_offset + 1,
        )


def _check_all(nodes: list[ast.expr], names: dict[str, None]) -> None:
    for node in nodes:
        _check(node, names)


def _check_call(node: ast.Call, function: str, names: dict[str, None]) -> None:
    if function == "blob":
        names[_blob_name(node)] = None
    elif function in _FUNCTIONS:
        one = function in ("abs", "isnan", "isfinite")
        if (len(node.args) != 1) if one else (len(node.args) < 2):
            count = "one argument" if one else "two arguments or more"
            raise ExpressionError(f"{function}() takes {count}", node.col_offset + 1)
        _check_all(node.args, names)
    else:
        raise ExpressionError(
            f"unknown function {function!r}; there are " + ", ".join([*_FUNCTIONS, 'blob("name")']),
            node.col_offset + 1,
            "compute other values in a task; 'patience: {METRIC: EPOCHS}' stops a run that no "
            "longer improves",
        )


def _blob_name(node: ast.Call) -> str:
    if len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
        value = node.args[0].value
        if isinstance(value, str) and value:
            return value
    raise ExpressionError('blob() takes the name of a blob: blob("name")', node.col_offset + 1)


def _value(node: ast.expr, scalars: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return _lookup(node.id, scalars)
        case ast.BoolOp():
            return _bool_value(node, scalars)
        case ast.Compare():
            return _compare_value(node, scalars)
        case ast.BinOp():
            left, right = _value(node.left, scalars), _value(node.right, scalars)
            return _binary(type(node.op), left, right)
        case ast.UnaryOp():
            return _UNARY[type(node.op)](_value(node.operand, scalars))
        case ast.Call(func=ast.Name(id="blob")):
            return _lookup(_blob_name(node), scalars)
        case ast.Call(func=ast.Name(id=function)):
            return _FUNCTIONS[function](*(_value(a, scalars) for a in node.args))
    raise AssertionError(node)  # _check lets nothing else through


def _lookup(name: str, scalars: Mapping[str, Any]) -> Any:
    try:
        return scalars[name]
    except KeyError:
        raise MissingName(name) from None


def _binary(op: type[ast.operator], left: Any, right: Any) -> Any:
    try:
        return _BINARY[op](left, right)
    except ZeroDivisionError:
        if op is ast.Div and left and left == left:
            return math.copysign(math.inf, left) * math.copysign(1.0, right)
        return math.nan
    except OverflowError:
        return _BINARY[op](_as_float(left), _as_float(right))


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _bool_value(node: ast.BoolOp, scalars: Mapping[str, Any]) -> bool:
    return _decided(isinstance(node.op, ast.Or), (partial(_value, p, scalars) for p in node.values))


def _compare_value(node: ast.Compare, scalars: Mapping[str, Any]) -> bool:
    sides = [node.left, *node.comparators]

    def link(op: ast.cmpop, left: ast.expr, right: ast.expr) -> Any:
        return _COMPARE[type(op)](_value(left, scalars), _value(right, scalars))

    links = zip(node.ops, sides, sides[1:], strict=False)
    return _decided(False, (partial(link, *each) for each in links))


def _decided(by: bool, parts: Iterable[Callable[[], Any]]) -> bool:
    """Return ``by`` if a part is so, else the opposite, for which no part may lack a name."""
    missing: MissingName | None = None
    for part in parts:
        try:
            if bool(part()) is by:
                return by
        except MissingName as error:
            missing = missing or error
    if missing is not None:
        raise missing
    return not by


def _blocked(node: ast.expr, truth: bool, without: Collection[str]) -> bool:
    """Return whether ``node`` cannot be evaluated to ``truth`` without these names."""
    match node:
        case ast.UnaryOp(op=ast.Not()):
            return _blocked(node.operand, not truth, without)
        case ast.BoolOp():
            parts = [_blocked(part, truth, without) for part in node.values]
            return all(parts) if isinstance(node.op, ast.Or) is truth else any(parts)
        case ast.Compare():
            sides = [_lacking(side, without) for side in (node.left, *node.comparators)]
            return any(sides) if truth else all(map(operator.or_, sides, sides[1:]))
        case _:
            return _lacking(node, without)


def _lacking(node: ast.expr, without: Collection[str]) -> bool:
    """Return whether ``node`` has no value at all without these names."""
    match node:
        case ast.Name():
            return node.id in without
        case ast.Call(func=ast.Name(id="blob")):
            return _blob_name(node) in without
        case ast.Call():
            return any(_lacking(a, without) for a in node.args)
        case ast.BinOp():
            return _lacking(node.left, without) or _lacking(node.right, without)
        case ast.UnaryOp(op=ast.UAdd() | ast.USub()):
            return _lacking(node.operand, without)
        case ast.Constant():
            return False
        case _:
            return all(_blocked(node, truth, without) for truth in (True, False))
