"""Reads and writes of a job's tasks, computed once for each task and node."""

from __future__ import annotations

from collections.abc import Iterator

from jobrun.analysis.names import Access, Key, access
from jobrun.model.job import Job, Task

__all__ = ["Accesses"]


class Accesses:
    """The accesses of a complete job, which is not changed from here on."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._found: dict[tuple[int, str], Access] = {}

    def access(self, task: Task, node: str) -> Access:
        """Return the accesses of a task, or of a step, on a node."""
        key = (id(task), node)
        if key not in self._found:
            self._found[key] = access(self.job, task, node)
        return self._found[key]

    def copies(self, task: Task) -> list[tuple[str, Access]]:
        """Return the accesses of a task on each of its nodes."""
        return [(node, self.access(task, node)) for node in self.job.nodes_of(task)]

    def units_of(self, group: str) -> Iterator[tuple[Task, list[tuple[str, Access]]]]:
        """Return the tasks of a group, each with its accesses on its nodes."""
        for task in self.job.groups[group].tasks:
            yield task, self.copies(task)

    def writes_of(self, group: str) -> Iterator[Key]:
        """Return every blob that a group writes, in the order of the spec."""
        for _, copies in self.units_of(group):
            for _, found in copies:
                yield from found.writes
