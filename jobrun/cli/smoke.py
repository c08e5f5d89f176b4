"""``jobrun smoke``: check that a job runs, and resumes after kills with the same bits."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobrun.cli.options import code_option, common, option, sets_option, settings, specs_argument

if TYPE_CHECKING:
    from jobrun.tools.smoke import Smoke, Step

__all__ = ["command"]


@click.command("smoke", short_help="Check that a job runs, and resumes after kills.")
@specs_argument
@sets_option
@option(
    "--epochs",
    metavar="N",
    type=click.IntRange(min=2),
    default=2,
    show_default=True,
    help="Stop after N epochs.",
)
@option(
    "--batches",
    metavar="N",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Read at most N batches an epoch.",
)
@option("--junit", metavar="FILE", type=click.Path(), help="Write the results as JUnit XML.")
@option("--dir", "folder", metavar="DIR", type=click.Path(), help="Keep the runs in DIR.")
@code_option("The folder of the code, if not the spec's.")
@common
def command(
    specs: tuple[str, ...],
    sets: tuple[str, ...],
    epochs: int,
    batches: int,
    junit: str | None,
    folder: str | None,
    code: str | None,
) -> int:
    """Run each SPEC for a few short epochs, twice, and compare the end, bit for bit.

    Once undisturbed, the inputs of every task checked for silent changes; once killed after a save
    of an epoch and after a save inside one, and resumed.  Nothing is left behind.  In GitHub
    Actions the results are added to the step summary.
    """
    from jobrun.tools.smoke import smoke

    results = []
    for number, spec in enumerate(specs, 1):
        _say(f"{spec}:")
        with _folder(folder, f"{number}-{Path(spec).stem}") as own:
            result = smoke(spec, sets, own, epochs=epochs, batches=batches, code=code)
        for step in result.steps:
            _say_step(step)
        results.append(result)
    _write(results, junit)
    ended = next((r.exit_code for r in results if not r.ok), 0)
    if settings().json:
        click.echo(json.dumps({"specs": [asdict(r) for r in results], "exit_code": ended}))
    return ended


@contextmanager
def _folder(kept: str | None, name: str) -> Iterator[Path]:
    """Yield a folder for the runs of a spec: a temporary one, or a new one in ``kept``."""
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="jobrun-smoke-") as made:
            yield Path(made)
        return
    path = Path(kept) / name
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        raise click.UsageError(f"{path} already exists; --dir expects a new directory") from None
    except OSError as error:
        raise click.UsageError(f"--dir {path} cannot be made: {error.strerror}") from None
    yield path


def _say(text: str) -> None:
    from jobrun.report.formatting import plain

    if not (settings().json or settings().quiet):
        click.echo(plain(text))


def _say_step(step: Step) -> None:
    from jobrun.core.text import duration
    from jobrun.report.formatting import plain

    mark = {"ok": "ok", "failed": "FAILED", "skipped": "skipped"}[step.status]
    if step.status != "failed":
        _say(f"  {step.name + ':':16} {mark}, {duration(step.seconds)}: {step.text}")
        return
    if not settings().json:
        click.echo(plain(f"  {step.name + ':':16} {mark}: {step.text}"))
        for line in plain(step.details).splitlines():
            click.echo(f"    {line}", err=True)


def _write(results: Sequence[Smoke], junit: str | None) -> None:
    from jobrun.report import ci
    from jobrun.report.formatting import plain
    from jobrun.storage.atomic_file import write_text

    if junit is not None:
        write_text(Path(junit), ci.junit(results))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        try:
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(ci.step_summary(results))
        except OSError as error:  # the results are on stdout, too
            text = f"warning: the step summary {summary} cannot be written: {error.strerror}"
            click.echo(plain(text), err=True)
