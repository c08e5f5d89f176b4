"""``log.txt``: the lines of jobrun and the prints of tasks in every attempt, with the time (UTC).

``jobrun.report.log_format`` defines the form of a line.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TextIO
from weakref import WeakSet

from jobrun.core.current_task import CurrentTask, task_here
from jobrun.core.events import Event, RunEnded
from jobrun.core.masking import mask
from jobrun.report.append_file import Appender
from jobrun.report.formatting import plain, plural, uncoloured
from jobrun.report.lines import Describer
from jobrun.report.log_format import attempt_stamp, escaped, stamp
from jobrun.report.printed_rows import PrintedRows, writer_of

__all__ = ["LogFile", "Prints", "Tee"]

_LONG = 1 << 16
"""Characters up to which a line is held back until it is whole."""

_BAR_EVERY = 60.0
"""The seconds between two states of a progress bar that are kept while it changes."""

_forked: WeakSet[LogFile | Tee] = WeakSet()


def _after_fork() -> None:
    """Allow tasks to print in processes that they fork, such as those of data loaders."""
    for each in list(_forked):
        each.after_fork()


os.register_at_fork(after_in_child=_after_fork)


class LogFile:
    """A reporter that appends the lines of all events to a file, as with ``-v``.

    The first line is marked with the number of the ``attempt``, if there is one.  ``first`` is
    called before the lines of an event are appended.
    """

    name = "log.txt"

    def __init__(
        self,
        path: Path,
        attempt: int | None = None,
        first: Callable[[], None] = lambda: None,
    ) -> None:
        self._before = first
        self._first = attempt_stamp(attempt) if attempt is not None else ""
        self._file = Appender(path)
        self._run_dir = str(path.parent)
        self._describe = Describer(verbosity=1)
        self._missing = 0
        self._lock = threading.Lock()
        _forked.add(self)

    def after_fork(self) -> None:
        """Replace the lock: in a child, no other thread would release it."""
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Append the lines of ``event``; raises OSError if that fails."""
        self._before()
        lines = self._describe(event)
        if isinstance(event, RunEnded):
            lines = [f"{event.outcome}: {plain(event.reason)} (exit code {event.exit_code})"]
        self._write([escaped(line) for line in lines])

    def write_lines(self, lines: list[str], doing: CurrentTask | None = None) -> None:
        """Append lines that ``doing``, or the task on this thread, if there is one, has printed.

        Raises OSError if that fails; the next line then says how many are missing.
        """
        doing = doing or task_here()
        if getattr(doing, "run_dir", None) not in (None, self._run_dir):
            return  # a task of another run in this process
        who = stamp(doing) if doing is not None else ""
        self._write([who + mask(line) if who else escaped(mask(line)) for line in lines])

    def _write(self, lines: list[str]) -> None:
        """Append lines with the time before each; may be called from any thread."""
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
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        if self._first and lines:
            lines = [self._first + lines[0].removeprefix("[] "), *lines[1:]]
        text = "".join(f"{now} {line}\n" for line in lines)
        self._file.append(text.encode("utf-8", "backslashreplace"))
        if lines:
            self._first = ""

    def close(self) -> None:
        """Make all lines durable, and close the file; raises OSError if that fails."""
        with self._lock:
            if self._missing:
                with suppress(OSError):  # the failure was reported
                    self._append(self._said_missing())
            try:
                self._file.sync()
            finally:
                self._file.close()


class _Keep(Protocol):
    """Receives lines; ``doing`` is the task that has printed them, if it is known."""

    def __call__(self, lines: list[str], doing: CurrentTask | None = None) -> None: ...


class _Bars(PrintedRows):
    """The rows of a thread that prints progress bars."""

    def __init__(self) -> None:
        super().__init__()
        self.doing: CurrentTask | None = None
        self._kept = time.monotonic()

    def feed(self, text: str) -> list[str]:
        """Print ``text``; return the lines to keep: of changing bars their state, once a minute."""
        self.doing = task_here() or self.doing
        lines = super().feed(text)
        if time.monotonic() - self._kept >= _BAR_EVERY:
            self._kept = time.monotonic()
            lines += self.bars()
        return lines


