"""Output for continuous integration: JUnit XML, and the step summary of GitHub Actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from xml.etree import ElementTree

from jobrun.core.text import duration
from jobrun.report.formatting import plain

__all__ = ["Case", "Suite", "junit", "step_summary"]


class Case(Protocol):
    """One check: its name, its status, its time and its result."""

    @property
    def name(self) -> str:
        """The name of what is checked."""

    @property
    def status(self) -> str:
        """``ok``, ``failed`` or ``skipped``."""

    @property
    def seconds(self) -> float:
        """The time that it took."""

    @property
    def text(self) -> str:
        """The result, in one line."""

    @property
    def details(self) -> str:
        """Further lines about the result."""


class Suite(Protocol):
    """The checks of one spec."""

    @property
    def spec(self) -> str:
        """The spec."""

    @property
    def steps(self) -> Sequence[Case]:
        """The checks, in order."""


def junit(suites: Sequence[Suite]) -> str:
    """Return JUnit's XML, which most CI systems read: a suite per spec, a case per step."""
    root = ElementTree.Element("testsuites", name="jobrun smoke")
    for suite in suites:
        cases = suite.steps
        node = ElementTree.SubElement(
            root,
            "testsuite",
            name=_xml(suite.spec),
            tests=str(len(cases)),
            failures=str(sum(case.status == "failed" for case in cases)),
            skipped=str(sum(case.status == "skipped" for case in cases)),
            time=f"{sum(case.seconds for case in cases):.3f}",
        )
        for case in cases:
            _case(node, suite.spec, case)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ElementTree.Element, spec: str, case: Case) -> None:
    node = ElementTree.SubElement(
        suite, "testcase", classname=_xml(spec), name=case.name, time=f"{case.seconds:.3f}"
    )
    if case.status == "failed":
        failure = ElementTree.SubElement(node, "failure", message=_xml(case.text))
        failure.text = _xml(case.details or case.text)
    elif case.status == "skipped":
        ElementTree.SubElement(node, "skipped", message=_xml(case.text))
    elif case.text:
        ElementTree.SubElement(node, "system-out").text = _xml(case.text)


def _xml(text: str) -> str:
    """Return text without what XML cannot hold: control characters and lone surrogates."""
    shown = plain(text).encode("utf-8", "replace").decode("utf-8")
    return "".join(c for c in shown if c not in "\ufffe\uffff")


def step_summary(suites: Sequence[Suite]) -> str:
    """Return a table in Markdown: a row per spec, a column per step."""
    names = list(dict.fromkeys(case.name for suite in suites for case in suite.steps))
    lines = ["### jobrun smoke", "", "| spec | " + " | ".join(names) + " |"]
    lines.append("|---" * (len(names) + 1) + "|")
    for suite in suites:
        found = {case.name: case for case in suite.steps}
        cells = [_cell(found[name]) if name in found else "" for name in names]
        lines.append(f"| `{_escaped(suite.spec)}` | " + " | ".join(cells) + " |")
    for suite in suites:
        for case in suite.steps:
            if case.status == "failed":
                text = plain(f"{case.text}\n{case.details}".strip())
                lines += ["", f"**{_escaped(suite.spec)}**, {case.name}:", ""]
                lines += [f"    {line}" for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def _cell(case: Case) -> str:
    sign = {"ok": "✅", "failed": "❌", "skipped": "⏭️"}[case.status]
    return f"{sign} {duration(case.seconds)}"


def _escaped(text: str) -> str:
    return plain(text).replace("|", "\\|").replace("`", "'")
