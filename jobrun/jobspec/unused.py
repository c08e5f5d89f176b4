"""Unused parts of a spec: vars that nothing reads, and values that come to nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.persistence import persistent
from jobrun.core.blob_paths import overlaps
from jobrun.errors import Problem
from jobrun.jobspec.matrix import is_seed
from jobrun.jobspec.resolve import Spec
from jobrun.jobspec.source import SpecNode
from jobrun.model.pipe import Pipe

__all__ = ["idle_in_matrix", "unsaved_outputs", "unused_vars"]

_WORDS = re.compile(r"[\w.-]+")
_IDENTIFIERS = re.compile(r"\w+")


def unused_vars(spec: Spec) -> Iterator[Problem]:
    """Yield a warning for each var whose name stands nowhere but where its value is given."""
    lists = spec.matrix.lists if spec.matrix is not None else {}
    for name, key in _unused(spec).items():
        if name not in lists:
            text = f"var {name!r} is not used"
            yield Problem(text, spec.source.where(key), "no task and no condition names it")
    yield from idle_in_matrix(spec)


def idle_in_matrix(spec: Spec) -> Iterator[Problem]:
    """Yield a warning for each var of the matrix that nothing reads: its runs will be equal."""
    lists = spec.matrix.lists if spec.matrix is not None else {}
    unused = _unused(spec) if lists else {}
    for name, key in unused.items():
        if name in lists:
            text = f"var {name!r} is not used: the runs of the matrix that differ in it are equal"
            hint = "no task and no condition names it"
            if is_seed(name, ()):
                hint = "remove it from 'vars': the matrix then ranges over the seed of the job"
            yield Problem(text, spec.source.where(key), hint)


def unsaved_outputs(spec: Spec, analysis: JobAnalysis) -> Iterator[Problem]:
    """Yield a warning for each output of a task in ``epoch`` that is neither read nor saved.

    A name counts as read if it stands anywhere in the spec but under the ``out`` of such tasks.
    """
    job = analysis.job
    if job.checkpoint is None:
        return
    used, saved = set(_words_beside_outputs(spec)), persistent(analysis)
    for task in job.groups["epoch"].tasks:
        if isinstance(task, Pipe):
            continue
        kept = [path for node in job.nodes_of(task) for path in saved[node]]
        for name in task.outputs.names:
            path = name.rpartition(":")[2]
            if used.isdisjoint(path.split("/")) and not any(overlaps(path, p) for p in kept):
                text = f"{path!r} is written in each epoch, but neither read nor saved"
                hint = f"checkpoint: {{include: [{path}]}} saves it"
                yield Problem(text, task.mark(f"out:{name}", "out"), hint)


def _words_beside_outputs(spec: Spec) -> Iterator[str]:
    for section, node in spec.source.root.value.items():
        if section != "epoch" or not isinstance(node.value, list):
            yield from _words(node)
            continue
        for task in node.value:
            for key, value in task.value.items() if isinstance(task.value, dict) else ():
                if key != "out" or "pipe" in task.value:
                    yield from _words(value)


def _unused(spec: Spec) -> dict[str, SpecNode]:
    """Return the vars that stand nowhere but where their value is given, with their keys."""
    used: set[str] = set()
    for section, node in spec.source.root.value.items():
        if section not in ("vars", "nodes", "matrix"):
            used.update(_words(node))
    own = spec.source.root.get("vars")
    nodes = spec.source.root.get("nodes")
    per_node = nodes.value.values() if nodes is not None and isinstance(nodes.value, dict) else ()
    found: dict[str, SpecNode] = {}
    for holder in (own, *per_node):
        if holder is None or not isinstance(holder.value, dict):
            continue
        for name, key in holder.keys.items():
            if isinstance(name, str) and name not in used:
                found.setdefault(name, key)
    return found


def _words(node: SpecNode) -> Iterator[str]:
    """Yield all words of the keys and strings of a tree: names, and those in expressions."""
    waiting = [node]
    while waiting:
        value = waiting.pop().value
        if isinstance(value, dict):
            waiting += value.values()
            for key in value:
                yield from _in_text(str(key))
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str):
            yield from _in_text(value)


def _in_text(text: str) -> Iterator[str]:
    yield text
    yield from _WORDS.findall(text)
    yield from _IDENTIFIERS.findall(text)
