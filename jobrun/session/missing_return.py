"""Warnings about a blob that is None because its function lacks a ``return``.

The warning is given once, where the value would be noticed: where the blob held one before, or
where another task reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from jobrun.analysis.dataflow import inner_steps
from jobrun.analysis.names import resolve
from jobrun.core.blob_paths import Key, overlaps
from jobrun.errors import with_article
from jobrun.model.job import GROUPS, Argument, Job, Pipe, Task
from jobrun.usercode.returning import FORGOTTEN, place_of, returns_by_accident
from jobrun.values.boxes import Value

__all__ = ["Forgotten"]


class Forgotten:
    """Watches for a missing ``return`` in one task, whose ``out`` are the blobs ``keys``.

    ``held(key)`` returns the value of a blob, or None where it has none.
    """

    def __init__(
        self,
        job: Job,
        task: Task,
        function: Callable[..., object],
        keys: Collection[Key],
        held: Callable[[Key], Value | None],
    ) -> None:
        self._job = job
        self._task = task
        # Parsed here, before tasks run: threads that parse at the same time disturb each other.
        self._function = returns_by_accident(function)
        self._keys = keys
        self._held = held
        self._reader: str | None = None
        self._is_known = False
        self._is_said = False

    def look(self) -> str:
        """Return the warning for a call that returned None; empty where there is none."""
        if self._function is None or self._is_said:
            return ""
        noticed = self._noticed()
        if not noticed:
            return ""
        self._is_said = True
        return f"{noticed}: {place_of(self._function)} ended without a 'return'; {FORGOTTEN}"

    def _noticed(self) -> str:
        for key in self._keys:
            value = self._held(key)
            if value is not None and value.kind != "none":
                before = with_article("object" if value.kind in ("opaque", "live") else value.kind)
                return f"it left {key[1]!r} None, which was {before} before"
        if not self._is_known:
            self._is_known = True
            self._reader = next(self._readers(), None)
        return "" if self._reader is None else self._reader

    def _readers(self) -> Iterator[str]:
        """Yield the other tasks that read a blob left None, in words."""
        tasks = (task for group in GROUPS for task in self._job.groups[group].tasks)
        for task in tasks:
            for node in self._job.nodes_of(task):
                for reader, name in _read(task):
                    key = None if reader is self._task else self._meant(node, name)
                    if key is not None:
                        yield f"it left {key[1]!r} None, which task {reader.name!r} reads"

    def _meant(self, node: str, name: str) -> Key | None:
        """Return the blob of this task that a name means on a node, or None."""
        try:
            meant = resolve(self._job, node, name).keys
        except LookupError:  # a column
            return None
        return next(
            (k for k in self._keys for n, path in meant if n == k[0] and overlaps(path, k[1])), None
        )


def _read(task: Task) -> Iterator[tuple[Task, str]]:
    """Yield every name that a task, or a step of a pipe, reads or updates."""
    if isinstance(task, Pipe):
        yield from ((task, blob) for _, blob in task.reader.data.blob_names())
    for step in inner_steps(task):
        arguments: tuple[Argument, ...] = (*step.inputs, *step.updates)
        yield from ((step, a.name) for a in arguments)
