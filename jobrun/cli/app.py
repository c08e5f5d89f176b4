"""The command ``jobrun``: it loads its commands when used, and shows every error."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from jobrun.cli.group import Commands, LazyGroup
from jobrun.cli.options import Settings, common
from jobrun.cli.streams import flush_stdout
from jobrun.core.notices import received_by
from jobrun.core.paths import seen_from_here

__all__ = ["app", "run"]

_COMMANDS: Commands = {
    "init": ("init", "Write a small job that runs as it is."),
    "train": ("train", "Train the job of a spec, or resume its run."),
    "resume": ("resume", "Resume a run, from its end or from an earlier checkpoint."),
    "runs": ("runs", "List runs with their states and metrics."),
    "sweep": ("sweep", "Show the members of a sweep, with their numbers and states."),
    "show": ("show", "Show what a run did, how long it took, and why it ended."),
    "metrics": ("metrics", "Show, draw or export the metrics of runs, epoch by epoch."),
    "compare": ("compare", "Show how runs differ: spec, metrics, code, libraries."),
    "report": ("report", "Write an HTML page about runs: curves, times, checkpoints."),
    "load-blobs": ("load_blobs", "Show or export the blobs of a checkpoint."),
    "logs": ("logs", "Show the log of a run, and what its tasks printed."),
    "tag": ("tag", "Give runs tags, to find them again."),
    "note": ("note", "Write a note about a run."),
    "rm": ("rm", "Remove runs."),
    "validate": ("validate", "Check specs without running anything."),
    "graph": ("graph", "Draw the tasks of a spec and the blobs between them."),
    "smoke": ("smoke", "Check that a job runs, and resumes to the same bits."),
    "render": ("render", "Show a spec with its defaults and what is set."),
    "schema": ("schema", "Print the JSON Schema of specs, for editors."),
    "completion": ("completion", "Print the completion script of a shell."),
    "checkpoints": ("checkpoints", "Inspect, verify, compare and prune checkpoints."),
    "docs": ("docs", "Read the documentation."),
}


def _version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from jobrun._version import __version__

        click.echo(f"jobrun {__version__}")
        ctx.exit()


@click.group(
    cls=LazyGroup, table=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_version,
    help="Show the version and exit.",
)
@common
def app() -> None:
    """Run iterative numerical jobs that can be killed at any instant and resumed.

    Every option can also be given in the environment: --runs-dir as JOBRUN_RUNS_DIR.
    """


def run(args: Sequence[str]) -> int:
    """Run a command; return its exit code.  All errors are shown here."""
    with seen_from_here(), received_by(_show):
        return _run(args)


def _show(notice: str) -> None:
    """Print a notice of a command that runs no job."""
    from jobrun.core.masking import mask
    from jobrun.report.formatting import plain

    click.echo(f"warning: {plain(mask(notice))}", err=True)


def _run(args: Sequence[str]) -> int:
    settings, stdout = Settings(), sys.stdout
    if "_JOBRUN_COMPLETE" in os.environ:
        return _complete(args)
    try:
        result = app.main(list(args), prog_name="jobrun", obj=settings, standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except click.Abort:  # click's name for KeyboardInterrupt
        code = 130
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 1
        if sys.stdout is not stdout:  # click does so if the reader of stdout has gone
            code = 0
    except Exception as error:  # shown as a bug unless it is an error of jobrun or click
        from jobrun.cli.failure import show

        settings.json = settings.json or "--json" in args  # if they could not be parsed to the end
        code = show(error, settings)
    why = flush_stdout()
    if why and code == 0:  # else the error has been reported
        from jobrun.cli.failure import not_written, show

        return show(not_written(why), settings)
    return code


def _complete(args: Sequence[str]) -> int:
    """Answer a shell that completes a line; errors are silent."""
    from jobrun.cli.shells import register

    register()
    with suppress(Exception, SystemExit):
        app.main(list(args), prog_name="jobrun", obj=Settings(), standalone_mode=False)
    flush_stdout()
    return 0
