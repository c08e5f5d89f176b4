"""In which epochs a blob is to get a value; tasks under ``every`` write theirs in some only.

Whether it did get one is what the session knows (see ``session/written.py``).
"""

from __future__ import annotations

from jobrun.analysis.names import Key, access, key_of
from jobrun.analysis.schedule import epochs_between
from jobrun.core.blob_paths import overlaps
from jobrun.model.job import Job, Pipe

__all__ = ["Frequency"]


class Frequency:
    """Which names are to have a value after which epochs; a pure function of the job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._writers: dict[Key, list[tuple[int, ...]]] = {}
        for task in job.epoch.tasks:
            for node in job.nodes_of(task):
                for step in task.do if isinstance(task, Pipe) else (task,):
                    due = (epochs_between(job, task, node), epochs_between(job, step, node))
                    for key in access(job, step, node).writes:
                        self._writers.setdefault(key, []).append(due)

    def is_due(self, name: str, epoch: int) -> bool:
        """Whether one of the tasks that write ``name`` in ``epoch`` is due; or none of them ever
        writes it, so that it keeps the value of an earlier group."""
        node, path = key_of(self._job, name)
        writers = [
            due
            for (other, written), found in self._writers.items()
            if other == node and overlaps(written, path)
            for due in found
        ]
        return not writers or any(all(epoch % n == 0 for n in due) for due in writers)
