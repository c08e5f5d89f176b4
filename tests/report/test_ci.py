"""JUnit XML and the step summary."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.etree import ElementTree

from jobrun.report.ci import junit, step_summary


@dataclass
class Case:
    name: str
    status: str = "ok"
    seconds: float = 1.5
    text: str = ""
    details: str = ""


@dataclass
class Suite:
    spec: str
    steps: list[Case] = field(default_factory=list)


SUITES = [
    Suite("a.yaml", [Case("spec", text="job a"), Case("train")]),
    Suite(
        'b|<&">`.yaml',
        [Case("spec"), Case("train", "failed", 0.25, "it\x1b broke\ud800", "line 1\nline\x002")],
    ),
    Suite("c.yaml", [Case("train", "skipped", 0.0, "no need")]),
]


def test_junit() -> None:
    root = ElementTree.fromstring(junit(SUITES).encode())
    counts = [(s.get("tests"), s.get("failures"), s.get("skipped")) for s in root]
    assert counts == [("2", "0", "0"), ("2", "1", "0"), ("1", "0", "1")]
    assert [s.get("name") for s in root] == ["a.yaml", 'b|<&">`.yaml', "c.yaml"]
    assert root[0].get("time") == "3.000"
    assert root[0][0].findtext("system-out") == "job a"
    failure = root[1][1].find("failure")
    assert failure is not None
    assert failure.get("message") == "it\\x1b broke?"
    assert failure.text == "line 1\nline\\x002"
    assert root[2][0].find("skipped") is not None


def test_step_summary() -> None:
    lines = step_summary(SUITES).splitlines()
    assert lines[:5] == [
        "### jobrun smoke",
        "",
        "| spec | spec | train |",
        "|---|---|---|",
        "| `a.yaml` | ✅ 1.5 s | ✅ 1.5 s |",
    ]
    assert lines[5].startswith("| `b\\|<&\">'.yaml` | ✅ 1.5 s | ❌ 0.25 s |")
    assert lines[6].startswith("| `c.yaml` |  | ")
    assert "    line 1" in lines