class Tee:
    """Stands in for ``sys.stdout`` or ``sys.stderr``: passes all on, and whole lines to ``keep``.

    Of a progress bar, whose row changes, the last state is kept, and one a minute before.

    Prints come in pieces, from many threads: an unfinished line of a thread is passed on with its
    end, or when the thread flushes, so that lines do not mix.  A stream whose reader has gone, or
    that a task has closed, is no longer written to.  Errors of a stream, as of a full disk, do not
    reach the task: ``refused`` is called with the first one.
    """

    def __init__(
        self,
        stream: TextIO,
        keep: _Keep,
        refused: Callable[[OSError], None] = lambda error: None,
    ) -> None:
        self.stream = stream
        self._keep = keep
        self._refused = refused
        self._said = False
        self._begun: dict[int, str] = {}  # per thread, what is not yet a line for the log
        self._bars: dict[int, _Bars] = {}  # per thread that has printed progress bars
        self._held: dict[int, str] = {}  # per thread, what was not yet passed on
        self._gone = False
        self._lock = threading.RLock()
        _forked.add(self)

    def after_fork(self) -> None:
        """Replace the lock and drop begun lines, which are those of threads of the parent."""
        self._lock = threading.RLock()
        self._begun, self._bars, self._held = {}, {}, {}

    def write(self, text: str) -> int:
        """Pass ``text`` on, and keep the lines that it ends."""
        thread = threading.get_ident()
        with self._lock:
            self._write(thread, self._held.pop(thread, "") + text)
            self._keep_lines(self._begun.pop(thread, "") + text)
        return len(text)

    def _keep_lines(self, text: str) -> None:
        """Keep the lines that ``text`` ends; an empty one may be the way to a bar further down."""
        thread = writer_of(text, self._bars)
        bars = self._bars.get(thread)
        if bars is None and "\r" not in text and "\x1b[" not in text and text.strip("\n"):
            *lines, begun = text.split("\n")
            if begun:
                self._begun[thread] = begun
            self._keep_uncoloured(lines)
            return
        bars = self._bars.setdefault(thread, _Bars())
        self._keep_uncoloured(bars.feed(text), bars.doing)
        if bars.is_empty:
            del self._bars[thread]

    def _keep_uncoloured(self, lines: list[str], doing: CurrentTask | None = None) -> None:
        if lines:
            self._keep([uncoloured(line) for line in lines], doing)

    def keep_ended(self) -> None:
        """Keep the progress bars that have ended, so that what is logged next follows them."""
        with self._lock:
            for thread, bars in list(self._bars.items()):
                self._keep_uncoloured(bars.ended(), bars.doing)
                if bars.is_empty:
                    del self._bars[thread]

    def writelines(self, lines: Iterable[str]) -> None:
        """Pass texts on."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush the stream, including the unfinished line of this thread."""
        with self._lock:
            self._put(self._held.pop(threading.get_ident(), ""))
            self._pass_on(self.stream.flush)

    def show_on(self, stream: TextIO) -> None:
        """Pass on all unfinished lines, and write to another stream from now on."""
        with self._lock:
            held, self._held = "".join(self._held.values()), {}
            self._put(held)
            self.stream = stream

    def end(self) -> None:
        """Pass on all unfinished lines, and keep them as lines."""
        self.show_on(self.stream)
        with self._lock:
            begun, self._begun = list(self._begun.values()), {}
            self._keep_uncoloured(begun)
            rows, self._bars = list(self._bars.values()), {}
            for bars in rows:
                self._keep_uncoloured(bars.rest(), bars.doing)

    def _write(self, thread: int, text: str) -> None:
        """Pass on ``text``, but hold an unfinished line back if it is short and has no ``\\r``."""
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
        """Flush only: the stream is not a task's to close."""
        self.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


_entering = threading.RLock()
_entered: list[Prints] = []
"""Those that stand in for the streams now, each for the one before it."""


class Prints:
    """The prints of tasks: they go to stdout and stderr as usual, and to ``log`` with the time.

    As a context manager, it replaces both streams, in handlers of ``logging`` too.  Prints from
    before ``log`` is set are not kept.
    """

    def __init__(self) -> None:
        self.log: LogFile | None = None
        self.out = Tee(sys.stdout, self._keep, self._say_refused)
        self.err = Tee(sys.stderr, self._keep)

    def __enter__(self) -> Prints:
        with _entering:
            self._before = sys.stdout, sys.stderr
            sys.stdout, sys.stderr = self.out, self.err
            _redirect(self._before, (self.out, self.err))
            _entered.append(self)
        return self

    def __exit__(self, *raised: object) -> None:
        self.end()
        with _entering:
            last = _entered[-1] is self
            _entered.remove(self)
            if last:
                sys.stdout, sys.stderr = self._before
            for later in _entered:  # runs in other threads, which go on
                later._leave_out(self)
            _redirect((self.out, self.err), self._before)

    def _leave_out(self, other: Prints) -> None:
        """Pass on to, and restore, what ``other`` stood in for."""
        out, err = self._before
        before = other._before
        self._before = (
            before[0] if out is other.out else out,
            before[1] if err is other.err else err,
        )
        for mine, its in ((self.out, other.out), (self.err, other.err)):
            below: object = mine.stream
            if below is its:
                mine.show_on(its.stream)

    def end(self) -> None:
        """Pass on all unfinished lines, and keep nothing more."""
        self.out.end()
        self.err.end()
        self.log = None

    def keep_ended(self) -> None:
        """Log the progress bars that have ended."""
        self.out.keep_ended()
        self.err.keep_ended()

    def _say_refused(self, error: OSError) -> None:
        kept = ": it is in log.txt" if self.log is not None else ""
        why = os.strerror(error.errno or 0)
        text = f"warning: what tasks print cannot be written to stdout ({why}){kept}\n"
        with suppress(OSError, ValueError):
            self.err.stream.write(text)
            self.err.stream.flush()

    def _keep(self, lines: list[str], doing: CurrentTask | None = None) -> None:
        try:
            if self.log is not None:
                self.log.write_lines(lines, doing)
        except OSError:
            pass  # a full disk does not fail the task; the log reports the missing lines later


def _redirect(old: tuple[object, object], new: tuple[object, object]) -> None:
    """Redirect the handlers of ``logging`` that write to a stream of ``old`` to that of ``new``."""
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    handlers = {h for logger in loggers for h in getattr(logger, "handlers", ())}
    for handler in handlers:
        if isinstance(handler, logging.StreamHandler):
            for stream, other in zip(old, new, strict=True):
                if handler.stream is stream:
                    handler.setStream(other)
