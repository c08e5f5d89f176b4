"""Checks of ``state`` and ``constant``, and of how tasks use live state."""

from __future__ import annotations

from collections.abc import Iterator

from jobrun.analysis.accesses import Access
from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.dataflow import read_mark, reader_names
from jobrun.analysis.live_state import LiveState
from jobrun.core.blob_paths import covers, overlaps
from jobrun.core.suggestions import did_you_mean, did_you_mean_or_all
from jobrun.errors import Problem
from jobrun.model.job import GENERATORS, GROUPS, Job, Pipe, Task
from jobrun.model.options import Load
from jobrun.model.shell import Shell

__all__ = ["state_problems"]


def state_problems(analysis: JobAnalysis) -> Iterator[Problem]:
    """Yield what is wrong with ``state`` and ``constant``, and with how tasks use live state."""
    job = analysis.job
    if not (job.state or job.constant):
        return
    yield from _name_problems(analysis)
    live = analysis.live
    for group in GROUPS:
        for task, copies in analysis.units_of(group):
            for node, found in copies:
                yield from _use_problems(job, task, node, found, live)
            if isinstance(task, Pipe):
                yield from _source_problems(job, task, live)
                yield from _joined_problems(job, task)


def _name_problems(analysis: JobAnalysis) -> Iterator[Problem]:
    job = analysis.job
    made = list(dict.fromkeys(path for _, path in analysis.writes_of("setup")))
    for section, names in (("state", job.state), ("constant", job.constant)):
        for name in names:
            mark = job.marks.get(f"{section}:{name}")
            if name in made:
                if section == "constant" and name in job.state:
                    yield Problem(f"{name!r} is under 'state' and 'constant' at once", mark)
            elif section == "state" and name in GENERATORS:
                if job.state[name] is not None:
                    yield Problem(f"{name!r} under 'state' takes no adapter", mark)
            else:
                known = (*made, *GENERATORS) if name.startswith("rng") else made
                hint = did_you_mean(name, known) or did_you_mean_or_all(name, made)
                yield Problem(
                    f"{section!r} names {name!r}, which no task of 'setup' writes", mark, hint
                )


def _use_problems(
    job: Job, task: Task, node: str, found: Access, live: LiveState
) -> Iterator[Problem]:
    yield from _key_problems(job, task, node, found, live)
    put = [key for key in live.used_by(found) if key in found.writes]
    if put and isinstance(task.fn, Load | Shell) and not _loads_weights(task):
        yield Problem(
            f"task {task.name!r} replaces {put[0][1]!r}, which is an object under 'state'",
            task.mark(f"out:{put[0][1]}", "out", "load"),
            "give it another name, and let a task of 'init' put it into the object ('update')",
        )
    if task.timeout is not None and task.retries is not None and live.used_by(found):
        yield Problem(
            f"task {task.name!r} has 'timeout' and 'retries' and uses "
            f"{live.used_by(found)[0][1]!r}, which is under 'state': a call that was given up may "
            "still change it",
            task.mark("timeout"),
            "leave out one of the two",
        )


def _key_problems(
    job: Job, task: Task, node: str, found: Access, live: LiveState
) -> Iterator[Problem]:
    """Yield a problem for each name that is a generator, or a live object in part or elsewhere."""
    written = set(found.writes)
    for key in dict.fromkeys((*found.reads, *found.writes)):
        if key[1] in job.generators:
            yield Problem(
                f"task {task.name!r} names {key[1]!r}, a generator under 'state'",
                read_mark(task, key),
                "tasks draw from it as they do without jobrun, and 'rng' is a generator of their "
                "own",
            )
        for own in live.keys:
            if own[0] != key[0] or not overlaps(own[1], key[1]):
                continue
            if key[0] != node:
                yield Problem(
                    f"task {task.name!r} on node {node!r} uses {key[1]!r} of node {key[0]!r}, "
                    "which is under 'state': a live object never leaves its node",
                    read_mark(task, key),
                    "let a task of that node write arrays, and exchange those",
                )
            elif own != key and (key in written or covers(own[1], key[1])):
                yield Problem(
                    f"task {task.name!r} names {key[1]!r}, but {own[1]!r} is under 'state' and is "
                    "one object",
                    read_mark(task, key),
                    f"name {own[1]!r}",
                )


def _loads_weights(task: Task) -> bool:
    """Return whether a task puts weights of a file into the objects that it names."""
    return isinstance(task.fn, Load) and task.fn.file is not None


def _joined_problems(job: Job, pipe: Pipe) -> Iterator[Problem]:
    """Yield a problem for joined sources of functions, where global generators are saved.

    One that is read again up to the place of a resume draws again, and the others do not.
    """
    data = pipe.reader.data
    replayed = [d.call for d in data.leaves() if d.call is not None and d.call.resume != "state"]
    if job.generators and replayed and (data.zip or data.concat):
        yield Problem(
            f"pipe {pipe.name!r} joins a source that {replayed[0].step.function_name} makes, and "
            f"'state' names {job.generators[0]!r}: what the function draws from it could not be "
            "repeated on a resume",
            pipe.mark("zip", "concat", "pipe"),
            "read that source in a pipe of its own, or give it 'resume: state'",
        )


def _source_problems(job: Job, pipe: Pipe, live: LiveState) -> Iterator[Problem]:
    """Yield a problem for each live object that a pipe would read from."""
    for mark, name in reader_names(pipe):
        for node in job.nodes_of(pipe):
            if ":" not in name and live.touches((node, name)):
                yield Problem(
                    f"pipe {pipe.name!r} reads from {name!r}, which is under 'state': it changes "
                    "from batch to batch",
                    pipe.mark(mark, "from"),
                    "read from arrays, or make the source of an object that is not under 'state'",
                )
                break
