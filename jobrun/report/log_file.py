"""``log.txt``: what was said in every attempt, and what tasks printed, with the time (UTC).

``jobrun.report.log_format`` says how a line looks.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO
from weakref import WeakSet

from jobrun.core.current_task import task_here
from jobrun.core.events import Event, RunEnded
from jobrun.core.masking import mask
from jobrun.report.append_file import Appender
from jobrun.report.formatting import plain, plural, uncoloured
from jobrun.report.lines import Describer
from jobrun.report.log_format import attempt_stamp, escaped, stamp

__all__ = ["LogFile", "Prints", "Tee"]

_LONG = 1 << 16
"""Characters that a line may have to be passed on as a whole."""

_forked: WeakSet[LogFile | Tee] = WeakSet()


def _after_fork() -> None:
    """Let tasks print in processes that they fork, as data loaders do."""
    for each in list(_forked):
        each.after_fork()


os.register_at_fork(after_in_child=_after_fork)


class LogFile:
    """Appends the lines of all events to a file, more of them than a terminal shows.

    The first line says that it is of the ``attempt`` of this number, if there is one.
    """

    name = "log.txt"

    def __init__(self, path: Path, attempt: int | None = None) -> None:
        self._first = attempt_stamp(attempt) if attempt is not None else ""
        self._file = Appender(path)
        self._describe = Describer(verbosity=1)
        self._missing = 0
        self._lock = threading.Lock()
        _forked.add(self)

    def after_fork(self) -> None:
        """In a child, no other thread will let go of the lock."""
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Append the lines of ``event``; raises OSError where they cannot be kept."""
        lines = self._describe(event)
        if isinstance(event, RunEnded):
            lines = [f"{event.outcome}: {plain(event.reason)} (exit code {event.exit_code})"]
        self._write([escaped(line) for line in lines])

    def write_lines(self, lines: list[str]) -> None:
        """Append lines that the task on this thread, if there is one, has printed.

        Raises OSError where they cannot be kept; how many are missing is said in the next line.
        """
        doing = task_here()
        who = stamp(doing) if doing is not None else ""
        self._write([who + mask(line) if who else escaped(mask(line)) for line in lines])

    def _write(self, lines: list[str]) -> None:
        """Append lines with the time before each; from any thread."""
        if not lines:
            return
        with self._lock:
            try:
                self._append([*self._said_missing(), *lines])
            except OSError:
                self._missing += len(lines)
                raise
            self._missing = 0

    def _said_missing(self) -> list[str]:
        if not self._missing:
            return []
        return [f"({plural(self._missing, 'line')} could not be written here)"]

    def _append(self, lines: list[str]) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if self._first and lines:
            lines = [self._first + lines[0].removeprefix("[] "), *lines[1:]]
        text = "".join(f"{now} {line}\n" for line in lines)
        self._file.append(text.encode("utf-8", "backslashreplace"))
        if lines:
            self._first = ""

    def close(self) -> None:
        """Make all durable, and close the file; raises OSError if that is refused."""
        with self._lock:
            with suppress(OSError):
                self._append(self._said_missing())
            try:
                self._file.sync()
            finally:
                self._file.close()


