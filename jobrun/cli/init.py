"""``jobrun init``: a small job to start from."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import click

from jobrun.cli.options import common, option, settings
from jobrun.templates import TEMPLATES

__all__ = ["command"]

_RUNS = frozenset({"runs", "runs/", "/runs", "/runs/"})
"""Lines of a .gitignore that leave out runs in the directory ``runs``."""


@click.command("init", short_help="Write a small job that runs as it is.")
@click.argument("directory", default=".", metavar="[DIR]", type=click.Path())
@option(
    "--template",
    type=click.Choice(list(TEMPLATES)),
    default="mlp",
    show_default=True,
    help="The template; --list describes each.",
)
@option("--list", "list_", is_flag=True, help="List the templates.")
@option("--force", is_flag=True, help="Overwrite existing files.")
@common
def command(directory: str, template: str, list_: bool, force: bool) -> None:
    """Write a small job to DIR (default: the current directory): a spec, its code, the schema.

    It runs as it is.  Existing files that differ are not changed without --force.  In a git
    repository, runs/ is added to its .gitignore.
    """
    if list_:
        click.echo(_listed())
        return
    from jobrun.jobspec.schema import FILE, schema_text
    from jobrun.templates import template_files

    folder = Path(directory)
    if directory != template:
        _refuse_template(folder, directory)
    job = template_files(template)
    if not force:
        _refuse_others(folder, job)
    written = _write(folder, {**job, FILE: schema_text().encode()})
    written += _ignore_runs(folder)
    if settings().json:
        click.echo(json.dumps({"template": template, "written": [str(path) for path in written]}))
    elif not settings().quiet:
        _say(written, folder / f"{template}.yaml")


def _listed() -> str:
    if settings().json:
        return json.dumps([{"name": name, "text": text} for name, text in TEMPLATES.items()])
    from jobrun.core.invocation import program

    lines = (f"{name:<7} {text}" for name, text in TEMPLATES.items())
    return "\n".join([*lines, "", f"{program()} init --template NAME"])


def _refuse_template(folder: Path, directory: str) -> None:
    """Raise UsageError if DIR is the name of a template: it would become a new directory."""
    from jobrun.core.invocation import program
    from jobrun.errors import UsageError

    if directory in TEMPLATES and not os.path.exists(folder):
        here = f"{program()} init --template {directory}"
        raise UsageError(
            f"{directory} is a template, and there is no directory of that name",
            hint=f"{here}, or for a new directory: {program()} init ./{directory}",
        )


def _refuse_others(folder: Path, job: Mapping[str, bytes]) -> None:
    """Raise UsageError if a file of the job exists already with other content."""
    from jobrun.errors import UsageError

    others = [folder / name for name in job if _differs(folder / name, job[name])]
    if others:
        names = ", ".join(map(str, others))
        verb = "exists" if len(others) == 1 else "exist"
        hint = "--force overwrites, or name another directory: jobrun init DIR"
        raise UsageError(f"{names} already {verb}; nothing was written", hint=hint)


def _differs(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() != data
    except OSError:  # a directory, or an unreadable file, is not one of the job either
        return os.path.lexists(path)


def _write(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    from jobrun.errors import UsageError

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
    except OSError as error:
        where = error.filename or folder
        raise UsageError(f"{where} cannot be written: {error.strerror}") from None
    return [folder / name for name in files]


def _ignore_runs(folder: Path) -> list[Path]:
    """Add ``runs/`` to the .gitignore of the repository that holds ``folder``, if there is one.

    Return the file, or nothing if it holds such a line already.
    """
    from jobrun.errors import UsageError

    home = folder.absolute()
    root = next((p for p in (home, *home.parents) if os.path.exists(p / ".git")), None)
    if root is None:
        return []
    path = Path(os.path.relpath(root / ".gitignore"))
    try:
        text = path.read_text(encoding="utf-8") if os.path.exists(path) else ""
        if not _RUNS.isdisjoint(text.splitlines()):
            return []
        with path.open("a", encoding="utf-8") as file:
            file.write(("" if text.endswith("\n") or not text else "\n") + "runs/\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"{path} cannot be changed: {why}", hint="add a line: runs/") from None
    return [path]


def _say(written: list[Path], spec: Path) -> None:
    from jobrun.cli.running import command_line
    from jobrun.report.formatting import plain

    for path in written:
        click.echo(f"{plain(path)} written")
    click.echo(f"\n{plain(command_line('train', str(spec)))}")
