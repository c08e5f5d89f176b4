"""What functions return, as far as their code says."""

# ruff: noqa: RET503 - functions that forget their return are the matter here

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun.errors import Where
from jobrun.model.job import Task
from jobrun.usercode.returning import check_return, returns_by_accident


def forgets(x: Any) -> Any:
    x = x + 1


def forgets_with_a_bare_return(x: Any) -> Any:
    if x:
        return
    x = x + 1


def forgets_beside_a_function_within(x: Any) -> Any:
    def inner() -> int:
        return 1

    print(x + inner())


def means_none(x: Any) -> Any:
    return None


def means_none_sometimes(x: Any) -> Any:
    if x:
        return None
    print(x)


def gives(x: Any) -> Any:
    return x


def gives_sometimes(x: Any) -> Any:
    if x > 0:
        return x


def only_raises(x: Any) -> Any:
    raise NotImplementedError


def yields(x: Any) -> Iterator[int]:
    yield 1


async def waits(x: Any) -> int:
    return 1


async def yields_later(x: Any) -> AsyncIterator[int]:
    yield 1


@functools.wraps(gives)
def wrapper_that_forgets(x: Any) -> Any:
    gives(x)


@functools.wraps(forgets)
def wrapper_that_gives(x: Any) -> Any:
    forgets(x)
    return 3


class Model:
    def __init__(self, x: Any = 0) -> None:
        self.x = x

    def fit(self, x: Any) -> Any:
        self.x = x

    def __call__(self, x: Any) -> Any:
        self.x = x


FORGOTTEN = [
    forgets,
    forgets_with_a_bare_return,
    forgets_beside_a_function_within,
    functools.partial(forgets),
    wrapper_that_forgets,
    Model().fit,
    Model(),
    np.fill_diagonal.__wrapped__,
]
LEFT_ALONE = [
    means_none,
    means_none_sometimes,
    gives,
    gives_sometimes,
    only_raises,
    wrapper_that_gives,
    lambda x: print(x),
    functools.cache(forgets),
    Model,
    np.copyto,
    print,
    eval("lambda x: None"),
]


@pytest.mark.parametrize("fn", FORGOTTEN)
@pytest.mark.parametrize("out", ["a", ["a", "b"], {"k": "a"}])
def test_a_function_without_a_return_of_a_value_cannot_fill_out(
    fn: Callable[..., Any], out: Any
) -> None:
    (problem,) = check_return(Task(fn, "x", out=out), fn)
    assert "has no 'return' with a value, but 'out' names 'a'" in problem.message
    assert problem.hint.startswith("did you forget 'return'?")
    assert not check_return(Task(fn, "x"), fn)


@pytest.mark.parametrize("fn", LEFT_ALONE)
def test_what_may_return_a_value_is_left_alone(fn: Callable[..., Any]) -> None:
    assert not check_return(Task(fn, "x", out="a"), fn)


def test_the_problem_has_its_place_in_the_spec_and_that_of_the_function() -> None:
    marks = {"call": Where("s.yaml", 4, 7), "out": Where("s.yaml", 4, 30)}
    task = Task("job:forgets", "x", out="a", marks=marks)
    (problem,) = check_return(task, forgets)
    assert problem.where == marks["out"]
    line = inspect.getsourcelines(forgets)[1]
    assert problem.message.startswith("job:forgets (")
    assert f"test_returning.py:{line})" in problem.message


def test_a_function_whose_source_is_gone_is_left_alone() -> None:
    names: dict[str, Any] = {}
    exec(compile("def f(x):\n    y = x\n", "<nowhere>", "exec"), names)
    assert not check_return(Task(names["f"], "x", out="a"), names["f"])
    assert returns_by_accident(names["f"]) is None


def test_a_source_that_has_changed_since_the_import_is_no_proof(tmp_path: Path) -> None:
    path = tmp_path / "changed.py"
    names: dict[str, Any] = {}
    exec(compile("\n\ndef f(x):\n    y = x\n", str(path), "exec"), names)
    path.write_text("def f(x):\n    y = x\n")
    assert not check_return(Task(names["f"], "x", out="a"), names["f"])


@pytest.mark.parametrize(
    ("fn", "text", "hint"),
    [
        (waits, "is an 'async' function", "asyncio.run"),
        (yields_later, "is an 'async' function", "asyncio.run"),
        (yields, "is a generator function", "only what a pipe reads"),
    ],
)
def test_a_function_that_returns_before_its_work_is_done_is_refused(
    fn: Callable[..., Any], text: str, hint: str
) -> None:
    for out in ("a", None):
        (problem,) = check_return(Task(fn, "x", out=out), fn)
        assert text in problem.message
        assert "test_returning.py:" in problem.message
        assert hint in problem.hint


def test_what_a_pipe_reads_may_be_a_generator_function() -> None:
    assert not check_return(Task(yields), yields, is_source=True)
    assert check_return(Task(waits), waits, is_source=True)


BODIES = [
    ("return 1", False),
    ("return None", False),
    ("raise ValueError", False),
    ("pass", True),
    ("return", True),
    ("if x: return 1", True),
    ("if x: return\nreturn 1", True),
    ("if x: return 1\nelse: return 2", False),
    ("if x: return 1\nelif y: return 2", True),
    ("while True: return 1", False),
    ("while True:\n  if x: break", True),
    ("while True:\n  for i in x: break", False),
    ("while True:\n  for i in x: pass\n  else: break", True),
    ("while x: return 1", True),
    ("for i in x: return 1", True),
    ("for i in x: pass\nelse: return 1", False),
    ("for i in x:\n  if i: break\nelse: return 1", True),
    ("with x: return 1", False),
    ("with x: pass", True),
    ("try: return 1\nexcept ValueError: pass", True),
    ("try: return 1\nexcept ValueError: raise", False),
    ("try: pass\nfinally: return 1", False),
    ("try: x()\nexcept ValueError: return 1\nelse: return 2", False),
    ("match x:\n  case 1: return 1", True),
    ("match x:\n  case 1: return 1\n  case _: return 2", False),
    ("match x:\n  case 1: return 1\n  case _ if y: return 2", True),
    ("def g(): pass\nreturn g", False),
    ("def g(): return 1", True),
]


@pytest.mark.parametrize(("body", "expected"), BODIES)
def test_whether_a_function_can_end_without_a_return(
    body: str, expected: bool, tmp_path: Path
) -> None:
    path = tmp_path / "job.py"
    path.write_text("def f(x, y):\n" + "".join(f"    {line}\n" for line in body.splitlines()))
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    assert returns_by_accident(names["f"]) is (names["f"] if expected else None)
