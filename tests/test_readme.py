"""Every example of the README is run here, and its output compared."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from examples import ROOT, Page

from jobrun.jobspec.build import build
from jobrun.jobspec.resolve import load

README = Page(ROOT / "README.md")


def test_console_examples_print_what_the_readme_says(tmp_path: Path) -> None:
    assert README.commands()
    README.check_commands(tmp_path)


def test_python_examples_run(tmp_path: Path) -> None:
    assert [text for name, text in README.blocks("python") if name is None]
    README.check_python(tmp_path)


def fragments() -> list[str]:
    """The parts of specs that stand in the text: an ``epoch``, or one pipe a line."""
    found = []
    for text in re.findall(r"^  ```yaml\n(.*?)^  ```$", README.text, re.M | re.S):
        body = textwrap.dedent(text)
        if body.startswith("epoch:"):
            found.append(body)
        else:
            do = "do: [{call: digits:step, out: loss}]"
            found += [f"epoch:\n  - {line}\n    {do}\n" for line in body.splitlines()]
    return found


@pytest.mark.parametrize("text", fragments())
def test_parts_of_specs_are_in_the_language(text: str, tmp_path: Path) -> None:
    spec = tmp_path / "part.yaml"
    spec.write_text(text + "stop: {epochs: 1}\n")
    job = build(load(spec))  # raises SpecError for what is no spec
    assert len(job.epoch.tasks) == 1


def test_files_the_readme_speaks_of_are_there() -> None:
    README.check_references()


@pytest.mark.parametrize("target", ["demo", "test", "crash", "bench", "help"])
def test_make_targets_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), target
