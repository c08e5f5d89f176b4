"""The pages that ``jobrun docs`` shows: those in ``jobrun.docs``, and those made from the code."""

from __future__ import annotations

from importlib import import_module

from jobrun import docs

__all__ = ["MADE", "page", "pages"]

MADE = {
    "api": "Python API: the public names, from their docstrings",
    "commands": "Commands: every command and its options",
    "keys": "Keys: every key of a spec, its type, default and examples",
}
"""The titles of the pages made by modules of ``jobrun.cli.reference``, which import much."""


def pages() -> dict[str, str]:
    """Return every page: its name and its title, in the order of the names."""
    return dict(sorted({**docs.pages(), **MADE}.items()))


def page(name: str) -> str:
    """Return the Markdown of a page.  Raises FileNotFoundError."""
    if name not in MADE:
        return docs.page(name)
    text: str = import_module(f"jobrun.cli.reference.{name}").markdown()
    return f"# {MADE[name]}\n\n{text}"
