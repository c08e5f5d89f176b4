"""From the conditions of a job as written to condition objects, with all their problems.

``stop`` and ``fail`` of a spec and ``job.stop(…)`` in Python both use it.  A number may be
the name of a var; a metric is a scalar blob that some task writes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from jobrun.analysis.analysis import JobAnalysis
from jobrun.conditions.base import Condition
from jobrun.conditions.entry import ConditionEntry, KnownNames
from jobrun.conditions.kinds import KINDS
from jobrun.core.suggestions import ALL, did_you_mean_or_all
from jobrun.errors import Problem, SpecError
from jobrun.model.job import ConditionSpec, Job, Pipe

__all__ = ["build", "form_problems", "problems"]


def build(job: Job, known: Collection[str] | None = None) -> list[tuple[Condition, bool]]:
    """Return the conditions of a job, each with whether it is under ``fail``.

    ``known`` are the blobs that tasks write, as ``JobAnalysis.written`` has them (the default).
    Raises SpecError with every problem.
    """
    reader = _of_job(job, known)
    found = reader.read(job.conditions)
    reader.check_loop(job, found)
    if reader.problems:
        raise SpecError(reader.problems)
    return found


def problems(job: Job, known: Collection[str] | None = None) -> list[Problem]:
    """Return the problems of the conditions of a job."""
    reader = _of_job(job, known)
    reader.check_loop(job, reader.read(job.conditions))
    return reader.problems


def form_problems(
    conditions: Sequence[ConditionSpec], shared: Mapping[str, Any], split: Collection[str] = ()
) -> list[Problem]:
    """Return the problems of the form of conditions, before there is a job.

    ``shared`` are the vars with one value on all nodes, ``split`` the names of the others.
    """
    reader = _Reader(KnownNames(shared, split))
    reader.read(conditions)
    return reader.problems


def _of_job(job: Job, known: Collection[str] | None) -> _Reader:
    if known is None:
        known = _written(job)
    shared = job.shared_vars()
    every = {*job.vars, *(name for own in job.nodes.values() for name in own)}
    pipes = {t.name: t.reader.batches.passes for t in job.epoch.tasks if isinstance(t, Pipe)}
    nodes = tuple(job.nodes) if job.multi_node else ()
    return _Reader(KnownNames(shared, every - set(shared), known, job.metrics, pipes, nodes))


def _written(job: Job) -> Collection[str] | None:
    """Return the blobs that tasks write; None if the tasks themselves have problems."""
    try:
        return JobAnalysis(job).written
    except SpecError:  # which ``jobrun.analysis.checks.check`` reports in full
        return None


class _Reader:
    """A reader of conditions as written, which collects their problems."""

    def __init__(self, known: KnownNames) -> None:
        self.known = known
        self.problems: list[Problem] = []

    def read(self, conditions: Sequence[ConditionSpec]) -> list[tuple[Condition, bool]]:
        """Return every valid condition, with whether it is under ``fail``."""
        found: list[tuple[Condition, bool]] = []
        for spec in conditions:
            entry = ConditionEntry(spec, self.problems, self.known)
            kind = KINDS.get(spec.kind)
            if kind is None:
                hint = did_you_mean_or_all(spec.kind, list(KINDS), most=ALL)
                entry.refuse(f"unknown condition {spec.kind!r}", hint, whole=True)
                continue
            found += [(c, spec.section == "fail") for c in kind.parse(entry)]
        return found

    def check_loop(self, job: Job, found: Sequence[tuple[Condition, bool]]) -> None:
        """Check that the loop ends, and that a limit of passes has the condition it needs.

        ``found`` are the valid conditions of the job.
        """
        if not job.never_stops and not any(c.section == "stop" for c in job.conditions):
            text = "no stop condition: the job would never end"
            hint = "stop: {epochs: 10}; or 'stop: never' if that is intended"
            self.problems.append(Problem(text, job.marks.get("stop"), hint))
        stops = [c for c, fails in found if not fails]
        if stops and all(c.interrupts for c in stops) and not self.problems:
            text = "'walltime: slurm' interrupts a run, which resumes later: it would never end"
            hint = "add a condition that ends it, such as epochs: 10"
            self.problems.append(Problem(text, job.marks.get("stop"), hint))
        if job.never_stops and any(c.section == "stop" for c in job.conditions):
            text = "'never' together with other stop conditions"
            self.problems.append(Problem(text, job.marks.get("stop"), "remove one of the two"))
        watched = [c.value for c in job.conditions if c.kind == "data_finished"]
        for group, pipe in job.pipes():
            if group is not job.epoch or pipe.reader.batches.passes is None or pipe.name in watched:
                continue
            text = f"pipe {pipe.name!r} has 'passes', but nothing ends the job after them"
            hint = f"stop: {{data_finished: {pipe.name}}}"
            self.problems.append(Problem(text, pipe.mark("passes", "pipe"), hint))
