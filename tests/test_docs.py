"""Every page of the documentation is listed, and every example in it is run and compared."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from examples import ROOT, Page

from jobrun.docs import pages
from jobrun.jobspec.build import built
from jobrun.jobspec.model import SpecModel
from jobrun.jobspec.parsing import parse
from jobrun.jobspec.resolve import load

PAGES = [Page(ROOT / "jobrun" / "docs" / f"{name}.md") for name in pages()]
OVERVIEW = Page(ROOT / "jobrun" / "docs" / "overview.md")
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.stem)


def test_every_page_has_a_title_and_is_listed() -> None:
    assert {page.path for page in PAGES} == set((ROOT / "jobrun" / "docs").glob("*.md"))
    for name, title in pages().items():
        assert title, name


@each_page
def test_commands_print_what_the_page_says(page: Page, tmp_path: Path) -> None:
    for package in page.needs:
        pytest.importorskip(package)
    page.check_commands(tmp_path)


@each_page
def test_python_runs(page: Page, tmp_path: Path) -> None:
    for package in page.needs:
        pytest.importorskip(package)
    page.check_python(tmp_path)


@each_page
def test_files_it_speaks_of_are_there(page: Page) -> None:
    page.check_references()


@each_page
def test_every_block_is_of_a_kind_that_is_checked(page: Page) -> None:
    kinds = {"console", "yaml", "python", "text", "bash", "ini"}
    languages = [
        line[3:].split()[0]
        for line in page.text.splitlines()
        if line.startswith("```") and line != "```"
    ]
    assert set(languages) <= kinds, languages


def test_the_architecture_page_names_what_there_is() -> None:
    text = (ROOT / "jobrun" / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", text))
    missing = [n for n in named if not (ROOT / "jobrun" / n).exists() and not (ROOT / n).exists()]
    assert named
    assert not missing
    lines = set(re.findall(r"^\| `(\w+)` \|", text, re.M))
    packages = {p.parent.name for p in (ROOT / "jobrun").glob("*/__init__.py")}
    assert lines == packages


def parts_of_specs() -> list[tuple[str, str]]:
    """The blocks of YAML that are no files: a part of a spec, or one key's alternatives a line."""
    found = []
    for page in PAGES:
        for text in re.findall(r"^```yaml\n(.*?)^```$", page.text, re.M | re.S):
            keys = re.findall(r"^([\w-]+):", text, re.M)
            alternatives = text.splitlines() if len(set(keys)) < len(keys) else [text]
            found += [(page.path.stem, part) for part in alternatives]
    return found


@pytest.mark.parametrize(("page", "text"), parts_of_specs())
def test_parts_of_specs_have_the_keys_of_the_language(page: str, text: str) -> None:
    part = parse(text.encode(), page).root.plain()
    if "jobs" in part:  # the workflow of a CI system
        page_of_ci = Page(ROOT / "jobrun" / "docs" / f"{page}.md")
        run = re.findall(r"- run: (jobrun .*)", text)
        assert run
        assert set(run) <= {command for command, _ in page_of_ci.commands()}
    else:
        SpecModel.model_validate(part)


def fragments() -> list[str]:
    """The parts of specs that stand in the text: an ``epoch``, or one pipe a line."""
    found = []
    for text in re.findall(r"^    ```yaml\n(.*?)^    ```$", OVERVIEW.text, re.M | re.S):
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
    loaded = load(spec)
    builder = built(loaded)
    assert not [*loaded.problems, *builder.problems]
    assert len(builder.made.epoch.tasks) == 1
