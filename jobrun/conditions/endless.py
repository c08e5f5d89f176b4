"""Detection of endless runs: conditions that stay false since a blob has only ever been None.

None is not a value: a condition on it is false, and patience does not count the epoch.  If it never
becomes anything else, and nothing else ends the run, the run would be endless.  So there is a
warning after the first epoch, and an error after the third one in which the blob was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobrun.analysis.accesses import access
from jobrun.analysis.names import key_of, step_names
from jobrun.conditions.decision import ConditionState
from jobrun.core.blob_paths import overlaps
from jobrun.errors import TaskError, Where
from jobrun.model.job import Job, Pipe, Task

__all__ = ["first_none", "never_ends"]

_EPOCHS = 3
"""The number of epochs with only None after which no other value is expected."""


def first_none(
    job: Job, before: Sequence[ConditionState], now: Sequence[ConditionState]
) -> dict[str, str]:
    """Return a warning for each blob needed by a condition that is None for the first time.

    ``before`` and ``now`` are the conditions before and after an epoch, in one order.
    """
    found: dict[str, str] = {}
    for old, new in zip(before, now, strict=True):
        for name in sorted(new.condition.needs):
            if new.none.get(name) == 1 and name not in old.none:
                found.setdefault(
                    name,
                    f"{_described(new)} cannot be true while {name!r} is None, as "
                    f"{_writer(job, name)} has left it: return a number, NaN while there is none",
                )
    return found


def never_ends(job: Job, watched: Sequence[ConditionState]) -> TaskError | None:
    """Return the error of a run in which no condition can become true, as far as can be seen.

    None if one may, and for a job that is meant to be endless.
    """
    waits = [(w, _waits_for(w)) for w in watched]
    if job.never_stops or not waits or not all(name for _, name in waits):
        return None
    texts = [
        f"{_described(w)} needs {name!r}, which {_writer(job, name)} has left None in each of "
        f"{w.none[name]} epochs"
        for w, name in waits
    ]
    return TaskError(
        f"this run would never end: {'; '.join(texts)}",
        where=_where(job, *waits[0]),
        hint="return a number (did you forget 'return'?), NaN while there is none; or add a "
        "condition that does not need such a value, such as 'epochs'",
    )


def _waits_for(watched: ConditionState) -> str:
    """Return a blob that has kept a condition false for long enough, or an empty string.

    Several may do so together, as those of ``a < 1 or b < 1``: then it is the first of them.
    """
    condition = watched.condition
    without = [n for n in sorted(condition.names) if watched.none.get(n, 0) >= _EPOCHS]
    if not condition.blocked(without):
        return ""
    return next((n for n in without if n in condition.needs), without[0])


def _described(watched: ConditionState) -> str:
    return f"the condition '{watched.condition.label}'"


def _writer(job: Job, name: str) -> str:
    """Return the writer of a blob: the last task of an epoch, else of the groups before."""
    node, path = key_of(job, name)
    for group in ("epoch", "init", "setup"):
        for task in reversed(job.groups[group].tasks):
            for label, step in _steps(task) if node in job.nodes_of(task) else ():
                writes = access(job, step, node).writes
                if any(n == node and overlaps(p, path) for n, p in writes):
                    return f"task {label!r} of group {group!r}"
    return "no task"


def _steps(task: Task) -> Iterator[tuple[str, Task]]:
    """Yield the writing calls of a task, the last first, each with its name."""
    if not isinstance(task, Pipe):
        yield task.name, task
        return
    names = step_names(task)
    for step in reversed(task.do):
        yield f"{task.name}/{names[id(step)]}", step


def _where(job: Job, watched: ConditionState, name: str) -> Where | None:
    """Return the place of a condition in the spec."""
    section = "fail" if watched.fails else "stop"
    kind = watched.condition.kind
    specs = [s for s in job.conditions if (s.section, s.kind) == (section, kind)]
    named = [s for s in specs if name.rpartition(":")[2] in str(s.value)]
    marks = next((s.marks for s in (*named, *specs)), {})
    return marks.get("", job.marks.get(section))
