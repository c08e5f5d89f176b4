"""Calls against the signatures of their functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jobrun.errors import Where
from jobrun.model.job import Task
from jobrun.usercode.signature import check_call, order_warning


def two(x: Any, y: Any = 1) -> None: ...


def keyword_only(x: Any, *, lr: Any) -> None: ...


def anything(*args: Any, **kwargs: Any) -> None: ...


def positional_only(x: Any, y: Any, /, z: Any = 1) -> None: ...


def wrapper_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return inner


class Fitted(dict[str, Any]):
    """A class whose ``__init__`` is in C."""


class Made:
    def __new__(cls, size: int) -> Made:
        return super().__new__(cls)


class Model:
    def __init__(self, size: int) -> None: ...

    def __call__(self, x: Any) -> None: ...


@pytest.mark.parametrize(
    ("fn", "options", "expected"),
    [
        (two, {"in_": "a"}, []),
        (two, {"in_": ["a", "b"]}, []),
        (two, {"in_": {"x": "a"}, "update": {"y": "b"}}, []),
        (two, {"in_": "a", "with_": {"y": 1}}, []),
        (two, {}, ["also needs 'x'"]),
        (two, {"in_": {"y": "a"}}, ["also needs 'x'"]),
        (two, {"in_": ["a", "b", "c"]}, ["takes 2 arguments by position, not 3"]),
        (two, {"in_": ["a", "b"], "update": "c"}, ["takes 2 arguments by position, not 3"]),
        (two, {"in_": {"x": "a", "z": "b"}}, ["has no parameter 'z'"]),
        (two, {"in_": "a", "with_": {"x": 1}}, ["gets 'x' twice"]),
        (two, {"in_": {"xx": "a"}}, ["has no parameter 'xx'", "also needs 'x'"]),
        (keyword_only, {"in_": "a", "with_": {"lr": 1}}, []),
        (keyword_only, {"in_": ["a", "b"]}, ["takes 1 argument by position", "also needs 'lr'"]),
        (anything, {"in_": ["a", "b"], "with_": {"z": 1}}, []),
        (positional_only, {"in_": ["a", "b"], "with_": {"z": 1}}, []),
        (positional_only, {"in_": {"x": "a", "y": "b"}}, ["takes 'x' by", "takes 'y' by"]),
        (Model, {"in_": "a"}, []),
        (Model, {"in_": {"sise": "a"}}, ["has no parameter 'sise'", "also needs 'size'"]),
        (Model(1), {"in_": "a"}, []),
        (functools.partial(two, 3), {}, []),
        (functools.partial(two, x=3), {"in_": {"y": "a"}}, []),
        (np.zeros, {"in_": ["a"]}, []),
        (np.add, {"in_": ["a", "b"]}, []),
        (dict, {"in_": {"anything": "a"}}, []),
        (Fitted, {"in_": {"anything": "a"}}, []),
        (Made, {"in_": {"sise": "a"}}, ["has no parameter 'sise'", "also needs 'size'"]),
        (Model(1).__call__, {"in_": ["a", "b"]}, ["takes 1 argument by position, not 2"]),
        (functools.partial(two, 3), {"in_": {"z": "b"}}, ["has no parameter 'z'"]),
        (wrapper_of(two), {"in_": {"z": "b"}}, ["has no parameter 'z'", "also needs 'x'"]),
        (functools.cache(two), {"in_": {"z": "b"}}, ["has no parameter 'z'", "also needs 'x'"]),
        (np.linalg.norm, {"in_": {"x": "a", "z": "b"}}, ["has no parameter 'z'"]),
        (np.arange, {"with_": {"start": 0, "stop": 10}}, []),
        (functools.partial(np.arange, step=2), {"with_": {"start": 0, "stop": 10}}, []),
        (wrapper_of(np.arange), {"with_": {"start": 0, "stop": 10}}, []),
    ],
)
def test_calls_are_checked_against_the_signature(
    fn: Callable[..., Any], options: dict[str, Any], expected: list[str]
) -> None:
    found = check_call(Task(fn, **options), fn)
    assert len(found) == len(expected), found
    for problem, part in zip(found, expected, strict=True):
        assert part in problem.message


def test_a_problem_with_a_call_has_its_place_and_the_nearest_name() -> None:
    mark = Where("s.yaml", 4, 7)
    task = Task("m:two", in_={"x": "a"}, with_={"yy": 3}, marks={"with:yy": mark})
    (problem,) = check_call(task, two)
    assert problem.message == "m:two(x: 'Any', y: 'Any' = 1) has no parameter 'yy'"
    assert problem.where == mark
    assert problem.hint == "did you mean 'y'?"


def test_an_argument_under_in_and_update_is_named() -> None:
    (problem,) = check_call(Task("m:two", ["a", "b"], update="b"), two)
    assert "takes 2 arguments by position, not 3" in problem.message
    assert problem.hint == "'b' is under 'in' and under 'update': remove it from 'in'"
    (problem,) = check_call(Task("m:two", ["x", "y"], update="x"), two)
    assert problem.hint.endswith("remove it from 'in'; by keyword: in: {y}, update: {x}")
    (problem,) = check_call(Task("m:two", ["a", "b"], update="c"), two)
    assert problem.hint == ""


def test_arguments_in_another_order_are_shown_by_keyword() -> None:
    found = order_warning(Task("m:two", ["y"], update=["x"]), two)
    assert found is not None
    assert found.hint == "by keyword: in: {y}, update: {x}"


def test_a_method_of_a_class_is_said_to_be_one() -> None:
    task = Task("m:Model.__call__", with_={"x": 3})
    (problem,) = check_call(task, Model.__call__)
    assert "also needs 'self'" in problem.message
    assert problem.hint.startswith("it is a method, which needs an object first: name a function")
    (problem,) = check_call(Task("m:Model.__call__", "x"), Model.__call__)  # it is taken for self
    assert problem.hint.startswith("it is a method")
    (problem,) = check_call(Task("m:two"), two)
    assert problem.hint == "give it under 'in', 'update' or 'with'"
    assert not check_call(Task(Model.__call__, ["model", "x"]), Model.__call__)
