"""The command ``jobrun``: finds its commands when they are asked for, and shows every error."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from jobrun.cli.options import Settings, common
from jobrun.cli.signals import Interrupted

__all__ = ["app", "run"]

# Name of the command: its module, and what the list of commands says of it.
_COMMANDS = {
    "train": ("train", "Train the job of a spec, or go on with its run."),
    "resume": ("resume", "Go on with a run, from its end or from an earlier checkpoint."),
    "load-blobs": ("load_blobs", "Show or export the blobs of a checkpoint."),
    "validate": ("validate", "Check specs; nothing is run."),
    "checkpoints": ("checkpoints", "Look at the checkpoints of a run."),
}


class Commands(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of use."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in _COMMANDS:
            return None
        command = import_module(f"jobrun.cli.{_COMMANDS[cmd_name][0]}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As click does, with the nearest commands where there is no such command."""
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            from jobrun.errors import did_you_mean

            hint = did_you_mean(args[0], list(_COMMANDS))
            hint = hint or f"there are {', '.join(_COMMANDS)}"
            ctx.fail(f"no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


def _version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from jobrun import __version__

        click.echo(f"jobrun {__version__}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_version,
    help="Show the version and leave.",
)
@common
def app() -> None:
    """Run iterative numerical jobs that can be killed at any instant and go on.

    Every option can also be given in the environment: --runs-dir as JOBRUN_RUNS_DIR.
    """


def run(args: Sequence[str]) -> int:
    """Run a command; its exit code.  Whatever goes wrong is shown here."""
    settings = Settings()
    try:
        result = app.main(list(args), prog_name="jobrun", obj=settings, standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except click.Abort as abort:  # click's word for KeyboardInterrupt
        cause = abort.__cause__
        code = cause.exit_code if isinstance(cause, Interrupted) else 130
    except SystemExit as leave:  # click ends so where the reader of stdout has gone
        code = leave.code if isinstance(leave.code, int) else 1
    except Exception as error:  # shown as a bug unless it is an error of ours or click's
        from jobrun.cli.failure import show

        code = show(error, settings)
    return _flushed(code)


def _flushed(code: int) -> int:
    """Flush stdout; a reader that has gone is no error, and leaves nothing to say at exit."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
