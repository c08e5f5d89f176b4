"""Every example of the README is run here, and its output compared."""

from __future__ import annotations

import html
import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
from examples import ROOT, Page

README = Page(ROOT / "README.md")


def test_console_examples_print_what_the_readme_says(tmp_path: Path) -> None:
    assert README.commands()
    README.check_commands(tmp_path)


def test_files_the_readme_speaks_of_are_there() -> None:
    README.check_references()


@pytest.mark.parametrize("target", ["demo", "test", "crash", "bench", "help"])
def test_make_targets_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), target


def test_the_package_index_is_given_no_links_to_files() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    text = README.text
    for rule in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert [link for link in links if not link.startswith("https://")] == []
    assert "tutorial.md, from nothing" in text
    assert ".docs/live.svg" not in text


def test_the_picture_is_that_of_a_run_and_loads_nothing() -> None:
    picture = (ROOT / ".docs" / "live.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(picture)
    shown = html.unescape(picture).replace("\xa0", " ")
    for part in ("epoch 12/40", "batch ", "accuracy 0.9", "checkpoint_12"):
        assert part in shown
    assert not re.search(r"url\(\W*https?:|<image|<script", picture)
