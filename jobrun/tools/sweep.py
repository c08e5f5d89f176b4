"""A sweep as a whole: which runs a ``matrix`` makes, and what is to be done with each.

What is to be done is decided for all runs before the first is started, by the rules for single
runs (``decide``): where one of them would be refused, the sweep is; where a new run would be begun
beside a finished one, a new sweep is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from jobrun.analysis.identity import digest, job_facts
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.conditions.parse import build as build_conditions
from jobrun.core.events import ignore
from jobrun.core.paths import resolved
from jobrun.engine.history import History
from jobrun.engine.resume_policy import Choice, Request
from jobrun.errors import RunRefusedError
from jobrun.jobspec.build import job_of
from jobrun.jobspec.resolve import Spec, dump_resolved, with_values
from jobrun.model.job import Job
from jobrun.runs.rundir import RunDir
from jobrun.runs.sweepdir import Member, SweepDir, SweepState, members_of

__all__ = ["Sweep", "SweepPlan"]


@dataclass(frozen=True)
class SweepPlan:
    """What is to be done in the directory ``home`` (None: in a new one).

    ``members`` are the runs that are wanted, and ``choices`` what is done with each.  ``known`` are
    all runs that there ever were of the sweep, and these; ``left`` are such that are not of the
    matrix any more.  ``lines`` say why it is a new one.
    """

    home: SweepDir | None
    members: Sequence[Member]
    choices: Sequence[Choice]
    known: Sequence[Member]
    left: Sequence[Member] = ()
    lines: Sequence[str] = ()

    @property
    def to_do(self) -> list[int]:
        """The numbers of the runs that are to be started."""
        return [n for n, c in enumerate(self.choices) if c.action in ("fresh", "resume")]


class Sweep:
    """The runs of a spec with a matrix; ``request`` holds for each of them.

    Raises SpecError with all that is wrong with any.
    """

    def __init__(self, spec: Spec, text: str, request: Request) -> None:
        assert spec.matrix is not None
        self.spec = spec
        self.text = text
        self.request = request
        self.matrix = spec.matrix
        self.job = job_of(spec)
        facts = job_facts(self.job)
        facts["vars"] = {n: v for n, v in facts["vars"].items() if n not in self.matrix.lists}
        self.digest = digest(facts)

    def job_of(self, member: Member) -> Job:
        """The job of one run."""
        return job_of(with_values(self.spec, member.values))

    def plan(self, home: SweepDir | None) -> SweepPlan:
        """What is to be done; nothing is written.

        Raises RunRefusedError where a run of the sweep is of another job, DamagedError.
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
        left = directories - {m.directory for m in of_matrix}
        return SweepPlan(
            home, members, choices, [*known, *new], [m for m in known if m.directory in left]
        )

    def _new(self, lines: Sequence[str] = ()) -> SweepPlan:
        """A sweep in a directory of its own."""
        known = members_of((), self.matrix.combinations())
        members = members_of(known, self.matrix.wanted())
        return SweepPlan(None, members, [Choice("fresh") for _ in members], known, lines=lines)

    def _choice(self, run: RunDir, member: Member) -> Choice:
        """What is to be done with one run."""
        if not run.is_run():
            return Choice("fresh")
        job = self.job_of(member)
        history = History(job, CheckpointManager(run.path), self.request, ignore)
        return history.choose(build_conditions(job))

    def write(self, plan: SweepPlan, home: SweepDir) -> None:
        """Write down what the sweep is, before a run of it begins; under its lock."""
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
                spec=spec_path.name,
                created=home.state().created if home.is_sweep() else "",
            )
        )


def _refusal(refused: Sequence[Choice], home: SweepDir) -> RunRefusedError:
    """The error of the first run that is refused; the ways it shows are those of the sweep."""
    lines = list(refused[0].lines)
    if len(refused) > 1:
        lines.append(f"the same holds for {len(refused) - 1} more of the runs in {home.shown()}")
    return RunRefusedError("\n".join(lines))
