"""The output of errors: text on stderr, an object on stdout under ``--json``, the exit code."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import traceback
from contextlib import suppress

import click

from jobrun.cli.machine_limits import limit_error
from jobrun.cli.options import Settings, uses_color
from jobrun.core.async_exceptions import asynchronous_error
from jobrun.core.masking import mask, masked
from jobrun.errors import (
    BindError,
    DamagedError,
    JobrunError,
    Problem,
    SpecError,
    UsageError,
    Where,
)
from jobrun.report.formatting import plain

__all__ = [
    "error_values",
    "not_written",
    "problem_values",
    "show",
    "show_error",
    "where_and_what",
]

EXIT_BUG = 1


def show(error: Exception, settings: Settings) -> int:
    """Show an error; return its exit code."""
    error = asynchronous_error(error) or error
    if isinstance(error, click.ClickException):
        if error.message.startswith("Got unexpected extra argument") and "=" in error.message:
            context = getattr(error, "ctx", None)
            text = f"{error.message}; a var is set with --set NAME=VALUE"
            error = click.UsageError(text, context)
        error.message = plain(error.message)  # type: ignore[misc]
        error.show()
        code, values = error.exit_code, error_values(_usage(error))
    else:
        if isinstance(error, OSError) and _raised_by_echo(error):
            error = not_written(error)
        error = limit_error(error) or error
        if isinstance(error, DamagedError) and not error.hint and "checkpoint_" in str(error):
            error.hint = f"{_verify(error)} names all that is damaged"
        code = error.exit_code if isinstance(error, JobrunError) else EXIT_BUG
        show_error(error, settings)
        values = error_values(error)
    if settings.json:
        with suppress(OSError):  # stdout may be the stream that cannot be written
            print(json.dumps(values), flush=True)
    return code


def _verify(error: DamagedError) -> str:
    """Return the command that verifies the run of a damaged checkpoint."""
    found = re.fullmatch(r"(.+)/checkpoint_[^/]*(/.*)?", str(error.where or ""))
    return f"jobrun checkpoints verify {shlex.quote(found[1]) if found else 'RUN'}"


def not_written(why: OSError | ValueError) -> UsageError:
    """Return the error for a stdout that cannot be written: a full disk, say, or closed."""
    what = os.strerror(why.errno or 0) if isinstance(why, OSError) else "it was closed by a task"
    return UsageError(f"stdout cannot be written: {what}")


def _raised_by_echo(error: Exception) -> bool:
    """Return whether a stream raised the error, and not a file."""
    frames = list(traceback.walk_tb(error.__traceback__))
    return bool(frames) and frames[-1][0].f_code is click.echo.__code__


def _usage(error: click.ClickException) -> UsageError:
    command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else ""
    hint = f"{command} --help shows what there is" if command else ""
    return UsageError(error.format_message(), hint=hint)


def show_error(error: Exception, settings: Settings) -> None:
    """Write an error to stderr: the user's own lines where user code failed."""
    if settings.traceback:
        print(mask("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    elif trace := getattr(error, "trace", ""):
        print(plain(mask(trace.rstrip("\n"))), file=sys.stderr)
    print(_text(error, uses_color(sys.stderr, settings.color)), file=sys.stderr)


def _text(error: Exception, color: bool) -> str:
    head = click.style("error:", fg="red", bold=True) if color else "error:"
    if not isinstance(error, JobrunError):
        return f"{head} {plain(mask(_bug(error)))}"
    text = plain(mask(str(error)))
    if isinstance(error, SpecError) or (isinstance(error, BindError) and error.problems):
        return text.replace(": error: ", f": {head} ") if color else text
    return f"{head} {text}"


def _bug(error: Exception) -> str:
    """Return the text for a failure that is not a jobrun error: what and where, for a report."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" (at {frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return (
        f"this is a bug in jobrun: {type(error).__name__}: {error}{where}\n"
        "  hint: the same command with --traceback shows where it comes from"
    )


def error_values(error: Exception) -> dict[str, object]:
    """Return an error and its exit code as JSON values."""
    code = error.exit_code if isinstance(error, JobrunError) else EXIT_BUG
    message = str(error) if isinstance(error, JobrunError) else _bug(error)
    public = next(c.__name__ for c in type(error).__mro__ if not c.__name__.startswith("_"))
    values: dict[str, object] = {"type": public, "message": message}
    if isinstance(error, JobrunError):
        values["problems"] = [problem_values(p) for p in where_and_what(error)]
    if trace := getattr(error, "trace", ""):
        values["trace"] = trace
    return {"error": masked(values), "exit_code": code}


def where_and_what(error: JobrunError) -> list[Problem]:
    """Return all problems of an error, each with its place."""
    if isinstance(error, SpecError | BindError) and error.problems:
        return list(error.problems)
    where = Where(error.where) if isinstance(error.where, str) else error.where
    return [Problem(error.message, where, error.hint)]


def problem_values(problem: Problem, file: str | None = None) -> dict[str, object]:
    """Return a problem as JSON values; ``file`` is used if the problem has no place of its own."""
    place = problem.where
    return {
        "file": place.file if place else file,
        "line": place.line or None if place else None,
        "column": place.column or None if place else None,
        "message": problem.message,
        "hint": problem.hint,
    }
