"""``jobrun schema``: the spec language as a JSON Schema, for editors."""

from __future__ import annotations

import json
from pathlib import Path

import click

from jobrun.cli.options import common, option, settings

__all__ = ["command"]


@click.command("schema", short_help="Print the JSON Schema of specs, for editors.")
@option(
    "--write",
    is_flag=False,
    flag_value=".",
    type=click.Path(),
    metavar="[DIR]",
    help="Write it to DIR (default: the current directory) as jobrun.schema.json.",
)
@common
def command(write: str | None) -> None:
    """Print the JSON Schema (2020-12) of specs, or --write it beside them.

    An editor with yaml-language-server then completes keys, explains them, and marks what is
    wrong, in every spec whose first line is

    \b
    # yaml-language-server: $schema=./jobrun.schema.json
    """
    from jobrun.jobspec.schema import schema_text

    if write is None:
        click.echo(schema_text(), nl=False)
        return
    path = _written(Path(write), schema_text())
    if settings().json:
        click.echo(json.dumps({"written": str(path)}))
    elif not settings().quiet:
        _say(path)


def _written(folder: Path, text: str) -> Path:
    """Write the schema into a folder; raises UsageError if that fails."""
    from jobrun.jobspec.schema import FILE
    from jobrun.storage.atomic_file import write_text

    path = folder / FILE
    write_text(path, text)
    return path


def _say(path: Path) -> None:
    from jobrun.report.formatting import plain

    click.echo(f"{plain(path)} written; specs beside it begin with")
    click.echo(f"# yaml-language-server: $schema=./{path.name}")
