"""A sweep as a whole: the runs of a ``matrix``, and the choice for each.

The choices are made for all runs before the first is started, by the rules for single
runs (``decide``): if one of them would be refused, the sweep is; if a new run would be started
beside a finished one, a new sweep is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.facts import job_facts
from jobrun.analysis.identity import digest
from jobrun.analysis.metrics import best_metric, metric_names
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.conditions.parse import build as build_conditions
from jobrun.core.events import ignore
from jobrun.core.paths import file_from, resolved
from jobrun.engine.history import History
from jobrun.engine.resume_policy import Choice, Request
from jobrun.errors import RunRefusedError
from jobrun.jobspec.matrix import Matrix, is_seed
from jobrun.jobspec.resolve import Spec, dump_resolved, with_values
from jobrun.jobspec.validate import job_of
from jobrun.model.job import Job
from jobrun.runs.rundir import RunDir
from jobrun.runs.sweepdir import Member, SweepDir, SweepState, members_of

__all__ = ["Sweep", "SweepPlan"]


@dataclass(frozen=True)
class SweepPlan:
    """The plan of a sweep in the directory ``home`` (None: in a new one).

    ``members`` are the runs of the matrix, and ``choices`` what is done with each.  ``known`` are
    all runs that the sweep ever had, and these; ``left`` are those that are no longer in the
    matrix.  ``lines`` are the reason why it is a new one.
    """

    home: SweepDir | None
    members: Sequence[Member]
    choices: Sequence[Choice]
    known: Sequence[Member]
    left: Sequence[Member] = ()
    lines: Sequence[str] = ()

    @property
    def to_do(self) -> list[int]:
        """The numbers of the runs to start."""
        return [n for n, c in enumerate(self.choices) if c.action in ("fresh", "resume")]


class Sweep:
    """The runs of a spec with a matrix; ``request`` applies to each of them.

    Raises SpecError with all errors of all runs.
    """

    def __init__(self, spec: Spec, text: str, request: Request) -> None:
        assert spec.matrix is not None
        self.spec = spec
        self.text = text
        self.request = request
        self.matrix = spec.matrix
        self.job = job_of(spec)
        self.digest = digest(_common(job_facts(self.job), self.matrix))
        analysis = JobAnalysis(self.job)
        self.metrics = metric_names(analysis)
        """The metrics, each with the direction that is better."""
        best = best_metric(analysis)
        self.best_by = best[0] if best is not None else None
        """The metric by which a checkpoint is the best."""

    def job_of(self, member: Member) -> Job:
        """Return the job of one run."""
        return job_of(with_values(self.spec, member.values))

    def members(self, home: SweepDir | None) -> list[Member]:
        """Return the runs to run, in the order of the matrix, with their places in ``home``.

        ``home`` need not exist.  Raises DamagedError.
        """
        known = home.state().members if home is not None and home.is_sweep() else ()
        return members_of(members_of(known, self.matrix.combinations()), self.matrix.wanted())

    def left(self, home: SweepDir) -> list[Member]:
        """Return the runs of ``home`` that are no longer in the matrix."""
        known = home.state().members if home.is_sweep() else ()
        directories = {m.directory for m in members_of(known, self.matrix.combinations())}
        return [m for m in known if m.directory not in directories]

    def plan(self, home: SweepDir | None) -> SweepPlan:
        """Return the plan; nothing is written.

        Raises RunRefusedError if a run of the sweep is of another job, DamagedError.
        """
        if home is None:
            return self._new()
        known = home.state().members
        of_matrix = members_of(known, self.matrix.combinations())
        members = members_of(of_matrix, self.matrix.wanted())
        choices = [self._choice(home.run(member), member) for member in members]
        if refused := [c for c in choices if c.action == "refuse"]:
            raise _refusal(refused, home)
        if beside := next((c for c in choices if c.action == "new_run"), None):
            return self._new((*beside.lines[:-1], "a new sweep starts beside it"))
        directories = {m.directory for m in known}
        new = [m for m in of_matrix if m.directory not in directories]
        return SweepPlan(home, members, choices, [*known, *new], self.left(home))

    def _new(self, lines: Sequence[str] = ()) -> SweepPlan:
        """Return the plan of a sweep in a new directory."""
        known = members_of((), self.matrix.combinations())
        members = members_of(known, self.matrix.wanted())
        return SweepPlan(None, members, [Choice("fresh") for _ in members], known, lines=lines)

    def _choice(self, run: RunDir, member: Member) -> Choice:
        """Return the choice for one run."""
        if not run.is_run():
            return Choice("fresh")
        job = self.job_of(member)
        history = History(job, CheckpointManager(run.path), self.request, ignore)
        return history.choose(build_conditions(job))

    def write(self, plan: SweepPlan, home: SweepDir) -> None:
        """Record the sweep in its directory, under its lock, before its runs start."""
        folder, spec_path = self.request.folder, self.request.spec_path
        assert folder is not None
        assert spec_path is not None
        home.home.clean()
        home.home.store_spec(self.text, dump_resolved(self.spec))
        home.write(
            SweepState(
                job=self.job.name,
                matrix=self.matrix.lists,
                members=tuple(plan.known),
                digest=self.digest,
                folder=str(resolved(folder)),
                folder_relative=os.path.relpath(resolved(folder), resolved(home.path)),
                spec=file_from(folder, spec_path),
                created=home.state().created if home.is_sweep() else "",
            )
        )


def _common(facts: Mapping[str, Any], matrix: Matrix) -> dict[str, Any]:
    """Return the facts of a job that all runs of its matrix share."""
    vars = facts.get("vars", {})
    common = {**facts, "vars": {n: v for n, v in vars.items() if n not in matrix.lists}}
    return {k: v for k, v in common.items() if not (k in matrix.lists and is_seed(k, vars))}


def _refusal(refused: Sequence[Choice], home: SweepDir) -> RunRefusedError:
    """Return the error of the first refused run; the commands it shows are the sweep's."""
    lines = list(refused[0].lines)
    if len(refused) > 1:
        lines.append(f"the same holds for {len(refused) - 1} more of the runs in {home.shown()}")
    return RunRefusedError("\n".join(lines))
