"""A site's own record of its checkpoints: it names where to resume, and is notified of saves.

The idea is the metadata handler of Caffe2's CheckpointManager.  Without one the run
directory is the record.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from jobrun.checkpoint.record import Record
from jobrun.core.events import Event, Report, Warned
from jobrun.errors import BindError, SaveError, TaskError, Where
from jobrun.usercode.bind import bind_object
from jobrun.usercode.traces import user_trace

__all__ = ["Catalogue", "RegistryHook"]

T = TypeVar("T")

METHODS = ("latest", "accessible", "written", "report")

REPORTED = frozenset(
    {
        "CheckpointSaved",
        "CheckpointFailed",
        "CheckpointLoaded",
        "CheckpointSkipped",
        "CheckpointsRemoved",
        "CheckpointsMoved",
        "Uploaded",
        "RunEnded",
    }
)
"""The events that ``report`` is called with: saves, loads, removals, failures, the end."""


class Catalogue:
    """A record of checkpoints; its methods do nothing and can be overridden.

    ``run`` is always the absolute path of the run directory.  Calls come one at a time, from the
    thread of the run and from the one that saves.
    """

    def latest(self, run: str) -> int | None:
        """Return the epoch to resume from if the user names none: the number of epochs completed.

        None, or the epoch of the newest checkpoint, changes nothing.  An exception ends the
        command.
        """
        return None

    def accessible(self, run: str, id: int) -> bool:
        """Return whether checkpoint ``id`` may be written; called before every save.

        A refused save counts as failed, and is treated as ``checkpoint.on_error`` says.
        """
        return True

    def written(self, run: str, checkpoint: Mapping[str, Any]) -> None:
        """Handle a checkpoint that has become whole and durable.

        ``checkpoint`` has id, epoch, place (in words), path, time (UTC), bytes, files, metrics,
        and job.
        """

    def report(self, run: str, event: Mapping[str, Any]) -> None:
        """Handle an event of a checkpoint or of the run, its class under ``event``."""


class RegistryHook:
    """The catalogue of one run.  Its errors stop no run, except those of ``latest``.

    ``given`` is an object with the methods of ``Catalogue``, a function that returns one, or
    the name of either: ``module:name``, searched in ``folder``.  It is opened at its first use.
    """

    def __init__(
        self, given: object, run: Path, folder: Path | None, where: Where | None, report: Report
    ) -> None:
        self._given = given
        self._run = str(run)
        self._folder = folder
        self._where = where
        self._report = report
        self._found: Any = None
        self._warned: set[str] = set()
        self._one = threading.RLock()

    def open(self) -> Any:
        """Open the object; raises BindError if there is none."""
        if self._found is None:
            self._found = _catalogue(self._given, self._folder, self._where)
        return self._found

    def latest(self) -> int | None:
        """Return the epoch that it names, or None; raises TaskError, with the user's own lines."""
        try:
            with self._one:
                epoch = self.open().latest(self._run)
        except BindError:
            raise
        except Exception as error:
            text = f"the catalogue's latest() failed: {type(error).__name__}: {error}"
            raise TaskError(text, where=self._where, trace=user_trace(error)) from error
        if epoch is None or (type(epoch) is int and epoch >= 0):
            return epoch
        text = f"the catalogue's latest() returned {epoch!r}; expected a number of epochs or None"
        raise TaskError(text, where=self._where)

    def admit(self, id: int) -> None:
        """Raise SaveError unless the checkpoint may be written."""
        answer = self._ask("accessible", lambda found: found.accessible(self._run, id), True)
        if not answer:
            why = f"the catalogue refused it (accessible() returned {answer!r})"
            raise SaveError(f"checkpoint {id} was not saved: {why}")

    def published(self, record: Record, path: Path) -> None:
        """Report a checkpoint that has become whole and durable to the catalogue."""
        facts = {
            "id": record.id,
            "epoch": record.epoch,
            "place": record.place,
            "path": str(path),
            "time": record.time,
            "bytes": record.bytes,
            "files": record.files,
            "metrics": dict(record.metrics),
            "job": record.job,
        }
        self._ask("written", lambda found: found.written(self._run, facts), None)

    def forward(self, event: Event) -> None:
        """Report an event to the run's reporter, and then to the catalogue if it takes it."""
        self._report(event)
        if type(event).__name__ in REPORTED:
            facts = event.to_json()
            self._ask("report", lambda found: found.report(self._run, facts), None)

    def _ask(self, method: str, call: Callable[[Any], T], otherwise: T) -> T:
        """Return the result of a method, or ``otherwise`` if it raises, reported once."""
        try:
            with self._one:
                return call(self.open())
        except Exception as error:
            if method not in self._warned:
                self._warned.add(method)
                self._report(Warned(_failed(method, error)))
            return otherwise


def _failed(method: str, error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}:{frame.lineno}"
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"the catalogue's {method}() failed (reported once): {what} ({where})"


def _catalogue(given: object, folder: Path | None, where: Where | None) -> Any:
    """Return the object with the methods; raises BindError."""
    found = bind_object(given, folder, where) if isinstance(given, str) else given
    if isinstance(found, type) or (callable(found) and _missing(found)):
        try:
            found = found()
        except Exception as error:
            text = f"the catalogue cannot be created: {type(error).__name__}: {error}"
            raise BindError(text, where=where, trace=user_trace(error)) from error
    if missing := _missing(found):
        name = given if isinstance(given, str) else type(found).__name__
        hint = "derive it from jobrun.Catalogue, whose methods do nothing"
        raise BindError(f"the catalogue {name} has no {', '.join(missing)}", where=where, hint=hint)
    return found


def _missing(found: object) -> list[str]:
    return [f"{name}()" for name in METHODS if not callable(getattr(found, name, None))]
