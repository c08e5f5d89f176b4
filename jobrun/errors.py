"""The errors of jobrun, one tree.

::

    JobrunError                     exit code
    ├── UsageError                  2   an invalid option or argument
    ├── SpecError                   3   the spec is invalid: one or more problems with places
    ├── BindError                   4   the user's code cannot be imported or does not fit the spec
    ├── NotFoundError               5   no such run, checkpoint or blob
    ├── DamagedError                5   a checkpoint or file that is not what was written
    ├── RunRefusedError             2   the run on disk belongs to another job (see ``decide``)
    ├── TaskError                   1   a task, or the data it reads, failed
    │   ├── DataError               1   a reader cannot read the requested data
    │   └── ValueRefusedError       1   a value that cannot be a blob
    ├── WorkerLostError             1   a worker of a cluster that held a node is gone
    ├── ClusterLostError            1   a cluster cannot be reached, or has no workers
    ├── SaveError                   6   a checkpoint could not be written
    ├── StoreError                  1   an operation of a remote store failed
    └── LockedError                 8   another process holds the run

Every error has a ``message`` (what, and why), and if known ``where`` (a place the user can go to)
and a ``hint`` (what to do next).  ``str(error)`` is all of it in plain text.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobrun.core.paths import start_directory

__all__ = [
    "BindError",
    "ClusterLostError",
    "DamagedError",
    "DataError",
    "JobrunError",
    "LockedError",
    "NotFoundError",
    "Problem",
    "RunRefusedError",
    "SaveError",
    "SpecError",
    "StoreError",
    "TaskError",
    "UsageError",
    "ValueRefusedError",
    "Where",
    "WorkerLostError",
    "by_place",
    "exit_code_of_signal",
    "new_problems",
    "with_article",
]

# Exit codes that belong to outcomes and not to errors (see ``jobrun/cli``).
EXIT_DONE = 0
EXIT_NOT_SAVED = 6
EXIT_FAILED_BY_CONDITION = 7
EXIT_SIGINT = 130


def exit_code_of_signal(name: str) -> int:
    """Return the exit code of a run that a signal ended: 128 + its number.

    A name that is not a signal's counts as SIGTERM.
    """
    return 128 + signal.Signals.__members__.get(name, signal.SIGTERM)


EXITS_BY_SIGNAL = tuple(
    map(exit_code_of_signal, ("SIGINT", "SIGTERM", "SIGHUP", "SIGXCPU", "SIGUSR2"))
)
"""The exit codes of a run that was asked to end, and saved."""


def with_article(word: str) -> str:
    """Return the name of a type with its article: ``an int``, ``a dict``."""
    return f"{'an' if word[:1].lower() in tuple('aeiou') else 'a'} {word}"


_SHOWN = 120
"""The largest number of characters of a source line that are shown."""


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a text file: 1-based line and column, and the line itself for the caret."""

    file: str
    line: int = 0
    column: int = 0
    text: str = ""
    width: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file

    def snippet(self) -> str:
        """Return the source line with a caret under the place, or an empty string."""
        if not self.text.strip():
            return ""
        number = f"{self.line:>5} | "
        first = max(0, self.column - 1 - _SHOWN // 2) if len(self.text) > _SHOWN else 0
        text = self.text[first : first + _SHOWN]
        before = "…" if first else ""
        after = "…" if first + _SHOWN < len(self.text) else ""
        lead = "".join("\t" if c == "\t" else " " for c in before + text[: self.column - 1 - first])
        carets = "^" * max(1, min(self.width, len(text) - (self.column - 1 - first)))
        return f"{number}{before}{text}{after}\n{' ' * (len(number) - 2)}| {lead}{carets}"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with a spec: what, where, and what to do."""

    message: str
    where: Where | None = None
    hint: str = ""

    def __str__(self) -> str:
        head = f"{self.where}: error: " if self.where else "error: "
        text = head + self.message + (f"; {self.hint}" if self.hint else "")
        snippet = self.where.snippet() if self.where else ""
        return f"{text}\n{snippet}" if snippet else text


def new_problems(known: Sequence[Problem], found: Iterable[Problem]) -> list[Problem]:
    """Return the problems that are not at the place of a known one, which may be their cause."""
    places = {(p.where.line, p.where.column) for p in known if p.where is not None}
    return [p for p in found if p.where is None or (p.where.line, p.where.column) not in places]


def by_place(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return problems in the order of their places; those without a place come first."""
    return tuple(
        sorted(problems, key=lambda p: (p.where.line, p.where.column) if p.where else (0, 0))
    )


class JobrunError(Exception):
    """The root of the tree; ``exit_code`` is the exit code of the process."""

    exit_code = 1

    def __init__(self, message: str, *, where: Where | str | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        place = _near(self.where) if isinstance(self.where, str) else self.where
        text = (f"{place}: " if place else "") + self.message
        snippet = self.where.snippet() if isinstance(self.where, Where) else ""
        if snippet:
            text += "\n" + snippet
        if self.hint:
            text += "\n  hint: " + self.hint
        return text


def _near(place: str) -> str:
    """Return a path relative to the start directory if it lies below that."""
    try:
        return str(Path(place).relative_to(start_directory())) if place else place
    except (ValueError, FileNotFoundError):  # elsewhere, or that directory is gone
        return place


class UsageError(JobrunError):
    """An invalid option or argument."""

    exit_code = 2


class RunRefusedError(JobrunError):
    """The run on disk belongs to a job that differs; ``hint`` holds the commands that resume."""

    exit_code = 2


class SpecError(JobrunError):
    """An invalid spec; ``problems`` holds everything found, in order of place.

    ``trace`` holds the user's own lines if their code was imported too, and failed.
    """

    exit_code = 3

    def __init__(self, problems: Sequence[Problem] | str, *, trace: str = "") -> None:
        self.trace = trace
        if isinstance(problems, str):
            problems = [Problem(problems)]
        self.problems = by_place(problems)
        super().__init__("\n".join(str(p) for p in self.problems))


class BindError(JobrunError):
    """The user's code cannot be imported, found, or called as the spec says.

    ``trace`` holds the user's own lines if their code failed; ``problems`` the single problems if
    there are several.
    """

    exit_code = 4

    def __init__(
        self,
        message: str,
        *,
        where: Where | str | None = None,
        hint: str = "",
        trace: str = "",
        problems: Sequence[Problem] = (),
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.trace = trace
        self.problems = tuple(problems)


class NotFoundError(JobrunError):
    """No such run, checkpoint or blob."""

    exit_code = 5


class DamagedError(JobrunError):
    """A checkpoint, or a file of one, whose content is not what was written."""

    exit_code = 5


class TaskError(JobrunError):
    """A task failed; ``trace`` holds the user's own lines, ``__cause__`` the exception."""

    exit_code = 1

    def __init__(
        self, message: str, *, where: Where | str | None = None, hint: str = "", trace: str = ""
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.trace = trace


class DataError(TaskError):
    """A reader cannot read the requested data."""


class ValueRefusedError(TaskError):
    """A value that cannot be a blob, or cannot be saved."""


class WorkerLostError(JobrunError):
    """A worker that held a node is lost, and with it the state of all nodes.

    The run resumes from its last checkpoint, automatically if the session allows that.
    """

    exit_code = 1


class ClusterLostError(JobrunError):
    """A cluster cannot be reached, or has no workers: the run can be resumed on another."""

    exit_code = 1


class SaveError(JobrunError):
    """A checkpoint could not be written; nothing is left under its final name."""

    exit_code = 6


class StoreError(JobrunError):
    """A directory or object store used for uploads or reads failed."""

    exit_code = 1


class LockedError(JobrunError):
    """Another process holds the run."""

    exit_code = 8
