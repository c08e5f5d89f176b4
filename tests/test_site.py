"""The site of the documentation: every page is in it, and no link is dead."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from jobrun.cli.pages import pages

ROOT = Path(__file__).parent.parent
DOCS = ROOT / ".docs"
ELSEWHERE = {"index", "format", "contributing"}
needs_mkdocs = pytest.mark.skipif(
    find_spec("material") is None, reason="mkdocs-material is not installed: jobrun[docs]"
)


def test_every_page_is_in_the_navigation() -> None:
    config = yaml.safe_load((DOCS / "mkdocs.yml").read_text())
    entries = [page for group in config["nav"] for page in next(iter(group.values()))]
    files = [file for entry in entries for file in entry.values()]
    assert sorted(files) == sorted(f"{name}.md" for name in {*pages(), *ELSEWHERE})


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """What mkdocs says; with ``-q`` it would not count warnings."""
    words = [sys.executable, "-m", "mkdocs", "build", "-f", str(config), "-d", str(site)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)


class _Text(HTMLParser):
    """The text of an article, without its code."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self._skipped = 0
        self._inside = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._inside |= tag == "article"
        self._skipped += tag in ("pre", "code")

    def handle_endtag(self, tag: str) -> None:
        self._inside &= tag != "article"
        self._skipped -= tag in ("pre", "code")

    def handle_data(self, data: str) -> None:
        if self._inside and not self._skipped:
            self.text += data


@needs_mkdocs
def test_the_site_is_built_strictly(tmp_path: Path) -> None:
    done = build(DOCS / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    found = {path.stem for path in (tmp_path / "site").glob("*.html")} - {"404"}
    assert found == {*pages(), *ELSEWHERE}
    for path in sorted((tmp_path / "site").glob("*.html")):
        html = path.read_text(encoding="utf-8")
        assert not re.search(r'(?:src|href)="https?://[^"]*\.(?:js|css|woff2?)', html), path
        article = _Text()
        article.feed(html)
        for mark in ("```", "\n- ", "|--", "**"):
            assert mark not in article.text, f"{path.name}: Markdown that was not read: {mark}"


@needs_mkdocs
def test_a_dead_link_or_anchor_is_an_error(tmp_path: Path) -> None:
    for name in (".docs", "jobrun/docs", "jobrun/checkpoint", ".github"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.py[c]"))
    with (tmp_path / "README.md").open("w", encoding="utf-8") as file:
        file.write("# jobrun\n\n[x](nowhere.md) [y](jobrun/docs/spec.md#nowhere)\n")
    done = build(tmp_path / ".docs" / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 1
    for link in ("'nowhere.md'", "'spec.md#nowhere'"):
        assert f"WARNING -  Doc file 'index.md' contains a link {link}" in done.stderr
