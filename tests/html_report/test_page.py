"""The page without a browser: what it holds, that it needs nothing else, and what it costs."""

from __future__ import annotations

import base64
import builtins
import gzip
import json
import math
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from report_runs import HOSTILE

from jobrun.errors import UsageError
from jobrun.html_report.curves import curves, short
from jobrun.html_report.page import page
from jobrun.html_report.timeline import MOST, Timeline
from jobrun.runs.metrics_csv import EpochRow
from jobrun.runs.rundir import RunDir
from jobrun.tools.run_summary import run_summary


class Reader(HTMLParser):
    """The text of a page, and every reference to something else."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.references: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [v or "" for k, v in attrs if k in ("src", "href", "action", "srcset")]

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] not in (["script"], ["style"]):
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def packed(text: str, id: str) -> str:
    found = re.search(rf'id="{id}">([A-Za-z0-9+/=]+)<', text)
    assert found is not None
    return gzip.decompress(base64.b64decode(found[1])).decode()


def data_of(text: str) -> Any:
    return json.loads(packed(text, "packed-data"))


def test_it_says_what_each_run_was_and_why_it_ended(three: list[RunDir]) -> None:
    text = Reader(page(three)).text
    assert "runs/many: finished after 8 epochs" in text
    assert "interrupted after 8 epochs: the process was killed or crashed" in text
    for word in ("checkpoint_4", "steps.py", "numpy", "Slowest tasks", "Attempts", "vars.rate"):
        assert word in text
    assert re.search(r"vars\.rate 0\.01 0\.2 0\.5", text), "the differences"


def test_it_needs_nothing_else(three: list[RunDir]) -> None:
    read = Reader(page(three))
    assert read.references
    assert all(r.startswith(("#", "data:image/svg+xml;base64,")) for r in read.references)
    assert read.tags.count("script") == 3
    assert not set(read.tags) & {"link", "iframe", "object", "embed", "base"}


def test_text_of_users_stays_text(three: list[RunDir]) -> None:
    text = page(three)
    assert HOSTILE not in text
    assert "<b>bold</b>" not in text
    assert "&lt;b&gt;bold&lt;/b&gt;" in text
    data = data_of(text)
    assert HOSTILE in data["runs"][0]["metrics"]
    assert any(HOSTILE in line for line in data["runs"][0]["log"])


def test_every_value_of_the_spec_has_its_origin(three: list[RunDir]) -> None:
    text = Reader(page(three[1:2])).text
    assert re.search(r"rate: 0\.2 +# set", text)
    assert re.search(r"label: plain +# spec\.yaml:2", text)
    assert re.search(r"epochs: 8 +# spec\.yaml:6|stop: \{epochs: 8\} +# spec\.yaml:6", text)
    assert "# default" in text


def test_a_run_without_its_spec_and_log_is_shown_all_the_same(three: list[RunDir]) -> None:
    run = three[1]
    kept = {n: (run.path / n).read_bytes() for n in ("spec.resolved.yaml", "spec.yaml", "log.txt")}
    try:
        for name in kept:
            (run.path / name).unlink()
        text = Reader(page([run])).text
        (run.path / "spec.resolved.yaml").write_text("epoch: 3\n")
        wrong = Reader(page([run])).text
    finally:
        for name, content in kept.items():
            (run.path / name).write_bytes(content)
    assert "its graph is not stored in the run" in text
    assert "The run has no log." in text
    assert "The graph cannot be drawn" in wrong
    assert "The stored spec cannot be read" in wrong


def test_the_columns_of_the_table(three: list[RunDir]) -> None:
    table = data_of(page(three))["table"]
    names = [column["name"] for column in table["columns"]]
    metrics = ["best loss", "best gain", HOSTILE]
    assert names == ["run", "state", "rate", "label", *metrics, "epochs", "seconds"]
    assert [row[2]["value"] for row in table["rows"]] == [0.01, 0.2, 0.5]
    assert table["rows"][0][3] == {"text": "<b>bold</b>"}


def timeline(run: RunDir) -> dict[str, Any]:
    found = Timeline()
    return found.of(run_summary(run, [found]))


def test_the_timeline_has_attempts_saves_and_where_it_was_killed(three: list[RunDir]) -> None:
    line = timeline(three[2])
    assert list(line["bars"])[:2] == ["attempts", "init"]
    assert len(line["bars"]["epochs"]) == 8
    assert len(line["bars"]["saves"]) == 5
    assert line["marks"][0][0] == "attempts"
    assert "no end was recorded" in line["marks"][0][2]
    assert timeline(three[1])["marks"] == []


def test_a_long_timeline_keeps_the_longest_bars(twenty: list[RunDir]) -> None:
    line = timeline(twenty[0])
    assert len(line["bars"]["epochs"]) == MOST
    assert line["left"] == 1000 - MOST


def test_numbers_of_charts() -> None:
    assert short(0.123456789) == 0.1234568
    assert short(12345678901) == 12345678901
    assert short(True) == 1
    assert [short(v) for v in (math.nan, math.inf, "text", None)] == [None] * 4
    rows = [EpochRow(1, 0.5, 0.5, {"a": 1.0}), EpochRow(2, 0.5, 1.0, {"a": math.nan, "b": 2})]
    assert curves(rows) == {
        "epoch": [1, 2],
        "elapsed": [0.5, 1.0],
        "metrics": {"a": [1.0, None], "b": [None, 2]},
    }


def test_twenty_runs_of_a_thousand_epochs_take_less_than_5_mb(twenty: list[RunDir]) -> None:
    text = page(twenty)
    assert len(text.encode()) < 5_000_000
    data = data_of(text)
    assert [len(run["metrics"]["loss"]) for run in data["runs"]] == [1000] * 20


def test_without_the_extra_it_says_what_to_install(
    three: list[RunDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **more: Any) -> Any:
        if name == "jinja2":
            raise ImportError("No module named 'jinja2'", name="jinja2")
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UsageError, match="a report needs the package jinja2") as caught:
        page(three)
    assert caught.value.hint == "pip install 'jobrun[report]'"
