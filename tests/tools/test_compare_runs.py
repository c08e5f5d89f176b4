"""In what runs differ from the first of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jobrun.runs.overview import Overview
from jobrun.runs.run_state import RunState
from jobrun.tools.compare_runs import Difference, compare_runs


def view(
    loss: float | None, best: float | None, versions: dict[str, str] | None = None
) -> Overview:
    return Overview(
        "r",
        Path("r"),
        "finished",
        metrics={"loss": loss, "size": 3} if loss is not None else {},
        directions={"loss": "min", "size": None},
        best={"loss": (best, 1)} if best is not None else {},
        versions=versions or {},
    )


def state(facts: dict[str, Any] | None = None, code: dict[str, str] | None = None) -> RunState:
    return RunState("r", "r", facts=facts or {}, code=code or {})


def test_the_spec_in_its_own_order() -> None:
    facts: list[dict[str, Any]] = [
        {"seed": 1, "vars": {"lr": 0.1}, "stop": {"epochs": 3}},
        {"seed": 1, "vars": {"lr": 0.1}, "stop": {"epochs": 4}},
        {"seed": 2, "vars": {"lr": 0.2, "n": 1}, "stop": {"epochs": 3}},
    ]
    found = compare_runs([view(1, 1)] * 3, [state(f) for f in facts])
    assert found.spec == (
        Difference("seed", ("1", "1", "2")),
        Difference("vars.lr", ("0.1", "0.1", "0.2")),
        Difference("vars.n", ("", "", "1")),
        Difference("stop.epochs", ("3", "4", "3")),
    )
    assert found.unknown == ()


def test_a_spec_that_is_not_known_differs_in_nothing() -> None:
    found = compare_runs([view(1, 1)] * 2, [state({"seed": 1}), state()])
    assert (found.spec, found.unknown) == ((), (1,))


def test_metrics_and_who_won() -> None:
    found = compare_runs([view(0.5, 0.5), view(0.75, 0.25), view(None, None)], [state()] * 3)
    loss, size = found.metrics
    assert (loss.last, loss.best) == ((0.5, 0.75, None), ((0.5, 1), (0.25, 1), None))
    assert (loss.winners, size.winners, size.direction) == ((1,), (), None)
    assert compare_runs([view(1, 1)] * 2, [state()] * 2).metrics[0].winners == ()


def test_code_and_libraries() -> None:
    code = [{"a.py": "1", "b.py": "2"}, {"a.py": "1", "b.py": "3", "c.py": "4"}, {}]
    versions = [{"numpy": "2.0"}, {"numpy": "2.1"}, {"numpy": "2.0"}]
    found = compare_runs([view(1, 1, v) for v in versions], [state(code=c) for c in code])
    assert found.code == (Difference("b.py", ("2", "3", "")), Difference("c.py", ("", "4", "")))
    assert found.versions == (Difference("numpy", ("2.0", "2.1", "2.0")),)
