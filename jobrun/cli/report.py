"""``jobrun report``: one HTML file about one run or several."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobrun.cli.options import common, completes, option, runs_dir, settings
from jobrun.core.paths import typed

if TYPE_CHECKING:
    from jobrun.runs.rundir import RunDir
    from jobrun.runs.sweepdir import SweepDir

__all__ = ["command"]

_REFRESH = 5.0
"""Seconds between two versions of a page that is watched."""
_SHARE = 10
"""A page that takes long to write is written less often: this many times its own time apart."""


@click.command("report", short_help="Write an HTML page about runs: curves, times, checkpoints.")
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=completes("run_or_spec"))
@option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    default="report.html",
    show_default=True,
    help="The file to write.",
)
@option("--watch", is_flag=True, help="Write it again until the runs end; the page reloads.")
@runs_dir
@common
def command(runs: tuple[str, ...], output: str, watch: bool, runs_dir: str) -> None:
    """Write one HTML file about RUN (default: a running one, else the newest), or several.

    It needs neither network nor server: curves, a table of the runs, differences, a timeline,
    graphs with times, checkpoints, specs and logs.  RUN may also be a sweep: all its runs.  Needs
    the extra jobrun[report].
    """
    from jobrun.html_report.page import check_packages

    check_packages()
    subjects = _find(runs_dir, runs)
    if watch:
        _watch(subjects, output)
    size = _write(subjects, output)
    if settings().json:
        names = [typed(run.path) for run in _runs_of(subjects)]
        click.echo(json.dumps({"output": typed(Path(output)), "bytes": size, "runs": names}))
    else:
        _say(output, size)


def _find(runs_dir: str, arguments: Sequence[str]) -> list[RunDir | SweepDir]:
    """Return the runs and sweeps that are named."""
    from jobrun.runs.find import find_run, find_sweep

    found: list[RunDir | SweepDir] = []
    for argument in arguments or (None,):
        sweep = find_sweep(runs_dir, argument) if argument is not None else None
        found.append(sweep or find_run(runs_dir, argument))
    return found


def _runs_of(subjects: Sequence[RunDir | SweepDir]) -> list[RunDir]:
    """Return the runs, those of sweeps that have begun by now included, each once."""
    from jobrun.runs.find import runs_begun
    from jobrun.runs.sweepdir import SweepDir

    found: dict[Path, RunDir] = {}
    for subject in subjects:
        runs = runs_begun(subject) if isinstance(subject, SweepDir) else [subject]
        found |= {run.path.absolute(): run for run in runs}
    return list(found.values())


def _write(subjects: Sequence[RunDir | SweepDir], output: str, refresh: float = 0) -> int:
    """Write the page; return its size in bytes."""
    from jobrun.html_report.page import page
    from jobrun.runs.sweepdir import SweepDir
    from jobrun.storage.atomic_file import write_text

    sweeps = [subject.name for subject in subjects if isinstance(subject, SweepDir)]
    sweep = sweeps[0] if len(subjects) == len(sweeps) == 1 else ""
    write_text(Path(output), page(_runs_of(subjects), sweep=sweep, refresh=refresh))
    return os.path.getsize(output)


def _watch(subjects: Sequence[RunDir | SweepDir], output: str) -> None:
    """Write the page again and again until no run is running, or Ctrl-C."""
    try:
        _repeat(subjects, output, time.sleep)
    except KeyboardInterrupt:  # the usual way to stop watching
        return


def _repeat(
    subjects: Sequence[RunDir | SweepDir], output: str, sleep: Callable[[float], None]
) -> None:
    first = True
    while any(subject.held() for subject in subjects):
        begun = time.monotonic()
        size = _write(subjects, output, _REFRESH)
        if first and not settings().quiet:
            _say(output, size)
        first = False
        sleep(max(_REFRESH, _SHARE * (time.monotonic() - begun)))


def _say(output: str, bytes: int) -> None:
    from jobrun.core.text import size
    from jobrun.report.formatting import plain

    click.echo(f"{plain(output)} written ({size(bytes)})")
