"""The observers of a run: progress on stderr, the files of the run, further reporters."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from jobrun.cli.failure import error_values, show_error
from jobrun.cli.options import Settings, uses_color
from jobrun.core.events import Report
from jobrun.engine.resume_policy import Request
from jobrun.errors import JobrunError
from jobrun.model.job import Job
from jobrun.report import Broadcast, RunFiles
from jobrun.report.background import Aside
from jobrun.report.json_lines import JsonLines
from jobrun.report.lines import Lines
from jobrun.report.log_file import Prints
from jobrun.report.registry import open_reporters, parse_reporter
from jobrun.usercode.bind import bind

__all__ = ["Watching"]


@dataclass
class Watching:
    """The progress options: ``how`` (None: chosen automatically), and reporters by name.

    ``instead`` receives the events in place of the view on stderr, and ``on_error`` the error
    that ended the run.
    """

    settings: Settings
    how: str | None = None
    names: Sequence[str] = ()
    instead: Report | None = None
    on_error: Callable[[dict[str, Any]], None] | None = None

    def fan(self, prints: Prints) -> Broadcast:
        """Return the reporters of progress and of the files of the run."""
        fan = Broadcast(self.instead or self._progress(prints))
        fan.add("files", lambda: RunFiles(fan, prints))
        return fan

    def reporters(self, job: Job, request: Request, fan: Broadcast) -> list[Aside]:
        """Return the reporters of the job and the command line; raises BindError, UsageError."""
        wanted = [*job.reporters, *map(parse_reporter, self.names)]
        find = partial(bind, folder=request.folder)
        found = open_reporters(wanted, fan, request.spec_dir, find)
        for aside in found:
            fan.attach(aside)
        return found

    def show_error(self, error: JobrunError) -> None:
        """Show the error that ended a run."""
        if self.on_error is not None:
            self.on_error({"event": "Error", **error_values(error)})
        else:
            show_error(error, self.settings)

    def _progress(self, prints: Prints) -> Report:
        stderr = prints.err.stream  # jobrun's own output is not a print of a task
        verbosity = self.settings.verbosity
        terminal = stderr.isatty() and os.environ.get("TERM") != "dumb"
        how = self.how or self._usual(terminal)
        if how == "live" and not terminal:
            click.echo("warning: stderr is not a terminal: progress is shown as lines", err=True)
            how = "lines"
        if how == "json":
            tees = (prints.err, prints.out) if self.settings.json else (prints.err,)
            lines = JsonLines(stderr, *tees)
            self.on_error = lines.write
            return lines
        if how == "live":
            from jobrun.report.live import LiveView  # 2.5 ms, which a run without a terminal saves
            from jobrun.report.terminal import Painter

            painter = Painter(stderr, uses_color(stderr, self.settings.color))
            return LiveView(painter, prints, verbosity)
        return Lines(stderr, -1 if how == "none" else verbosity)

    def _usual(self, terminal: bool) -> str:
        plain = not terminal or self.settings.json or self.settings.verbosity != 0
        return "lines" if plain else "live"
