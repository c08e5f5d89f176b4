"""Every example of the README is run here, and its output compared."""

from __future__ import annotations

import re
from pathlib import Path

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


def test_the_live_view_is_that_of_its_page() -> None:
    (view,) = (text for _, text in README.blocks("text"))
    assert view in (ROOT / "jobrun" / "docs" / "progress.md").read_text(encoding="utf-8")
