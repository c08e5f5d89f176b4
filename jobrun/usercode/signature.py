"""Checks whether a function can be called as a task specifies, by its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from jobrun.core.suggestions import did_you_mean
from jobrun.errors import Problem
from jobrun.model.job import Task
from jobrun.usercode.python_function import declaring_function

__all__ = ["check_call", "order_warning"]


def check_call(task: Task, fn: Callable[..., Any]) -> list[Problem]:
    """Return the problems with a task's arguments, by the parameters that its function declares.

    Only a declaration in Python counts (``declaring_function``); other functions are not checked
    here, and the call itself decides.
    """
    if declaring_function(fn) is None:
        return []
    try:
        signature = inspect.signature(fn)
    except (ValueError, TypeError):
        return []
    return list(_Signature(task, signature, _is_method(fn)).problems())


def order_warning(task: Task, fn: Callable[..., Any]) -> Problem | None:
    """Return a warning if an argument by position has the name of another parameter, or None."""
    if declaring_function(fn) is None:
        return None
    try:
        signature = inspect.signature(fn)
    except (ValueError, TypeError):
        return None
    found = _Signature(task, signature, _is_method(fn))
    for name, place in zip(found.positional, found.places, strict=False):
        if name != place and name in found.places:
            text = f"{found.text} gets {name!r} as its {place!r}"
            hint = f"by keyword: {found.by_keyword()}"
            return Problem(text, task.mark(f"in:{name}", f"update:{name}", "call"), hint)
    return None


def _is_method(fn: Any) -> bool:
    """Return whether a function was taken from a class, and not from an object of it."""
    owner = getattr(fn, "__qualname__", "").rpartition(".")[0]
    return isinstance(fn, FunctionType) and bool(owner) and not owner.endswith("<locals>")


class _Signature:
    """A function's parameters, compared with the arguments of a task."""

    def __init__(self, task: Task, signature: inspect.Signature, is_method: bool) -> None:
        self.task = task
        self.given = [*task.inputs, *task.updates]
        self.positional = [a.name for a in self.given if a.parameter is None]
        parameters = list(signature.parameters.values())
        kinds = inspect.Parameter
        by_place = (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
        by_name = (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
        self.places = [p.name for p in parameters if p.kind in by_place]
        self.names = [p.name for p in parameters if p.kind in by_name]
        self.only_places = {p.name for p in parameters if p.kind is kinds.POSITIONAL_ONLY}
        self.takes_object = is_method and self.places[:1] == ["self"]
        self.any_place = any(p.kind is kinds.VAR_POSITIONAL for p in parameters)
        self.any_name = any(p.kind is kinds.VAR_KEYWORD for p in parameters)
        self.needed = [
            p.name
            for p in parameters
            if p.default is kinds.empty and p.kind in (*by_place, *by_name)
        ]
        self.text = f"{task.function_name}{signature.replace(return_annotation=kinds.empty)}"

    def by_keyword(self) -> str:
        """Return the arguments by position as a spec passes them by keyword."""
        listed = (("in", self.task.inputs), ("update", self.task.updates))
        return ", ".join(
            f"{key}: {{{', '.join(a.name for a in arguments if a.parameter is None)}}}"
            for key, arguments in listed
            if any(a.parameter is None for a in arguments)
        )

    def problems(self) -> Iterator[Problem]:
        """Return the arguments that do not fit."""
        taken = self.places[: len(self.positional)]
        extra = self.positional[len(self.places) :]
        if extra and not self.any_place:
            most = len(self.places)
            text = (
                f"takes {most} argument{'s' * (most != 1)} by position, not {len(self.positional)}"
            )
            yield self._problem(text, f"in:{extra[0]}", f"update:{extra[0]}", hint=self._both())
        for name, marks in self._keywords():
            if name in taken:
                text = f"gets {name!r} twice, by position and by keyword"
                yield self._problem(text, *marks)
            elif name in self.only_places and not self.any_name:
                yield self._problem(f"takes {name!r} by position only", *marks)
            elif name not in self.names and not self.any_name:
                hint = did_you_mean(name, [n for n in self.names if n not in taken])
                yield self._problem(f"has no parameter {name!r}", *marks, hint=hint)
        given = {*taken, *(name for name, _ in self._keywords())}
        missing = [n for n in self.needed if n not in given]
        if missing:
            listed = ", ".join(repr(n) for n in missing)
            hint = "give it under 'in', 'update' or 'with'"
            if self.takes_object:
                hint = (
                    "it is a method, which needs an object first: name a function that makes an "
                    "object and calls its method"
                )
            yield self._problem(f"also needs {listed}", "call", hint=hint)

    def _both(self) -> str:
        """Return what to do about an argument that is under ``in`` and under ``update``."""
        updated = {a.name for a in self.task.updates}
        both = next((a.name for a in self.task.inputs if a.name in updated), None)
        if both is None:
            return ""
        text = f"{both!r} is under 'in' and under 'update': remove it from 'in'"
        if not set(self.positional) <= set(self.names):
            return text
        inputs = ", ".join(a.name for a in self.task.inputs if a.name not in updated)
        return f"{text}; by keyword: in: {{{inputs}}}, update: {{{', '.join(sorted(updated))}}}"

    def _keywords(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        for argument in self.given:
            if argument.parameter is not None:
                yield argument.parameter, (f"in:{argument.name}", f"update:{argument.name}")
        for name in self.task.literals:
            yield name, (f"with:{name}",)

    def _problem(self, text: str, *marks: str, hint: str = "") -> Problem:
        signature = self.text if len(self.text) < 160 else self.task.function_name
        message = f"{signature} {text}"
        return Problem(message, self.task.mark(*marks, "call"), hint)
