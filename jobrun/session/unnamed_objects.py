"""The check that no training is lost: live objects of ``setup`` must be named in the job.

``state`` or ``constant`` names them.

A live object is one of which a state can be read: there is an adapter for its type, or it has
``state_dict`` and ``load_state_dict``.  ``setup`` makes it again at every start, so that a resumed
run would continue with an untrained one, and no error would tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.dataflow import reader_names, write_mark
from jobrun.core.blob_paths import Key, PathSet, covers, overlaps
from jobrun.errors import TaskError, Where
from jobrun.model.job import GROUPS, Pipe, Task
from jobrun.values.adapters.pytree import live_adapter_of
from jobrun.values.boxes import Box
from jobrun.values.opaque import changeable_objects
from jobrun.values.workspace import Workspace

__all__ = ["check_named"]


def check_named(analysis: JobAnalysis, nodes: Mapping[str, Workspace]) -> None:
    """Raise TaskError if a live object of ``setup`` that others use is named nowhere.

    ``nodes`` are the blobs after ``setup``.
    """
    found: dict[str, tuple[Key, str, list[str]]] = {}
    constants = PathSet(analysis.live.constants)
    for key, obj in _live_objects(nodes):
        name = _written_name(analysis, key)
        if not constants.touches(key) and name not in found:
            users = list(dict.fromkeys(_users(analysis, key)))
            if users:
                found[name] = (key, f"{type(obj).__module__}.{type(obj).__qualname__}", users)
                _refuse_second_name(analysis, nodes, key, obj)
    if found:
        raise _not_named(analysis, found)


def _live_objects(nodes: Mapping[str, Workspace]) -> Iterator[tuple[Key, object]]:
    """Return the live objects that are not blobs of ``state``, each with its path."""
    for node, workspace in nodes.items():
        for name, value in workspace.root.items():
            for path, obj in changeable_objects(value, name):
                if live_adapter_of(obj) is not None:
                    yield (node, path), obj


def _users(analysis: JobAnalysis, key: Key) -> Iterator[str]:
    """Yield the users of a blob that may change it and are resumed: ``init``, ``epoch``, pipes."""
    for group in GROUPS:
        for task, copies in analysis.units_of(group):
            if group in ("init", "epoch") or (isinstance(task, Pipe) and group != "setup"):
                for _, access in copies:
                    if any(k[0] == key[0] and overlaps(k[1], key[1]) for k in access.reads):
                        yield f"{task.name!r} of {group!r}"


def _refuse_second_name(
    analysis: JobAnalysis, nodes: Mapping[str, Workspace], key: Key, obj: object
) -> None:
    """Raise TaskError if the object is under ``state`` by another name."""
    for node, path in analysis.live.keys:
        box = nodes[node].find(path) if node in nodes else None
        if isinstance(box, Box) and box.value is obj:
            raise TaskError(
                f"{key[1]!r} of 'setup' is the object that 'state' names {path!r}",
                where=_made_at(analysis, key),
                hint=f"use the name {path!r} alone: tasks are ordered by it",
            )


def _not_named(analysis: JobAnalysis, found: Mapping[str, tuple[Key, str, list[str]]]) -> TaskError:
    names = list(found)
    kinds = dict.fromkeys(kind for _, kind, _ in found.values())
    users = dict.fromkeys(user for _, _, all_of_one in found.values() for user in all_of_one)
    they, are = ("them", "are live objects") if names[1:] else ("it", "is a live object")
    hint = f"'constant: [{', '.join(names)}]' is for objects that no task changes"
    read = {name for _, pipe in analysis.job.pipes() for _, name in reader_names(pipe)}
    if kept := [name for name in names if name not in read]:
        if not any(analysis.job.state.values()):
            kept = [*analysis.job.state, *kept]
        hint = f"'state: [{', '.join(kept)}]' saves their content in every checkpoint; {hint}"
    return TaskError(
        f"{' and '.join(map(repr, names))} of 'setup' {are} ({', '.join(kinds)}) that "
        f"{' and '.join(users)} use{'s' if len(users) == 1 else ''}, and "
        f"neither 'state' nor 'constant' names {they}: what changes in {they} would be lost on a "
        "resume",
        where=_made_at(analysis, next(iter(found.values()))[0]),
        hint=hint,
    )


def _written_name(analysis: JobAnalysis, key: Key) -> str:
    """Return the name under which ``setup`` writes an object, or the tree that holds it."""
    written = (path for node, path in analysis.writes_of("setup") if node == key[0])
    return next((path for path in written if covers(path, key[1])), key[1])


def _made_at(analysis: JobAnalysis, key: Key) -> Where | None:
    """Return the place in the spec where ``setup`` writes a blob."""
    made: Task | None = None
    for task, copies in analysis.units_of("setup"):
        for _, access in copies:
            if any(k[0] == key[0] and overlaps(k[1], key[1]) for k in access.writes):
                made = task
    return None if made is None else write_mark(made, key)
