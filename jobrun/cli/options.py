"""Options: each has a ``JOBRUN_*`` twin; common ones stand before or after the command."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import IO, Any, TextIO, TypeVar, cast

import click
from click.core import ParameterSource

__all__ = [
    "PROGRESS",
    "RunOptions",
    "Settings",
    "best_checkpoint",
    "best_path",
    "code_option",
    "common",
    "completes",
    "one_checkpoint",
    "option",
    "run_options",
    "runs_dir",
    "screen_width",
    "sets_option",
    "settings",
    "specs_argument",
    "uses_color",
]

F = TypeVar("F", bound=Callable[..., Any])
_UNSET = "unset "  # ``spec.overrides.UNSET``, which is not imported for --help
PROGRESS = ("live", "lines", "json", "none")
_IN_TASK = "JOBRUN_SPEC_DIR"
"""The variable that marks the environment of a ``shell`` task."""
_OF_TASKS = {_IN_TASK, "JOBRUN_RUN_DIR", "JOBRUN_EPOCH", "JOBRUN_NODE"}
"""Variables that ``jobrun.session.shell.program`` sets as information, not as options."""


@dataclass
class Settings:
    """The common options of all commands."""

    quiet: bool = False
    verbose: bool = False
    json: bool = False
    color: str = "auto"
    traceback: bool = False

    @property
    def verbosity(self) -> int:
        """The verbosity, -1: quiet, 0, 1: verbose; the louder wins."""
        return 1 if self.verbose else -1 if self.quiet else 0


def settings() -> Settings:
    """Return the settings of the running command."""
    found = click.get_current_context().find_root().obj
    assert isinstance(found, Settings)
    return found


class _Option(click.Option):
    """An option; a variable of a ``shell`` task with the name of its twin does not set it."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the value in the environment."""
        if self.envvar in _OF_TASKS and _IN_TASK in os.environ:
            return None
        return super().resolve_envvar_value(ctx)


def option(*names: str, **attributes: Any) -> Callable[[F], F]:
    """Return an option with its twin in the environment: ``--runs-dir``, ``JOBRUN_RUNS_DIR``."""
    long = next(n for n in names if n.startswith("--"))
    twin = "JOBRUN_" + long[2:].replace("-", "_").upper()
    return click.option(*names, cls=_Option, envvar=twin, **attributes)


def completes(what: str) -> Callable[..., list[Any]]:
    """Return ``complete_<what>`` of ``jobrun.cli.complete``, imported when used; errors silent."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
        from jobrun.cli import complete as completers

        try:
            found: list[Any] = getattr(completers, f"complete_{what}")(ctx, parameter, incomplete)
        except Exception:  # a broken spec or run must not disturb the line being typed
            return []
        return found

    return complete


def _remember(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Store a common option; the command line takes precedence over the environment."""
    if value is None or not parameter.name or ctx.resilient_parsing:
        return
    typed: set[str] = ctx.meta.setdefault("jobrun.typed", set())  # the same for all commands
    if ctx.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
        typed.add(parameter.name)
    elif parameter.name in typed:
        return
    setattr(ctx.find_root().obj, parameter.name, value)


def common(command: F) -> F:
    """Add the common options of all commands."""
    flag: dict[str, Any] = {
        "is_flag": True,
        "default": None,
        "expose_value": False,
        "is_eager": True,
        "callback": _remember,
    }
    choice = flag | {"is_flag": False, "type": click.Choice(["auto", "always", "never"])}
    for decorate in (
        option("--traceback", help="Show the traceback of every error.", **flag),
        option("--color", metavar="WHEN", help="Use colour: auto, always or never.", **choice),
        option("--json", help="Write only JSON to stdout.", **flag),
        option("-v", "--verbose", help="Show more detail.", **flag),
        option("-q", "--quiet", help="Show only results, warnings and errors.", **flag),
    ):
        command = decorate(command)
    return command


def runs_dir(command: F) -> F:
    """Add ``--runs-dir``."""
    return option(
        "--runs-dir",
        metavar="DIR",
        default="runs",
        show_default=True,
        type=click.Path(),
        help="The directory of the runs.",
    )(command)


def sets_option(command: F) -> F:
    """Add ``--set`` and ``--unset``, which the command receives together as ``sets``."""

    @wraps(command)
    def both(*args: Any, sets: tuple[str, ...], unsets: tuple[str, ...], **options: Any) -> Any:
        dropped = (f"{_UNSET}{name}" for name in unsets)
        return command(*args, sets=(*sets, *dropped), **options)

    unset = option(
        "--unset",
        "unsets",
        metavar="NAME",
        multiple=True,
        help="Drop a key, a task or a var.",
    )
    with_set = option(
        "--set",
        "sets",
        metavar="NAME=VALUE",
        multiple=True,
        help="Set a var or a key; null drops a key.",
        shell_complete=completes("set"),
    )
    return cast(F, with_set(unset(both)))


def code_option(help: str) -> Callable[[F], F]:
    """Return ``--code``, which names the folder of the code."""
    folder = click.Path(exists=True, file_okay=False)
    return option("--code", type=folder, metavar="DIR", help=help)


def specs_argument(command: F) -> F:
    """Add the argument of one or more specs, for commands that check them."""
    return click.argument(
        "specs",
        metavar="SPEC...",
        nargs=-1,
        required=True,
        type=click.Path(),
        shell_complete=completes("spec"),
    )(command)


def _epochs(text: str) -> str:
    """Return a number of epochs in total, ``20``, or after the end of a run, ``+5``."""
    digits = text.removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and int(digits) > 0):
        raise click.BadParameter(f"{text!r} is not a number of epochs: 20, or +5 after its end")
    return text


