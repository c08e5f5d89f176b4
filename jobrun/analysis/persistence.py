"""The blobs that are saved: persistent ones, and scratch still to be read where a group is cut."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.graph import Plan
from jobrun.core.blob_paths import (
    Key,
    PathSet,
    levels,
    outermost,
    overlaps,
    trees_of,
)
from jobrun.core.patterns import touches
from jobrun.core.position import Position
from jobrun.model.job import Job

__all__ = ["live_scratch", "persistent", "ranks", "setup_blobs"]


def live_scratch(
    plan: Plan, position: Position, watched: Mapping[str, Collection[str]]
) -> dict[str, list[str]]:
    """Return the scratch still to be read if a group is cut at ``position``, per node.

    That is: what finished tasks wrote and unfinished ones read; all outputs of an unfinished pipe;
    and the ``watched`` paths, which are read at the end of the epoch.
    """
    done = set(position.tasks)
    wanted: dict[str, set[str]] = {node: set(paths) for node, paths in watched.items()}
    written: dict[str, dict[str, None]] = {}
    for unit in plan.units:
        started = unit.key in position.pipes
        if unit.key not in done:
            for node, path in unit.access.reads:
                wanted.setdefault(node, set()).add(path)
        if unit.key in done or started:
            for node, path in unit.access.writes:
                written.setdefault(node, {})[path] = None
                if started:
                    wanted.setdefault(node, set()).add(path)
    return {
        node: [p for p in paths if any(overlaps(p, w) for w in wanted.get(node, ()))]
        for node, paths in written.items()
    }


def setup_blobs(analysis: JobAnalysis) -> dict[str, tuple[str, ...]]:
    """Return the paths that ``setup`` writes, per node."""
    return _minimal(analysis.job, analysis.writes_of("setup"))


def persistent(analysis: JobAnalysis) -> dict[str, tuple[str, ...]]:
    """Return the paths whose values are saved, per node, in the order of the spec.

    What ``state`` names, every blob that ``init`` writes itself or a part of it, every blob of
    ``epoch`` that a later group reads, and what ``checkpoint.include`` adds.  A name that ``epoch``
    writes whole replaces the tree whose parts persist, so it persists in their place.  The rule is
    data flow, never a name.
    """
    job = analysis.job
    later = PathSet(
        k
        for group in ("download", "exit")
        for _, copies in analysis.units_of(group)
        for _, a in copies
        for k in (*a.reads, *a.best)
    )
    include = job.checkpoint.include if job.checkpoint else ()

    def wanted(key: Key) -> bool:
        return later.touches(key) or any(touches(pattern, *key) for pattern in include)

    epoch = dict.fromkeys(analysis.writes_of("epoch"))
    kept = dict.fromkeys((*analysis.writes_of("init"), *filter(wanted, epoch)))
    replaced = {(node, tree) for node, path in kept for tree in trees_of(path)}
    setup = set(analysis.writes_of("setup"))
    whole = (key for key in epoch if key in replaced)
    made = (k for k in (*kept, *whole) if k not in setup)
    return _minimal(job, (*analysis.live.saved, *made))


def ranks(analysis: JobAnalysis) -> dict[str, dict[str, int]]:
    """Per node, the order in which the spec first writes each leaf of a tree."""
    found: dict[str, dict[str, int]] = {n: {} for n in analysis.job.nodes}
    for group in analysis.job.groups:
        for node, path in analysis.writes_of(group):
            for level in reversed([*levels(path)]):
                found[node].setdefault(level, len(found[node]))
    return found


def _minimal(job: Job, keys: Iterable[Key]) -> dict[str, tuple[str, ...]]:
    """Per node the paths without those that lie below another, in order."""
    paths: dict[str, list[str]] = {n: [] for n in job.nodes}
    for node, path in keys:
        paths[node].append(path)
    return {node: outermost(own) for node, own in paths.items()}
