"""The pages of the documentation: Markdown files in this folder, shown by ``jobrun docs``."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["page", "pages"]


def pages() -> dict[str, str]:
    """Every page: its name and its title, in the order of the names."""
    names = sorted(f.name[:-3] for f in files(__name__).iterdir() if f.name.endswith(".md"))
    return {name: page(name).split("\n", 1)[0].removeprefix("# ") for name in names}


def page(name: str) -> str:
    """The text of a page.  Raises FileNotFoundError."""
    return (files(__name__) / f"{name}.md").read_text(encoding="utf-8")
