"""``jobrun validate``: check specs; nothing is run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from jobrun.cli.options import common, option, settings

if TYPE_CHECKING:
    from jobrun.errors import JobrunError

__all__ = ["command"]


@click.command("validate", short_help="Check specs; nothing is run.")
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True, type=click.Path())
@option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="Set a var or a key.")
@option("--import", "import_", is_flag=True, help="Also import the functions and check the calls.")
@common
def command(specs: tuple[str, ...], sets: tuple[str, ...], import_: bool) -> int:
    """Check specs and show everything that is wrong with them.

    Nothing is run.  Without --import no code of yours is imported either.
    """
    from jobrun.errors import JobrunError

    found: list[dict[str, Any]] = []
    worst = 0
    for spec in specs:
        try:
            found.append(_checked(spec, sets, import_))
        except JobrunError as error:
            worst = worst or error.exit_code
            found.append(_failed(spec, error))
    if settings().json:
        click.echo(json.dumps({"specs": found, "exit_code": worst}))
    return worst


def _checked(spec: str, sets: tuple[str, ...], import_: bool) -> dict[str, Any]:
    from jobrun.check import warnings
    from jobrun.report.words import plain, plural
    from jobrun.spec.build import validate_loaded
    from jobrun.spec.resolve import load

    loaded = load(spec, sets)
    job = validate_loaded(loaded, import_)
    for warning in warnings(job):
        text = f"{warning.where}: warning: {warning.message}; {warning.hint}"
        if not settings().quiet:
            click.echo(plain(text), err=True)
    tasks = sum(len(group) for group in job.groups.values())
    found = {"file": spec, "ok": True, "job": job.name, "tasks": tasks}
    text = f"{plain(spec)}: ok: job {plain(job.name)}, {plural(tasks, 'task')}"
    if loaded.matrix is not None:
        found["runs"] = loaded.matrix.count
        text += f", {plural(loaded.matrix.count, 'run')}"
    if not (settings().json or settings().quiet):
        click.echo(text)
    return found


def _failed(spec: str, error: JobrunError) -> dict[str, Any]:
    from jobrun.cli.failure import problems_of, say_error

    say_error(error, settings())
    return {"file": spec, "ok": False, "problems": problems_of(error)}
