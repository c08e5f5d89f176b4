"""Metrics of a job: names, directions, and the one by which a checkpoint is the best."""

from __future__ import annotations

from collections.abc import Iterator

from jobrun.analysis.analysis import JobAnalysis
from jobrun.core.blob_paths import covers, overlaps
from jobrun.core.suggestions import did_you_mean, did_you_mean_or_all
from jobrun.errors import Problem
from jobrun.model.job import GROUPS

__all__ = ["best_metric", "best_problems", "metric_names", "metric_problems", "reads_best"]


def metric_names(analysis: JobAnalysis) -> dict[str, str | None]:
    """Return the metrics by the name of their column, with their direction.

    With several nodes, a metric without a node stands for one column per node that writes it.
    """
    job = analysis.job
    found: dict[str, str | None] = {}
    known = analysis.written if job.multi_node and job.metrics else frozenset()
    for name, direction in job.metrics.items():
        if job.multi_node and ":" not in name:
            nodes = [n for n in job.nodes if f"{n}:{name}" in known]
            found.update({f"{n}:{name}": direction for n in nodes})
        else:
            found[name] = direction
    return found


def best_metric(analysis: JobAnalysis) -> tuple[str, str] | None:
    """Return the metric, and its direction, by which a checkpoint is the best one.

    That of ``checkpoint.keep.best``, else the only metric with a direction.
    """
    directed = {n: d for n, d in metric_names(analysis).items() if d is not None}
    policy = analysis.job.checkpoint
    keep = policy.keep.best if policy else None
    if keep is not None:
        return (keep.metric, directed[keep.metric]) if keep.metric in directed else None
    return next(iter(directed.items())) if len(directed) == 1 else None


def reads_best(analysis: JobAnalysis) -> bool:
    """Return whether a task reads a blob of the best checkpoint."""
    return any(
        found.best
        for group in GROUPS
        for _, copies in analysis.units_of(group)
        for _, found in copies
    )


def best_problems(analysis: JobAnalysis) -> Iterator[Problem]:
    """Yield the problems of ``best:``: it needs a metric, a checkpoint, a persistent blob."""
    job = analysis.job
    for group in GROUPS:
        for task, copies in analysis.units_of(group):
            for _, found in copies:
                for node, path in found.best:
                    mark = task.mark(f"in:best:{path}")
                    if group not in ("download", "exit"):
                        yield Problem(
                            f"'best:{path}' can be read in 'download' and 'exit' only", mark
                        )
                    elif job.checkpoint is None:
                        yield Problem(f"'best:{path}' needs checkpoints", mark)
                    elif best_metric(analysis) is None:
                        yield Problem(
                            f"'best:{path}': it is not known by which metric",
                            mark,
                            "name it under checkpoint.keep.best, with a direction in 'metrics'",
                        )
                    elif not any(
                        k[0] == node and overlaps(k[1], path)
                        for keys in (
                            analysis.live.saved,
                            analysis.writes_of("init"),
                            analysis.writes_of("epoch"),
                        )
                        for k in keys
                    ):
                        known = [p for n, p in analysis.writes_of("init") if n == node]
                        text = f"'best:{path}': no checkpoint holds a blob {path!r}"
                        yield Problem(text, mark, did_you_mean(path, known))


def metric_problems(analysis: JobAnalysis) -> Iterator[Problem]:
    job, known = analysis.job, analysis.written
    for name in job.metrics:
        if name not in known and not any(covers(k, name) for k in known):
            yield Problem(
                f"metric {name!r} is not a blob of this job",
                job.marks.get(f"metrics:{name}"),
                did_you_mean_or_all(name, sorted(known)),
            )
    best = job.checkpoint.keep.best if job.checkpoint else None
    if best is not None and metric_names(analysis).get(best.metric) is None:
        directed = [n for n, d in metric_names(analysis).items() if d]
        yield Problem(
            f"checkpoint.keep.best: {best.metric!r} is not a metric with a direction",
            job.marks.get("checkpoint.keep.best"),
            did_you_mean(best.metric, directed)
            or f"add '{best.metric}: min' (or max) to 'metrics'",
        )
