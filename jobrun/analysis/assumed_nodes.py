"""A job whose tasks name nodes that it does not declare, as it may have been intended.

So its data flow can be checked in the same round.  It is never run.
"""

from __future__ import annotations

from copy import copy

from jobrun.core.suggestions import nearest
from jobrun.model.job import MAIN, Job, Task, TaskGroup, match_nodes

__all__ = ["with_assumed_nodes"]


def with_assumed_nodes(job: Job) -> Job | None:
    """Return a job that has the nodes of its tasks; None if it is not known where a task runs.

    A misspelt node is taken for the one it is near to, and others as declared.
    """
    made = copy(job)
    made.nodes, made.multi_node = dict(job.nodes), True
    made.groups = {}
    for name, group in job.groups.items():
        made.groups[name] = TaskGroup(name)
        for task in group.tasks:
            node = _node(job, task)
            if node is None:
                return None
            if not match_nodes(node, job.nodes):
                made.nodes.setdefault(node, {})
            moved = copy(task)
            moved.node = node
            made.groups[name].tasks.append(moved)
    return made


def _node(job: Job, task: Task) -> str | None:
    """Return the node, or pattern of nodes, of a task; None if it is unknown."""
    if task.node is None:
        return None if job.multi_node else MAIN
    if match_nodes(task.node, job.nodes):
        return task.node
    near = nearest(task.node, list(job.nodes), most=1)
    return near[0] if near else None if set(task.node) & set("*?[") else task.node
