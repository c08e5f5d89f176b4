"""Reporters by name, by function, and from packages that are installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from jobrun.core.events import ignore
from jobrun.core.template import template
from jobrun.errors import BindError, UsageError, Where
from jobrun.model.reporter import Reporter
from jobrun.report.registry import open_reporters, parse_reporter


def test_names_on_the_command_line() -> None:
    assert parse_reporter("tensorboard") == Reporter("tensorboard")
    assert parse_reporter("lines:a:b") == Reporter("lines", "a:b")
    for text in ("", ":x", "lines:"):
        with pytest.raises(UsageError, match="NAME or NAME:VALUE"):
            parse_reporter(text)


def test_files_of_ones_own(tmp_path: Path, make: Any) -> None:
    wanted = [
        Reporter("lines", str(tmp_path / "a.txt")),
        Reporter("events", options={"path": template("${run.dir}/${env.USED}.jsonl")}),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("USED", "b")
        asides = open_reporters(wanted, ignore)
        for event in (make.started(run_dir=str(tmp_path)), make.epoch(1), make.ended()):
            for aside in asides:
                aside(event)
        for aside in asides:
            aside.close()
    assert (tmp_path / "a.txt").read_text() == (
        f"digits in {tmp_path}: starts from the beginning\nepoch 1/3  0.25 s\n"
    )
    assert (tmp_path / "b.jsonl").read_text().count('"event": "') == 3


def refusal(reporter: Reporter, **more: Any) -> str:
    with pytest.raises(BindError) as caught:
        open_reporters([reporter], ignore, **more)
    return str(caught.value)


def test_one_that_there_is_not() -> None:
    where = Where("x.yaml", 3, 5, "  - tensorbord")
    text = refusal(Reporter("tensorbord", where=where))
    assert "x.yaml:3:5: there is no reporter 'tensorbord'" in text
    assert "did you mean 'tensorboard'?" in text
    known = refusal(Reporter("zzz")).partition("there are ")[2].split(", ")
    assert {"events", "lines", "mlflow", "tensorboard"} <= set(known)
    assert known == sorted(known)


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_missing_package_is_told_with_the_command(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = {"tensorboard": "tensorboardX", "mlflow": "mlflow"}[name]
    monkeypatch.setitem(__import__("sys").modules, package, None)
    text = refusal(Reporter(name))
    assert f"the reporter {name!r} needs the package {package}" in text
    assert f"pip install 'jobrun[{name}]'" in text


def test_options_it_does_not_take() -> None:
    text = refusal(Reporter("lines", options={"pfad": "x"}))
    assert "'lines' does not take these options" in text
    assert "lines(path: 'str')" in text
    assert "missing a required argument: 'path'" in refusal(Reporter("lines"))


def entry(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    found = [EntryPoint("mine", value, "jobrun.reporters")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found)


def test_one_of_an_installed_package(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    entry(monkeypatch, "collections:deque")  # a list of events, if it is called: not a reporter
    (aside,) = open_reporters([Reporter("mine", options={"maxlen": 3})], ignore)
    aside.close()
    entry(monkeypatch, "no_such_module:x")
    assert "'mine' cannot be imported: ModuleNotFoundError" in refusal(Reporter("mine"))


def test_one_by_its_function(make: Any) -> None:
    events: list[Any] = []
    made: list[dict[str, Any]] = []

    def make_it(**options: Any) -> Callable[[Any], None]:
        made.append(options)
        return events.append

    reporter = Reporter("mine:make", options={"to": template("${spec.dir}/x")})
    (aside,) = open_reporters([reporter], ignore, Path("/spec"), lambda name: make_it)
    aside(make.started())
    aside.close()
    assert made == [{"to": "/spec/x"}]
    assert len(events) == 1
    assert "cannot be found here" in refusal(reporter)
