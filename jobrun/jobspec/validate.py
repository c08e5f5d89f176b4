"""From a spec to a job that is checked, or to all that is wrong with the spec."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from jobrun.core.suggestions import few_hints
from jobrun.errors import Problem, SpecError, new_problems
from jobrun.jobspec.build import built
from jobrun.jobspec.resolve import Spec, load, with_values
from jobrun.model.job import GROUPS, Job

__all__ = ["job_of", "validate_loaded", "validate_spec", "with_code_problems"]

T = TypeVar("T")


def validate_spec(
    path: str | os.PathLike[str],
    sets: Iterable[str] = (),
    import_: bool = False,
    *,
    epochs: int | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Job:
    """Return the job of a spec, checked as far as that goes without running it.

    ``folder`` is where its code is, if not beside it.  Raises SpecError with all problems at once.
    With ``import_`` the functions are imported and their signatures checked too, which raises
    BindError.
    """
    return validate_loaded(load(path, sets, epochs=epochs, folder=folder), import_)


def validate_loaded(spec: Spec, import_: bool = False) -> Job:
    """Return the job of a spec that has been loaded; see ``validate_spec``."""
    job = job_of(spec)
    if import_:
        from jobrun.usercode.bind import bind_job

        bind_job(job, spec.folder, spec.spec_dir)
    return job


def job_of(spec: Spec) -> Job:
    """Return the job of a spec, checked as far as that goes without its functions.

    With a matrix it is the job of its first combination, and every value is checked.  Raises
    SpecError with all problems at once.
    """
    if spec.matrix is None:
        return _checked(spec)
    jobs: list[Job] = []
    problems: list[Problem] = []
    for values in spec.matrix.covering():
        try:
            jobs.append(_checked(with_values(spec, values)))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))
    return jobs[0]


def with_code_problems(spec: Spec, make: Callable[[], T]) -> T:
    """Return what ``make`` makes of a spec.

    Raises its SpecError with what is wrong with the code of the spec, too.
    """
    try:
        return make()
    except SpecError as invalid:
        error = invalid
    raise _with_code(spec, error)  # not while ``error`` is handled: it would be in users' traces


def _with_code(spec: Spec, error: SpecError) -> SpecError:
    """Return the error of an invalid spec with what is wrong with the code that it names, too.

    The code is imported.  In a task that has an error of its own the call is not checked: it may
    follow from that.
    """
    from jobrun.usercode.bind import code_problems

    try:
        one = spec if spec.matrix is None else with_values(spec, spec.matrix.covering()[0])
        made = built(one).made
    except SpecError:
        return error
    imports, calls, trace = code_problems(made, spec.folder, spec.spec_dir)
    tasks = [t.where.line for g in GROUPS for t in made.groups[g].tasks if t.where]
    starts = sorted([*tasks, *(key.line + 1 for key in spec.source.root.keys.values())])
    wrong = {_task_at(starts, problem) for problem in error.problems}
    found = [*imports, *(p for p in calls if _task_at(starts, p) not in wrong)]
    return SpecError([*error.problems, *new_problems(error.problems, found)], trace=trace)


def _task_at(starts: Sequence[int], problem: Problem) -> int:
    """Return the number of the last task, or key of the spec, that starts before a problem."""
    return bisect_right(starts, problem.where.line) if problem.where is not None else -1


def _checked(spec: Spec) -> Job:
    builder = built(spec)
    problems = [*spec.problems]
    problems += new_problems(problems, builder.problems)
    whole = spec.whole and builder.whole
    later = _problems(builder.made) if whole else _name_problems(builder.made)
    problems += new_problems(problems, later)
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))
    return builder.made


@few_hints()
def _problems(job: Job) -> list[Problem]:
    """Return everything that is wrong with a job as a whole: its data flow and its conditions."""
    from jobrun.analysis.checks import check as check_flow
    from jobrun.conditions.parse import problems as condition_problems

    return [*check_flow(job), *condition_problems(job)]


@few_hints()
def _name_problems(job: Job) -> list[Problem]:
    """Return what is wrong with the names in a job of which some tasks are missing."""
    from jobrun.analysis.checks import name_problems

    return name_problems(job)
