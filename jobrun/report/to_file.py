"""The reporters ``lines`` and ``events``: progress into a further file, or a named pipe."""

from __future__ import annotations

from jobrun.core.events import Event
from jobrun.core.paths import absolute
from jobrun.report.json_lines import JsonLines
from jobrun.report.lines import Lines

__all__ = ["events", "lines"]


class _ToFile:
    """A reporter that opens and closes the file that another one writes to."""

    def __init__(self, path: str, make: type[Lines] | type[JsonLines]) -> None:
        self._file = absolute(path).open("a", encoding="utf-8", errors="backslashreplace")
        self._reporter = make(self._file)

    def __call__(self, event: Event) -> None:
        """Pass ``event`` on."""
        self._reporter(event)

    def close(self) -> None:
        """Close the file."""
        self._reporter.close()
        self._file.close()


def lines(path: str) -> _ToFile:
    """Return a reporter that appends plain lines to the file ``path``."""
    return _ToFile(path, Lines)


def events(path: str) -> _ToFile:
    """Return a reporter that appends every event to the file ``path``, as JSON."""
    return _ToFile(path, JsonLines)
