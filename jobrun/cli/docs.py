"""``jobrun docs``: the pages of the documentation."""

from __future__ import annotations

import json
import sys

import click

from jobrun.cli.options import common, completes, settings, uses_color

__all__ = ["command"]


@click.command("docs", short_help="Read the documentation.")
@click.argument("name", metavar="[PAGE]", required=False, shell_complete=completes("page"))
@common
def command(name: str | None) -> None:
    """Show a page of the documentation; without PAGE, the list of pages.

    On a terminal the page is set for reading; elsewhere it is the Markdown as it is.
    """
    from jobrun.docs import page, pages

    if name is None:
        _list(pages())
        return
    if name not in pages():
        from jobrun.errors import did_you_mean

        hint = did_you_mean(name, list(pages())) or f"there are {', '.join(pages())}"
        raise click.BadParameter(f"no page {name!r}; {hint}", param_hint="PAGE")
    _show(page(name))


def _list(titles: dict[str, str]) -> None:
    if settings().json:
        click.echo(json.dumps({"pages": titles}))
        return
    from jobrun.cli.table import table

    click.echo(table(("page", "about"), list(titles.items())))
    click.echo("\njobrun docs PAGE")


def _show(text: str) -> None:
    if settings().json:
        click.echo(json.dumps({"text": text}))
    elif uses_color(sys.stdout, settings().color):
        from rich.console import Console
        from rich.markdown import Markdown

        console = Console(force_terminal=True)
        with console.capture() as written:
            console.print(Markdown(text))
        click.echo_via_pager(written.get(), color=True)
    else:
        click.echo(text, nl=False)