class Tee:
    """Stands in for ``sys.stdout`` or ``sys.stderr``: passes all on, and whole lines to ``keep``.

    Prints come in pieces, from many threads: what a thread has begun is passed on with the end of
    its line, or when it flushes, so that lines do not mix.  A stream whose reader has gone, or that
    a task has closed, is written to no more, and hurts nobody; nor does one that refuses what is
    printed, as a full disk does: ``refused`` is told, once.
    """

    def __init__(
        self,
        stream: TextIO,
        keep: Callable[[list[str]], None],
        refused: Callable[[OSError], None] = lambda error: None,
    ) -> None:
        self.stream = stream
        self._keep = keep
        self._refused = refused
        self._said = False
        self._begun: dict[int, str] = {}  # per thread, what is not yet a line for the log
        self._held: dict[int, str] = {}  # per thread, what was not yet passed on
        self._gone = False
        self._lock = threading.RLock()
        _forked.add(self)

    def after_fork(self) -> None:
        """In a child, no other thread will let go of the lock, or end its line."""
        self._lock = threading.RLock()
        self._begun, self._held = {}, {}

    def write(self, text: str) -> int:
        """Pass ``text`` on, and keep the lines that it completes."""
        thread = threading.get_ident()
        with self._lock:
            self._write(thread, self._held.pop(thread, "") + text)
            *lines, begun = (self._begun.pop(thread, "") + text).split("\n")
            if begun:
                self._begun[thread] = begun.rstrip("\r").rpartition("\r")[2]
            if lines:
                self._keep([uncoloured(line) for line in lines])
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Pass texts on."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush the stream, with what this thread has begun."""
        with self._lock:
            self._put(self._held.pop(threading.get_ident(), ""))
            self._pass_on(self.stream.flush)

    def show_on(self, stream: TextIO) -> None:
        """Pass on what was begun, and from now on to another stream."""
        with self._lock:
            held, self._held = "".join(self._held.values()), {}
            self._put(held)
            self.stream = stream

    def end(self) -> None:
        """Pass on what was begun, and keep it as lines."""
        self.show_on(self.stream)
        with self._lock:
            begun, self._begun = list(self._begun.values()), {}
            self._keep([uncoloured(line) for line in begun])

    def _write(self, thread: int, text: str) -> None:
        """Pass on what a terminal would show of ``text``: of lines by "\\n" all but the last."""
        end = len(text) if "\r" in text or len(text) > _LONG else text.rfind("\n") + 1
        if text[end:]:
            self._held[thread] = text[end:]
        self._put(text[:end])

    def _put(self, text: str) -> None:
        if text:
            self._pass_on(lambda: self.stream.write(text))

    def _pass_on(self, call: Callable[[], object]) -> None:
        try:
            if not self._gone:
                call()
        except (BrokenPipeError, ValueError):  # ValueError: it is closed
            self._gone = True
        except OSError as error:
            said, self._said = self._said, True
            if not said:
                self._refused(error)

    def close(self) -> None:
        """Pass on what was begun; the stream is not a task's to close."""
        self.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


class Prints:
    """What tasks print and log: it goes to stdout and stderr as ever, and to ``log`` with the time.

    As a context, it stands in for both, in handlers of ``logging`` too.  What comes before ``log``
    is set is not kept.
    """

    def __init__(self) -> None:
        self.log: LogFile | None = None
        self.out = Tee(sys.stdout, self._keep, self._say_refused)
        self.err = Tee(sys.stderr, self._keep)

    def __enter__(self) -> Prints:
        self._before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = self.out, self.err
        _redirect(self._before, (self.out, self.err))
        return self

    def __exit__(self, *raised: object) -> None:
        self.end()
        sys.stdout, sys.stderr = self._before
        _redirect((self.out, self.err), self._before)

    def end(self) -> None:
        """Nothing more is kept."""
        self.out.end()
        self.err.end()
        self.log = None

    def _say_refused(self, error: OSError) -> None:
        kept = ": it is in log.txt" if self.log is not None else ""
        why = os.strerror(error.errno or 0)
        text = f"warning: what tasks print cannot be written to stdout ({why}){kept}\n"
        with suppress(OSError, ValueError):
            self.err.stream.write(text)
            self.err.stream.flush()

    def _keep(self, lines: list[str]) -> None:
        try:
            if self.log is not None:
                self.log.write_lines(lines)
        except OSError:
            pass  # a full disk is no failure of who prints; the log says later what is missing


def _redirect(old: tuple[object, object], new: tuple[object, object]) -> None:
    """Let the handlers of ``logging`` that write to one of ``old`` write to ``new``."""
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    handlers = {h for logger in loggers for h in getattr(logger, "handlers", ())}
    for handler in handlers:
        if isinstance(handler, logging.StreamHandler):
            for stream, other in zip(old, new, strict=True):
                if handler.stream is stream:
                    handler.setStream(other)
