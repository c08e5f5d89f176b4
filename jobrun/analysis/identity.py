"""Whether two jobs are the same one: the differences between their facts, and a digest of them.

Each difference belongs to a row of the table that decides whether a run may be resumed:

``free``    stop and fail conditions, limits and threads of pipes, retries, timeouts and
            ``thread``, checkpoint policy, upload, metrics, reporters, session, name, ``constant``
``accept``  ``batch`` of a pipe: another job, but one that is commonly meant
``job``     tasks, vars, seed, nodes, ``state``, all else of a pipe: another job
``never``   the adapter of an object under ``state``: it cannot restore what another one has saved

The order of tasks counts, that of the keys of a mapping does not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from jobrun.analysis.facts import Facts
from jobrun.core.json_floats import from_json, to_json
from jobrun.model.job import GROUPS

__all__ = ["Change", "Diff", "compare", "digest"]

Row = Literal["free", "accept", "job", "never"]

_FREE = ("name", "stop", "fail", "metrics", "upload", "report", "session", "constant")
_FREE_OF_PIPE = ("batches_per_epoch", "passes", "threads", "ahead", "processes", "resume")
_ACCEPTED_OF_PIPE = ("batch", "shard")
_OPTIONS = (("retries",), ("timeout",), ("thread",))
"""Options of how a call is made, which do not change its results."""
_ABSENT = object()
_LONGEST = 80
"""The largest number of characters of a value that are shown."""
_BEFORE = 30
"""The largest number of leading characters shown that are equal in both values."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference; ``str()`` is a line such as ``vars.lr: 0.1 -> 0.05``."""

    path: str
    old: str
    new: str
    row: Row

    def __str__(self) -> str:
        if not self.old:
            return f"{self.path}: added, {self.new}"
        if not self.new:
            return f"{self.path}: removed, was {self.old}"
        return f"{self.path}: {self.old} -> {self.new}"


@dataclass(frozen=True, slots=True)
class Diff:
    """All differences between two jobs, in the order of the spec."""

    changes: tuple[Change, ...] = ()

    @property
    def free(self) -> tuple[str, ...]:
        """Lines about what may change at any time."""
        return tuple(str(c) for c in self.changes if c.row == "free")

    @property
    def job(self) -> tuple[str, ...]:
        """Lines about what makes it another job."""
        return tuple(str(c) for c in self.changes if c.row != "free")

    @property
    def never(self) -> tuple[str, ...]:
        """Lines about what no run can resume with."""
        return tuple(str(c) for c in self.changes if c.row == "never")

    def freed(self, groups: Iterable[str]) -> Diff:
        """Return the diff with the tasks of these groups free to change."""
        free = tuple(groups)
        return Diff(
            tuple(
                replace(c, row="free") if c.path.split(".")[0] in free else c for c in self.changes
            )
        )

    def __bool__(self) -> bool:
        return bool(self.changes)


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> Diff:
    """Return the differences between the facts of two jobs."""
    none: Facts = {"state": {}}  # so that each name is a difference of its own
    before, after = ({**none, **_same_floats(facts)} for facts in (old, new))
    return Diff(tuple(_changes(before, after, ())))


def _same_floats(facts: Mapping[str, Any]) -> Any:
    """Return facts with floats in today's spelling; earlier versions wrote ``nan`` and ``inf``."""
    return to_json(from_json(dict(facts)))


def digest(facts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a job's identity: its facts without those that are free to change."""
    part = _job_part(facts, ())
    policy = facts.get("checkpoint")
    if isinstance(policy, Mapping) and "include" in policy:
        part["include"] = policy["include"]
    text = json.dumps(part, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _changes(old: Any, new: Any, path: tuple[str, ...]) -> Iterator[Change]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys((*old, *new)):
            below = (*path, str(key))
            yield from _changes(old.get(key, _ABSENT), new.get(key, _ABSENT), below)
    elif _named(old) and _named(new):
        yield from _entries(old, new, path)
    elif not _same(old, new):
        replaced = path[0] == "state" and old is not _ABSENT and new is not _ABSENT
        yield Change(".".join(path), *_pair(old, new), "never" if replaced else _row(path))


def _named(value: Any) -> bool:
    """Return whether a value is a list of tasks."""
    if value is _ABSENT:
        return False
    return isinstance(value, list) and all(isinstance(v, dict) and "name" in v for v in value)


def _entries(old: list[Any], new: list[Any], path: tuple[str, ...]) -> Iterator[Change]:
    """Yield changes of tasks, matched by name, and whether common ones are in another order."""
    before = {v["name"]: v for v in old}
    after = {v["name"]: v for v in new}
    for name in dict.fromkeys((*before, *after)):
        yield from _changes(before.get(name, _ABSENT), after.get(name, _ABSENT), (*path, name))
    common = [n for n in before if n in after]
    order = [n for n in after if n in before]
    if common != order:
        texts = _pair(", ".join(common), ", ".join(order))
        yield Change(".".join((*path, "order")), *texts, "job")


def _same(old: Any, new: Any) -> bool:
    """Return whether values are equal in type too: 1, 1.0 and true are three values."""
    if old is _ABSENT or new is _ABSENT:
        return old is new
    return json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)


def _pair(old: Any, new: Any) -> tuple[str, str]:
    """Return both values as one line each; of long ones the part where they begin to differ."""
    was, now = _text(old), _text(new)
    if old is _ABSENT or new is _ABSENT or max(len(was), len(now)) <= _LONGEST:
        return _cut(was), _cut(now)
    differ = (n for n, (a, b) in enumerate(zip(was, now, strict=False)) if a != b)
    at = next(differ, min(len(was), len(now)) - 1)
    return _cut(was, max(0, at - _BEFORE)), _cut(now, max(0, at - _BEFORE))


def _text(value: Any) -> str:
    if value is _ABSENT:
        return ""
    if isinstance(value, str):
        return value.replace("\n", "\\n") or '""'
    if isinstance(value, dict) and "call" in value:
        return str(value["call"])
    if isinstance(value, dict) and "shell" in value:
        return _text(value["shell"])
    if isinstance(value, dict) and "pipe" in value:
        return "a pipe"
    return json.dumps(value, ensure_ascii=False)


def _cut(text: str, start: int = 0) -> str:
    """Return at most ``_LONGEST`` characters of a string, from ``start`` on."""
    text = "…" + text[start + 1 :] if start else text
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _row(path: tuple[str, ...]) -> Row:
    """Return the row of the table that a path belongs to."""
    if path[0] in _FREE:
        return "free"
    if path[0] == "checkpoint":
        return "job" if path[1:2] == ("include",) else "free"
    if path[0] in GROUPS and (path[2:3] in _OPTIONS or path[4:5] in _OPTIONS):
        return "free"
    if path[0] in GROUPS and path[2:3] == ("pipe",):
        if path[3:4] and path[3] in _FREE_OF_PIPE:
            return "free"
        if path[3:4] and path[3] in _ACCEPTED_OF_PIPE:
            return "accept"
    return "job"


def _job_part(value: Any, path: tuple[str, ...]) -> Any:
    """Return the facts without those that are free to change."""
    if isinstance(value, Mapping):
        below = {k: (*path, str(k)) for k in value}
        return {k: _job_part(v, below[k]) for k, v in value.items() if _row(below[k]) != "free"}
    if path and _named(value):
        return [_job_part(v, (*path, str(v["name"]))) for v in value]
    return value
