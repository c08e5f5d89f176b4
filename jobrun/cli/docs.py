"""``jobrun docs``: the pages of the documentation."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import click

from jobrun.cli.options import common, completes, option, screen_width, settings, uses_color
from jobrun.core.suggestions import ALL, did_you_mean, did_you_mean_or_all

if TYPE_CHECKING:
    from jobrun.docs import Section

__all__ = ["command"]

_MANY = 12
"""The most headings that are named in an error."""


@click.command("docs", short_help="Read the documentation.")
@click.argument("name", metavar="[PAGE]", required=False, shell_complete=completes("page"))
@click.argument(
    "section", metavar="[SECTION]", nargs=-1, required=False, shell_complete=completes("section")
)
@option("--search", metavar="WORD", help="List the lines with WORD, in PAGE or in all pages.")
@common
def command(name: str | None, section: tuple[str, ...], search: str | None) -> None:
    """Show a page of the documentation, or a section of it; without PAGE, the list of pages.

    SECTION is a heading of the page, or a part of one.  On a terminal the text is set for reading;
    elsewhere it is the Markdown of the page.
    """
    from jobrun.cli.pages import page, pages

    titles = pages()
    if name is not None and name not in titles:
        hint = did_you_mean_or_all(name, list(titles), most=ALL)
        raise click.BadParameter(f"no page {name!r}; {hint}", param_hint="PAGE")
    if search is not None:
        if section:
            raise click.UsageError("--search looks through whole pages: give no SECTION")
        _search(search, list(titles) if name is None else [name])
    elif name is None:
        _list(titles)
    else:
        _show(_section(name, " ".join(section)) if section else page(name))


def _list(titles: dict[str, str]) -> None:
    if settings().json:
        click.echo(json.dumps({"pages": titles}))
        return
    from jobrun.cli.table import table

    click.echo(table(("page", "about"), list(titles.items()), width=screen_width(), flows=True))
    click.echo("\njobrun docs PAGE [SECTION]\njobrun docs --search WORD")


def _section(name: str, words: str) -> str:
    """Return the Markdown of the only section of a page that ``words`` name."""
    from jobrun.cli.pages import page
    from jobrun.docs import matching, sections

    title, *found = sections(page(name))
    hits = matching(found, words) or matching([title], words)
    if len(hits) == 1:
        return hits[0].text
    headings = [section.heading for section in hits or found]
    what = f"no section {words!r}" if not hits else f"{len(hits)} sections match {words!r}"
    hint = "" if hits else _mentions(words, found) or did_you_mean(words, headings)
    few = ", ".join(map(repr, headings[:_MANY])) + ", …" * (len(headings) > _MANY)
    hint = hint or f"{'they are' if hits else 'it has'} {few}"
    raise click.BadParameter(f"{what} in page {name!r}; {hint}", param_hint="SECTION")


def _mentions(words: str, found: list[Section]) -> str:
    """Return a hint with the sections that hold ``words``, those first that do so most often."""
    from jobrun.docs import mentions

    counts = {section.heading: mentions(section.own, words) for section in found}
    most = sorted(filter(counts.__getitem__, counts), key=counts.__getitem__, reverse=True)
    return f"it is mentioned in {', '.join(map(repr, most[:_MANY]))}" if most else ""


def _search(words: str, names: list[str]) -> None:
    from jobrun.cli.pages import MADE, page
    from jobrun.docs import search

    # What a person wrote comes first: the pages made from the code name every word somewhere.
    ordered = sorted(names, key=MADE.__contains__)
    found = list(search(words, {name: page(name) for name in ordered}))
    if not found:
        from jobrun.errors import NotFoundError

        where = f"page {names[0]!r}" if len(names) == 1 else "any page"
        raise NotFoundError(
            f"no line of {where} contains {' and '.join(map(repr, words.split()))}",
            hint="jobrun docs lists the pages; try fewer or shorter words",
        )
    if settings().json:
        rows = [{"page": n, "section": s.heading, "line": line} for n, s, line in found]
        click.echo(json.dumps({"found": rows}))
        return
    from jobrun.cli.table import table

    lines = [(name, section.heading, line) for name, section, line in found]
    click.echo(table(("page", "section", "line"), lines, width=screen_width(), flows=True))
    click.echo("\njobrun docs PAGE SECTION")


def _show(text: str) -> None:
    if settings().json:
        click.echo(json.dumps({"text": text}))
    elif uses_color(sys.stdout, settings().color):
        from rich.console import Console
        from rich.markdown import Markdown

        console = Console(force_terminal=True)
        with console.capture() as written:
            console.print(Markdown(text))
        _page(written.get())
    else:
        click.echo(text, nl=False)


def _page(text: str) -> None:
    """Show coloured text in the pager.

    less shows escape codes as text unless it is given ``-R``.  Where LESS is not set it is set as
    git does; where it is set, click keeps the colours only if it has ``-R``.
    """
    is_set = bool(os.environ.get("LESS"))
    if not is_set:
        os.environ["LESS"] = "FRX"
    click.echo_via_pager(text, color=None if is_set else True)
