"""``every``: the epochs in which a task runs, and the batches on which a step runs.

Whether a blob did get a value is known to the session (see ``session/written_blobs.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.names import key_of
from jobrun.core.blob_paths import Key, overlaps
from jobrun.errors import Problem
from jobrun.model.job import GROUPS, Job, Pipe, Task

__all__ = ["Frequency", "batches_between", "epochs_between", "every_problems"]


def epochs_between(job: Job, task: Task, node: str) -> int:
    """Return the number of epochs from one run of a task, or step, to the next."""
    return int(_value(job, node, _field(task, "epochs")))


def batches_between(job: Job, step: Task, node: str) -> int:
    """Return the number of batches from one run of a step to the next."""
    return int(_value(job, node, _field(step, "batches")))


def _field(task: Task, unit: str) -> Any:
    every = task.every
    if isinstance(every, Mapping):
        return every.get(unit, 1)
    return every if unit == "epochs" and every is not None else 1


def _value(job: Job, node: str, given: Any) -> Any:
    return job.node_vars(node).get(given) if isinstance(given, str) else given


class Frequency:
    """The names that have a value after each epoch; a pure function of the job."""

    def __init__(self, analysis: JobAnalysis) -> None:
        job = self._job = analysis.job
        self._writers: dict[Key, list[tuple[int, ...]]] = {}
        for task in job.epoch.tasks:
            for node in job.nodes_of(task):
                for step in task.do if isinstance(task, Pipe) else (task,):
                    due = (epochs_between(job, task, node), epochs_between(job, step, node))
                    for key in analysis.access(step, node).writes:
                        self._writers.setdefault(key, []).append(due)

    def is_due(self, name: str, epoch: int) -> bool:
        """Return whether a task that writes ``name`` is due in ``epoch``, or no task writes it."""
        node, path = key_of(self._job, name)
        writers = [
            due
            for (other, written), found in self._writers.items()
            if other == node and overlaps(written, path)
            for due in found
        ]
        return not writers or any(all(epoch % n == 0 for n in due) for due in writers)


def every_problems(job: Job) -> Iterator[Problem]:
    """Yield a problem for each ``every`` that is not an integer of at least 1, or such a var."""
    for group in GROUPS:
        for task in job.groups[group].tasks:
            yield from _problems(job, task, task, ("epochs",))
            if isinstance(task, Pipe):
                for step in task.map:
                    if step.every is not None:
                        text = f"the 'map' step {step.name!r} runs on each batch: it has no 'every'"
                        yield Problem(text, step.mark("every"))
                for step in task.do:
                    yield from _problems(job, step, task, ("epochs", "batches"))


def _problems(job: Job, task: Task, owner: Task, units: tuple[str, ...]) -> Iterator[Problem]:
    every = task.every
    mark = task.mark("every")
    unknown = set(every) - set(units) if isinstance(every, Mapping) else set()
    if unknown:
        names = " and ".join(repr(n) for n in sorted(unknown))
        yield Problem(f"'every' of task {task.name!r} knows no {names}", mark)
        return
    for node in job.nodes_of(owner):
        for unit in units:
            given = _field(task, unit)
            value = _value(job, node, given)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                what = repr(value)
                if isinstance(given, str):
                    known = given in job.node_vars(node)
                    what = (
                        f"the var {given!r}, {value!r}"
                        if known
                        else f"{given!r}, which is not a var"
                    )
                text = f"'every' of task {task.name!r} is {what}, not a whole number from 1"
                yield Problem(text, mark)
