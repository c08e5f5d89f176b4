"""Problems of a job as a whole, found before anything runs.

``check`` returns all problems at once: unknown and ambiguous names, blobs read before they are
written, protected blobs of ``setup``, may-writes, cycles, metrics of blobs that no task writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.assumed_nodes import with_assumed_nodes
from jobrun.analysis.dataflow import (
    flow_problems,
    inner_steps,
    shuffle_problems,
    source_problems,
    write_mark,
)
from jobrun.analysis.graph import make_plan
from jobrun.analysis.live_state_checks import state_problems
from jobrun.analysis.metrics import best_problems, metric_problems
from jobrun.analysis.pinned import pinned_problems
from jobrun.analysis.schedule import every_problems
from jobrun.core.blob_paths import Key, levels
from jobrun.core.names import CASE_HINT, case_twins, check_name
from jobrun.core.patterns import may_mean, touches
from jobrun.core.suggestions import did_you_mean
from jobrun.errors import Problem, SpecError, Where, new_problems
from jobrun.model.job import GROUPS, RESERVED, Job, Pipe, Task
from jobrun.model.shell import Shell

__all__ = ["check", "name_problems", "warnings"]


def check(job: Job, analysis: JobAnalysis | None = None) -> list[Problem]:
    """Return every problem of ``job`` that can be found without running or importing anything.

    ``analysis``, if given, is used for the accesses of the tasks.
    """
    problems = name_problems(job)
    if problems:
        intended = None if any(_wrong_outputs(job)) else with_assumed_nodes(job)
        later = _flow_problems(JobAnalysis(intended)) if intended is not None else ()
        return [*problems, *new_problems(problems, later)]
    return list(dict.fromkeys(_flow_problems(analysis or JobAnalysis(job))))


def _flow_problems(analysis: JobAnalysis) -> Iterator[Problem]:
    """Yield the problems of a job with names that can be used."""
    job = analysis.job
    for found in (
        every_problems(job),
        state_problems(analysis),
        flow_problems(analysis),
        source_problems(analysis),
        shuffle_problems(job),
        pinned_problems(analysis),
        _check_meanings(analysis),
        best_problems(analysis),
        metric_problems(analysis),
        _check_cycles(analysis),
    ):
        yield from found


def name_problems(job: Job) -> list[Problem]:
    """Return the problems with names of vars, nodes and tasks."""
    for name in GROUPS:
        job.groups[name].named()
    found = (*_check_names(job), *_check_nodes(job), *_check_task_names(job))
    return list(dict.fromkeys(found))


def warnings(analysis: JobAnalysis) -> Iterator[Problem]:
    """Return what is possible, but seldom intended."""
    job = analysis.job
    yield from job.doubts
    for group, task in _steps(job):
        if group != "exit" and isinstance(task.fn, Shell) and not task.outputs.names:
            yield Problem(
                f"the shell task {task.name!r} of group {group!r} has no 'out': the files that "
                "it writes are in no checkpoint",
                task.mark("shell"),
                "name the files that belong to the state under 'out'",
            )
    yield from _patterns_of_nothing(analysis)


def _patterns_of_nothing(analysis: JobAnalysis) -> Iterator[Problem]:
    """Yield a warning for each name or pattern under ``checkpoint`` without a match."""
    job = analysis.job
    if job.checkpoint is None:
        return
    blobs = {key for group in ("init", "epoch") for key in analysis.writes_of(group)}
    blobs.update(analysis.live.saved)
    known = sorted({path for _, path in blobs})
    for key, patterns, may in (
        ("include", job.checkpoint.include, touches),
        ("compress", [rule.blobs for rule in job.checkpoint.compress], may_mean),
    ):
        for pattern in patterns:
            if pattern != "*" and not any(may(pattern, *blob) for blob in blobs):
                others = [
                    group
                    for group in ("setup", "download", "exit")
                    if any(may(pattern, *blob) for blob in analysis.writes_of(group))
                ]
                text = f"checkpoint.{key}: {pattern!r} matches no blob"
                hint = did_you_mean(pattern.rpartition(":")[2], known)
                hint = hint or f"the tasks write {', '.join(known[:8])}"
                if others:
                    text = f"checkpoint.{key}: {pattern!r} is never saved"
                    hint = f"it is written by {others[0]!r}; what 'init' and 'epoch' write can be"
                yield Problem(text, job.marks.get(f"checkpoint.{key}:{pattern}"), hint)


def _check_names(job: Job) -> Iterator[Problem]:
    """Yield the problems with names of vars, outputs and nodes."""
    for name in job.nodes:
        if name in ("best", "_SUCCESS") or name.startswith("manifest."):
            yield Problem(f"{name!r} cannot name a node: the name is reserved", _mark(job, name))
        elif check_name(name) or "/" in name:
            text = f"{name!r} cannot name a node: letters, digits, '_', '.', '-'"
            yield Problem(text, _mark(job, name))
    if twins := case_twins(job.nodes):
        text = f"nodes {twins[0]!r} and {twins[1]!r} differ in case only"
        yield Problem(text, _mark(job, twins[1]), CASE_HINT)
    for own in ({}, *job.nodes.values()):
        for name in (*job.vars, *own):
            if name in RESERVED:
                yield Problem(f"{name!r} is reserved and cannot name a var", _mark(job, name))
    yield from _wrong_outputs(job)


def _wrong_outputs(job: Job) -> Iterator[Problem]:
    for _, step in _steps(job):
        for name in step.outputs.names:
            problem = check_name(name.rpartition(":")[2])
            if problem and name.rpartition(":")[2] not in RESERVED:
                yield Problem(problem, step.mark(f"out:{name}", "out"))


def _mark(job: Job, name: str) -> Where | None:
    return job.marks.get(f"vars:{name}") or job.marks.get(f"nodes:{name}")


def _steps(job: Job) -> Iterator[tuple[str, Task]]:
    """Yield every function call of the job, with its group."""
    for group in GROUPS:
        for task in job.groups[group].tasks:
            yield from ((group, s) for s in inner_steps(task))


def _check_nodes(job: Job) -> Iterator[Problem]:
    for group in GROUPS:
        for task in job.groups[group].tasks:
            try:
                job.nodes_of(task)
            except SpecError as error:
                yield from error.problems


def _check_task_names(job: Job) -> Iterator[Problem]:
    """Yield a problem for each repeated name, and default names shared by tasks with ``rng``."""
    for group in GROUPS:
        tasks = job.groups[group].tasks
        yield from _same_names(tasks, f"group {group!r}")
        yield from _same_rng(tasks)
        for task in tasks:
            if isinstance(task, Pipe):
                yield from _same_names((*task.map, *task.do), f"pipe {task.name!r}")
                yield from _same_rng((*task.map, *task.do))


def _same_names(tasks: Sequence[Task], place: str) -> Iterator[Problem]:
    seen: set[str] = set()
    for task in tasks:
        if task.given_name is None:
            continue
        if task.given_name in seen:
            yield Problem(f"{place} has two tasks named {task.given_name!r}", task.mark("name"))
        seen.add(task.given_name)


def _same_rng(tasks: Sequence[Task]) -> Iterator[Problem]:
    seen: set[str] = set()
    for task in tasks:
        if task.given_name or not any(a.name == "rng" for a in task.inputs):
            continue
        if task.default_name in seen:
            yield Problem(
                f"two tasks draw random numbers under the same name, {task.default_name!r}",
                task.where,
                "give each a 'name:', so that their numbers differ and stay the same",
            )
        seen.add(task.default_name)


def _check_meanings(analysis: JobAnalysis) -> Iterator[Problem]:
    """Yield a problem for each name with two meanings in one place."""
    job = analysis.job
    bare = {n.rpartition(":")[2] for n in analysis.written}
    all_vars = {*job.vars, *(v for own in job.nodes.values() for v in own)}
    for group in GROUPS:
        for task in job.groups[group].tasks:
            for step in inner_steps(task):
                for name in step.outputs.names:
                    if name in all_vars:
                        yield Problem(
                            f"{name!r} is both a blob and a var",
                            step.mark(f"out:{name}", "out"),
                            "rename one of them",
                        )
            if isinstance(task, Pipe):
                yield from _column_meanings(task, bare)
    yield from _case_twins(analysis)


def _case_twins(analysis: JobAnalysis) -> Iterator[Problem]:
    """Yield a problem for blobs of a node, or trees that hold them, that differ in case only."""
    seen: dict[Key, str] = {}
    for group in GROUPS:
        for task, copies in analysis.units_of(group):
            for key in (key for _, found in copies for key in found.writes):
                for name in reversed([*levels(key[1])]):
                    other = seen.setdefault((key[0], name.casefold()), name)
                    if other != name:
                        text = f"blobs {other!r} and {name!r} differ in case only"
                        yield Problem(text, write_mark(task, key), CASE_HINT)
                        break


def _column_meanings(pipe: Pipe, blobs: set[str]) -> Iterator[Problem]:
    columns = {**dict.fromkeys(pipe.reader.data.columns, ""), **dict(pipe.reader.data.blob_names())}
    columns.update({n: "" for s in pipe.map for n in s.outputs.names if n not in columns})
    for column, source in columns.items():
        if column in blobs and source.rpartition(":")[2] != column:
            yield Problem(
                f"{column!r} is a column of pipe {pipe.name!r} and also a blob",
                pipe.mark(f"from:{column}", "from", "pipe"),
                "rename the column",
            )
    for column in dict.fromkeys(n for s in pipe.map for n in s.outputs.names):
        for blob in sorted(b for b in blobs if b.startswith(f"{column}/")):
            yield Problem(
                f"{blob!r} is a part of column {column!r} of pipe {pipe.name!r} and also a blob",
                pipe.mark(f"from:{column}", "from", "pipe"),
                "rename the column",
            )


def _check_cycles(analysis: JobAnalysis) -> Iterator[Problem]:
    for group in GROUPS:
        try:
            make_plan(analysis.job, analysis.job.groups[group], analysis)
        except SpecError as error:
            yield from error.problems
