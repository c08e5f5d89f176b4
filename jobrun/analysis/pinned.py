"""``thread: same``, for objects that may be used only on the thread that made them.

A task with it is *pinned*, and so is every task that reads its outputs: they all run on one thread,
the same for the whole run.  A SQLite connection is such an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.graph import Unit
from jobrun.analysis.names import resolve
from jobrun.core.blob_paths import Key, overlaps
from jobrun.errors import Problem
from jobrun.model.job import GROUPS, Job, Pipe

__all__ = ["Pins", "other_thread", "pinned_problems"]

_OTHER_THREAD = re.compile(
    r"\b(same|different|another|other|wrong) thread\b|\bunsendable\b"
    r"|main thread is not in main loop"
)


class Pins:
    """The pinned tasks of ``job``, computed once."""

    def __init__(self, analysis: JobAnalysis) -> None:
        self._paths: dict[str, list[str]] = {}
        for group in GROUPS:
            for task, copies in analysis.units_of(group):
                if task.thread is not None:
                    for node, path in (key for _, found in copies for key in found.writes):
                        self._paths.setdefault(node, []).append(path)

    def holds(self, key: Key) -> bool:
        """Return whether a pinned task writes a blob, or a part of it."""
        return any(overlaps(path, key[1]) for path in self._paths.get(key[0], ()))

    def pins(self, unit: Unit) -> bool:
        """Return whether a unit has to run on the pinned thread."""
        if unit.gathers:
            return False
        return unit.task.thread is not None or any(self.holds(key) for key in unit.access.reads)


def pinned_problems(analysis: JobAnalysis) -> Iterator[Problem]:
    """Yield a problem for each pipe that would read from a pinned blob on other threads."""
    job = analysis.job
    pins = Pins(analysis)
    for _, pipe in job.pipes():
        for step in pipe.reader.data.calls():
            names = (argument.name for argument in step.inputs)
            pinned = [name for name in names if _is_pinned(job, pins, pipe, name)]
            ahead = [key for key in ("threads", "ahead", "processes") if _runs_ahead(pipe, key)]
            if pinned and ahead:
                yield Problem(
                    f"pipe {pipe.name!r} reads from {pinned[0]!r}, which 'thread: same' keeps on "
                    f"one thread, but {ahead[0]!r} would read it on another",
                    pipe.mark(ahead[0], "pipe"),
                    f"leave {ahead[0]!r} out",
                )


def _is_pinned(job: Job, pins: Pins, pipe: Pipe, name: str) -> bool:
    try:
        keys = [key for node in job.nodes_of(pipe) for key in resolve(job, node, name).keys]
    except LookupError:  # a problem of its own
        return False
    return any(pins.holds(key) for key in keys)


def _runs_ahead(pipe: Pipe, key: str) -> bool:
    value = pipe.reader.numbers[key]
    return value is not None and not (key == "threads" and value == 1)


def other_thread(text: str) -> str:
    """Return a hint if an error says that an object is used on a thread that did not make it.

    Empty for any other error.
    """
    if not _OTHER_THREAD.search(text):
        return ""
    return (
        "tasks run on several threads: 'thread: same' on the task that makes such an object runs "
        "it, and every task that is given the object, on one thread"
    )
