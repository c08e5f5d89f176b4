"""Large specs: checked in steps that grow with their size, however deep the job is.

What is counted is calls, which are the same on every machine.  What C code does within one call is
not seen by that, so the time of one shape is looked at too, with a bound that only a square breaks.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun.errors import SpecError
from jobrun.jobspec.validate import validate_spec

START = "init:\n  - {call: m:start, out: b0}\nepoch:\n"
END = "stop: {epochs: 1}\n"
LONG = bool(os.environ.get("JOBRUN_LONG"))


def chain(n: int) -> str:
    return "".join(f"  - {{call: m:f, in: b{i}, out: b{i + 1}}}\n" for i in range(n))


def star(n: int) -> str:
    names = ", ".join(f"c{i}" for i in range(n - 1))
    arms = "".join(f"  - {{call: m:f, in: b0, out: c{i}}}\n" for i in range(n - 1))
    return f"{arms}  - {{call: m:join, in: [{names}], out: z}}\n"


def grid(n: int) -> str:
    side, lines = int(n**0.5), []
    for i in range(side * side):
        row, column = divmod(i, side)
        above = f"g{row - 1}_{column}" if row else "b0"
        left = f"g{row}_{column - 1}" if column else "b0"
        lines.append(f"  - {{call: m:f, in: [{above}, {left}], out: g{row}_{column}}}\n")
    return "".join(lines)


def updates(n: int) -> str:
    pair = "  - {call: m:look, in: b0}\n  - {call: m:change, update: b0}\n"
    return pair * (n // 2)


def steps(n: int) -> str:
    first = "  - pipe: {from: {x: b0}}\n    do:\n      - {call: m:f, in: x, out: c0}\n"
    rest = (f"      - {{call: m:f, in: c{i}, out: c{i + 1}}}\n" for i in range(n - 1))
    return first + "".join(rest)


def waits(n: int) -> str:
    one = "  - {{call: m:f, name: t{0}, in: b0, after: t{1}}}\n"
    return "  - {call: m:f, name: t0}\n" + "".join(one.format(i, i - 1) for i in range(1, n))


def cycle(n: int) -> str:
    one = "  - {{call: m:f, name: t{0}, in: b0, after: t{1}}}\n"
    return "".join(one.format(i, (i + 1) % n) for i in range(n))


def misspelt(n: int) -> str:
    return "".join(f"  - {{call: m:f, in: blobs_{i}_x, out: blob_{i}_x}}\n" for i in range(n))


def misplaced(n: int) -> str:
    return "".join(f"  - {{call: m:f, inn: b0, out: c{i}}}\n" for i in range(n))


def often(n: int) -> str:
    half = n // 2
    written = "".join(f"  - {{call: m:f, every: 2, out: t{i}/x}}\n" for i in range(half))
    return written + "".join(f"  - {{call: m:f, every: 2, in: t{i}}}\n" for i in range(half))


GOOD = [chain, star, grid, updates, steps, waits, often]
BAD = [cycle, misspelt, misplaced]


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., int]:
    """Checks a spec of a shape; how many problems it has."""

    def check(shape: Callable[[int], str], n: int) -> int:
        path = tmp_path / f"{shape.__name__}{n}.yaml"
        path.write_text(START + shape(n) + END)
        try:
            validate_spec(path)
        except SpecError as error:
            return len(error.problems)
        return 0

    return check


def calls(work: Callable[[], Any]) -> int:
    """How many functions are called, of Python and of C."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("shape", [*GOOD, *BAD], ids=lambda shape: shape.__name__)
def test_four_times_the_tasks_take_four_times_the_calls(
    shape: Callable[[int], str], check: Callable[..., int]
) -> None:
    check(shape, 4)  # what is imported and cached at first
    few, many = (calls(lambda n=n: check(shape, n)) for n in (250, 1000))
    assert many < 5 * few


@pytest.mark.parametrize("shape", [*GOOD, *BAD], ids=lambda shape: shape.__name__)
def test_many_tasks_and_little_depth(
    shape: Callable[[int], str], check: Callable[..., int]
) -> None:
    """No recursion error, though there is room for a few calls in each other only."""
    many = 10_000 if LONG and shape in (chain, star, grid) else 2000
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(_depth() + 150)
    try:
        found = check(shape, many)
    finally:
        sys.setrecursionlimit(limit)
    assert found == {cycle: 1, misspelt: many, misplaced: many}.get(shape, 0)


def _depth() -> int:
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


def test_the_time_is_no_square(check: Callable[..., int]) -> None:
    def seconds(n: int) -> float:
        start = time.process_time()
        check(star, n)
        return time.process_time() - start

    few = min(seconds(1000) for _ in range(3))
    assert seconds(8000) < 8 * 4 * few  # a square would take 64 times as long


def test_a_cycle_of_many_is_shown_in_part(tmp_path: Path) -> None:
    path = tmp_path / "cycle.yaml"
    path.write_text(START + cycle(3000) + END)
    with pytest.raises(SpecError, match=r"t0 -> t2999 -> .* -> 2980 more -> t0") as caught:
        validate_spec(path)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("outputs", ["w", "[w, v/a, v/b]"])
def test_four_times_the_nodes_take_four_times_the_calls(tmp_path: Path, outputs: str) -> None:
    def check(n: int) -> None:
        path = tmp_path / f"nodes{n}.yaml"
        tasks = f"[{{call: m:f, node: n_*, out: {outputs}}}]\n"
        names = ", ".join(f"n_{i}" for i in range(n))
        path.write_text(f"nodes: [{names}]\ninit: {tasks}epoch: {tasks}{END}")
        validate_spec(path)

    check(4)
    few, many = (calls(lambda n=n: check(n)) for n in (100, 400))
    assert many < 5 * few