@dataclass(frozen=True)
class RunOptions:
    """The common options of ``train`` and ``resume``.

    ``more_epochs`` are those after the end of the run, instead of a number in total (0: none).
    ``jobs`` and ``fail_fast`` are for sweeps: runs at a time, and whether none is started after one
    has failed.  ``wait``: until no other process holds the run.  ``progress`` is the form of the
    output on stderr (None: chosen automatically).
    Raises UsageError for ``shapes`` without ``dry_run``.
    """

    epochs: int | None
    more_epochs: int
    threads: int | None
    scheduler: str | None
    runs_dir: str
    dry_run: bool
    shapes: bool
    check: bool
    jobs: int
    fail_fast: bool
    wait: bool
    progress: str | None
    reporters: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.shapes and not self.dry_run:
            raise click.UsageError("--shapes is for a dry run: add -n")

    @property
    def other_runs_dir(self) -> str | None:
        """The directory of the runs, if a command to type has to name it."""
        return None if self.runs_dir == "runs" else self.runs_dir


def run_options(command: F) -> F:
    """Add the common options of ``train`` and ``resume``, which are received as ``options``."""
    names = [field.name for field in fields(RunOptions)]

    @wraps(command)
    def collected(**values: Any) -> Any:
        number = str(values["epochs"] or "")
        more = number.startswith("+")
        values["epochs"] = int(number) if number and not more else None
        values["more_epochs"] = int(number) if more else 0
        options = RunOptions(**{name: values.pop(name) for name in names})
        return command(options=options, **values)

    number = click.IntRange(min=1)
    epochs = "Stop after N epochs in total; +N: after the end of the run."
    shapes = "With -n: run setup and init for the sizes of the blobs."
    check = "Find functions that change their inputs silently (slow)."
    for decorate in (
        _progress_options,
        _sweep_options,
        _lock_option,
        option("--check", is_flag=True, help=check),
        option("--wait", is_flag=True, help="Wait while another process holds the run."),
        option("--shapes", is_flag=True, help=shapes),
        option("-n", "--dry-run", is_flag=True, help="Show what would be done, and do nothing."),
        runs_dir,
        option("--scheduler", metavar="ADDRESS", help="Run on a dask cluster: tcp://host:8786."),
        option("--threads", type=number, metavar="N", help="Number of tasks to run at a time."),
        option("--epochs", type=_epochs, metavar="N|+N", help=epochs),
    ):
        collected = decorate(collected)
    return cast(F, collected)


def _lock_option(command: F) -> F:
    """Add ``--lock``, which also applies to the processes that this one starts."""

    def choose(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None and not ctx.resilient_parsing:
            os.environ["JOBRUN_LOCK"] = value

    return option(
        "--lock",
        type=click.Choice(["auto", "flock", "file", "none"]),
        expose_value=False,
        callback=choose,
        help="How a run is locked; auto: by flock, else by files. See jobrun docs filesystems.",
    )(command)


def _sweep_options(command: F) -> F:
    """Add the options of sweeps, which single runs ignore."""
    jobs = option(
        "--jobs",
        "-j",
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
        help="Number of runs of a sweep at a time.",
    )
    text = "Start no further run of a sweep after one has failed."
    return jobs(option("--fail-fast", is_flag=True, help=text)(command))


def _progress_options(command: F) -> F:
    """Add ``--progress`` and ``--reporter``."""
    progress = option(
        "--progress",
        type=click.Choice(PROGRESS),
        help="How progress is shown on stderr: live on a terminal, else lines.",
    )
    reporter = option(
        "--reporter",
        "reporters",
        metavar="NAME[:VALUE]",
        multiple=True,
        help="Add a reporter: tensorboard, mlflow, ….",
    )
    return progress(reporter(command))


def one_checkpoint(command: F) -> F:
    """Add ``--epoch`` and ``--id``, which name one checkpoint of a run."""
    number = click.IntRange(min=0)
    epoch = option(
        "--epoch",
        type=number,
        metavar="N",
        help="The checkpoint at the end of epoch N.",
        shell_complete=completes("epoch"),
    )
    id = option(
        "--id", type=number, metavar="K", help="checkpoint_K.", shell_complete=completes("id")
    )
    return epoch(id(command))


def best_checkpoint(command: F) -> F:
    """Add ``--best`` and ``--by``, which name the best checkpoint of a run by a metric."""
    best = option("--best", is_flag=True, help="The best one.")
    by = option(
        "--by",
        metavar="METRIC",
        help="The metric to rank by: loss, or loss:min.",
        shell_complete=completes("metric"),
    )
    return best(by(command))


def best_path(
    runs_dir: str, run: str | None, by: str | None, epoch: int | None, id: int | None
) -> Path:
    """Return the path of the best checkpoint of a run; raises UsageError if others are named."""
    from jobrun.engine.best_metric import best_of
    from jobrun.runs.find import find_run

    if epoch is not None or id is not None:
        raise click.UsageError("a checkpoint is named by --epoch, --id or --best: one of them")
    return best_of(find_run(runs_dir, run), by)


def uses_color(stream: IO[str], when: str) -> bool:
    """Return whether to use colours: the option, else NO_COLOR, FORCE_COLOR, TERM, the stream."""
    if when != "auto":
        return when == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return os.environ.get("TERM") != "dumb" and stream.isatty()


def screen_width(stream: TextIO | None = None) -> int | None:
    """Return the columns of the terminal of stdout, or of ``stream``.

    None if it is not one: then nothing is cut.
    """
    try:
        if not (stream or sys.stdout).isatty():
            return None
    except ValueError:  # a task has closed it
        return None
    import shutil

    return shutil.get_terminal_size().columns
