"""Progress as JSON: one line per event, with the time (UTC) and its name under ``event``."""

from __future__ import annotations

import threading
from typing import Any, TextIO, cast

from jobrun.core.current_task import task_here
from jobrun.core.events import Event, Printed
from jobrun.report.formatting import json_line, uncoloured
from jobrun.report.log_file import Tee
from jobrun.report.whole_lines import WholeLines

__all__ = ["JsonLines"]


class JsonLines:
    """A reporter that writes every event to ``stream`` at once.

    Prints to ``tees``, which write to the same place, become events too (``Printed``), so that all
    of the output can be parsed.
    """

    def __init__(self, stream: TextIO, *tees: Tee) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._tees = [(tee, tee.stream, WholeLines(tee.stream, self._printed)) for tee in tees]
        for tee, _, lines in self._tees:
            tee.show_on(cast("TextIO", lines))

    def __call__(self, event: Event) -> None:
        """Write ``event`` at once."""
        self.write(event.to_json())

    def write(self, values: dict[str, Any]) -> None:
        """Write a line."""
        with self._lock:
            self._stream.write(json_line(values))
            self._stream.flush()

    def close(self) -> None:
        """Pass prints to their own streams again."""
        for tee, stream, lines in self._tees:
            tee.show_on(stream)
            lines.end()

    def _printed(self, lines: list[str]) -> None:
        doing = task_here()
        for line in lines:
            text = uncoloured(line)
            if doing is None:
                self(Printed(text))
            else:
                self(Printed(text, doing.task, doing.node, doing.group, doing.epoch))
