"""Hooks of mkdocs: pages from elsewhere, and what our Markdown has that mkdocs does not know."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from jobrun import docs
from jobrun.cli.pages import page, pages

ROOT = Path(__file__).parent.parent
ELSEWHERE = {
    "index": "README.md",
    "format": "jobrun/checkpoint/FORMAT.md",
    "contributing": ".github/CONTRIBUTING.md",
}
PICTURE = ".docs/live.svg"
FENCE = re.compile(r"^( *```\w+)(?: file=(\S+))?(?: needs=\w+)?$", re.M)
LINK = re.compile(r"\]\(([\w./-]+\.md)")
COMMAND = re.compile(r"`jobrun docs ([a-z-]+)`")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages made from the code, and those that stand elsewhere in the repository."""
    for name in set(pages()) - set(docs.pages()):
        files.append(File.generated(config, f"{name}.md", content=page(name)))
    for name, path in ELSEWHERE.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        text = LINK.sub(_moved, text).replace(f"({PICTURE})", f"({Path(PICTURE).name})")
        files.append(File.generated(config, f"{name}.md", content=text))
    picture = str(ROOT / PICTURE)
    files.append(File.generated(config, Path(PICTURE).name, abs_src_path=picture))
    return files


def _moved(link: re.Match[str]) -> str:
    """Return a link to a file of the repository as a link to its page."""
    names = {path: name for name, path in ELSEWHERE.items()}
    path = link[1]
    return f"]({names.get(path) or Path(path).stem}.md"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Give blocks of code the titles of their files, and make links of ``jobrun docs PAGE``."""
    text = FENCE.sub(_fence, markdown)
    return COMMAND.sub(lambda m: f"[{m[0]}]({m[1]}.md)", text)


def _fence(found: re.Match[str]) -> str:
    return f'{found[1]} title="{found[2]}"' if found[2] else found[1]
