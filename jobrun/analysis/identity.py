"""What a job is, as plain values that are stored with a run; and what differs between two of them.

Spec or Python, a job comes down to the same *facts*: a tree of JSON values in the words of the
spec, without what is left at its default, so that a later version with more keys finds no
difference.  Each difference belongs to a row of the table by which a run goes on or not:

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
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from jobrun.analysis.names import step_names
from jobrun.core.json_floats import from_json, to_json
from jobrun.core.template import Template
from jobrun.model.job import GROUPS, Argument, Data, Job, Outputs, Pipe, Reader, Task
from jobrun.model.options import Load
from jobrun.model.policy import SessionSpec
from jobrun.model.reporter import Reporter
from jobrun.model.shell import Shell

__all__ = ["Change", "Diff", "compare", "digest", "job_facts"]

Facts = dict[str, Any]
Row = Literal["free", "accept", "job", "never"]

_FREE = ("name", "stop", "fail", "metrics", "upload", "report", "session", "constant")
_FREE_OF_PIPE = ("batches_per_epoch", "passes", "threads", "ahead", "processes", "resume")
_ACCEPTED_OF_PIPE = ("batch", "shard")
_HOW = ("batch", "shuffle", "drop_last", "batches_per_epoch", "passes", "shard", "rows")
_OPTIONS = (("retries",), ("timeout",), ("thread",))
"""How a call is made, which changes nothing of what it gives."""
_BY_TYPE = "the adapter of its type"
_ABSENT = object()
_LONGEST = 80
"""How many characters of a value are shown."""
_BEFORE = 30
"""How many of them, at most, are the same in both values."""


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
        """Lines of what may change at any time."""
        return tuple(str(c) for c in self.changes if c.row == "free")

    @property
    def job(self) -> tuple[str, ...]:
        """Lines of what makes it another job."""
        return tuple(str(c) for c in self.changes if c.row != "free")

    @property
    def never(self) -> tuple[str, ...]:
        """Lines of what no run can continue with."""
        return tuple(str(c) for c in self.changes if c.row == "never")

    @property
    def acceptable(self) -> bool:
        """Whether all that makes it another job is of the row ``accept``."""
        return all(c.row in ("free", "accept") for c in self.changes)

    def freed(self, groups: Iterable[str]) -> Diff:
        """The same, where the tasks of these groups may change at any time."""
        free = tuple(groups)
        return Diff(
            tuple(
                replace(c, row="free") if c.path.split(".")[0] in free else c for c in self.changes
            )
        )

    def __bool__(self) -> bool:
        return bool(self.changes)


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> Diff:
    """What differs between the facts of two jobs."""
    none: Facts = {"state": {}}  # so that each name is a difference of its own
    before, after = ({**none, **_same_floats(facts)} for facts in (old, new))
    return Diff(tuple(_changes(before, after, ())))


def _same_floats(facts: Mapping[str, Any]) -> Any:
    """Return facts with floats in today's spelling; earlier versions wrote ``nan`` and ``inf``."""
    return to_json(from_json(dict(facts)))


def digest(facts: Mapping[str, Any]) -> str:
    """SHA-256 of what makes a job this one: its facts without those that are free to change."""
    part = _job_part(facts, ())
    policy = facts.get("checkpoint")
    if isinstance(policy, Mapping) and "include" in policy:
        part["include"] = policy["include"]
    text = json.dumps(part, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def job_facts(job: Job) -> Facts:
    """The facts of a job: JSON values alone."""
    facts: Facts = {"name": job.name, "seed": job.seed, "vars": _plain(job.vars)}
    if job.multi_node:
        facts["nodes"] = _plain(job.nodes)
    facts["state"] = {n: _BY_TYPE if a is None else _plain(a) for n, a in job.state.items()}
    facts["constant"] = list(job.constant)
    for group in GROUPS:
        job.groups[group].named()
        facts[group] = [_task_facts(t, t.name) for t in job.groups[group].tasks]
    facts["metrics"] = dict(job.metrics)
    facts["stop"] = {"never": True} if job.never_stops else {}
    facts["fail"] = {}
    for condition in job.conditions:
        _add_condition(facts[condition.section], condition.kind, _plain(condition.value))
    facts["checkpoint"] = _policy_facts(job)
    facts["upload"] = _upload_facts(job)
    facts["report"] = [
        {"name": r.name, **{k: v for k, v in _given(r).items() if v}} for r in job.reporters
    ]
    facts["session"] = _session_facts(job)
    return {k: v for k, v in facts.items() if v not in ([], {})}


def _given(reporter: Reporter) -> Facts:
    """What a reporter is given, as the spec has it."""
    return {"value": _plain(reporter.value), "with": _plain(dict(reporter.options))}


def _add_condition(section: Facts, kind: str, value: Any) -> None:
    key, number = kind, 1
    while key in section:
        number += 1
        key = f"{kind} {number}"
    section[key] = value


def _upload_facts(job: Job) -> Facts:
    upload = job.upload
    if upload is None:
        return {}
    call = upload.call
    name = call if isinstance(call, str) else getattr(call, "__qualname__", None)
    facts: Facts = {"to": None if upload.to is None else str(upload.to), "call": name}
    facts |= {"with": _plain(upload.literals), "what": upload.what}
    return {k: v for k, v in facts.items() if v not in (None, {})}


def _session_facts(job: Job) -> Facts:
    usual = asdict(SessionSpec())
    return {k: v for k, v in asdict(job.session).items() if v != usual[k]}


def _policy_facts(job: Job) -> Any:
    policy = job.checkpoint
    if policy is None:
        return False
    keep = {"last": policy.keep.last, "every": policy.keep.every}
    if policy.keep.best is not None:
        keep_best: Any = {"metric": policy.keep.best.metric, "count": policy.keep.best.count}
        keep["best"] = keep_best
    catalogue = None if policy.catalogue is None else _plain(policy.catalogue)
    compress = {rule.blobs: f"{rule.codec} {rule.level}" for rule in policy.compress}
    return {
        "every": {k: v for k, v in asdict(policy.every).items() if v},
        "keep": {k: v for k, v in keep.items() if v is not None} or "all",
        "on_error": policy.on_error,
        "on_success": policy.on_success,
        **({} if policy.background else {"async": False}),
        **({} if policy.link == "alternate" else {"link": policy.link}),
        **({"compress": compress} if policy.compress else {}),
        **({} if catalogue is None else {"catalogue": catalogue}),
        **({"include": list(policy.include)} if policy.include else {}),
    }


def _task_facts(task: Task, name: str) -> Facts:
    facts: Facts = {"name": name}
    if isinstance(task, Pipe):
        names = step_names(task)
        facts["pipe"] = _reader_facts(task.reader)
        facts["map"] = [_task_facts(s, names[id(s)]) for s in task.map]
        facts["do"] = [_task_facts(s, names[id(s)]) for s in task.do]
        facts["reduce"] = dict(task.reduce)
    else:
        facts |= _program_facts(task)
        facts["in"] = _arguments(task.inputs)
        facts["with"] = _plain(task.literals)
        facts["update"] = _arguments(task.updates)
        facts["out"] = _outputs(task.outputs)
    facts["node"] = task.node
    facts["after"] = list(task.after)
    facts["every"] = _plain(task.every)
    facts["retries"] = None if task.retries is None else asdict(task.retries)
    facts["timeout"] = task.timeout
    facts["thread"] = task.thread
    return {k: v for k, v in facts.items() if v is not None and v not in ([], {})}


def _program_facts(task: Task) -> Facts:
    """What a task calls."""
    shell = task.fn
    if isinstance(shell, Load):
        place = {"run": _plain(shell.run), "epoch": shell.epoch, "id": shell.id}
        return {"load": {k: v for k, v in place.items() if v is not None}}
    if not isinstance(shell, Shell):
        return {"call": task.function_name}
    files = {
        name: form.dtype if form.shape is None else {"dtype": form.dtype, "shape": [*form.shape]}
        for name, form in shell.files.items()
    }
    if shell.command and not files:
        return {"shell": shell.command}
    facts = {"command": shell.command, "script": shell.script, "files": files}
    return {"shell": {k: v for k, v in facts.items() if v}}


def _reader_facts(reader: Reader) -> Facts:
    facts: Facts = _data_facts(reader.data)
    if reader.data.call is not None and reader.data.call.resume != "replay":
        facts["resume"] = reader.data.call.resume
    for key in (*_HOW, "threads", "ahead", "processes"):
        value = getattr(reader, key)
        if value != getattr(Reader(), key) or type(value) is not type(getattr(Reader(), key)):
            facts[key] = _plain(value)
    if reader.buffer is not None:
        facts["shuffle"] = {"buffer": _plain(reader.buffer)}
    return facts


def _data_facts(data: Data) -> Facts:
    """A source, with the keys that it has in a spec."""
    facts: Facts = {"from": dict(data.blobs)}
    if data.file is not None:
        facts["file"] = _plain(data.file.path)
        facts["from"] = dict(data.file.columns)
        facts["types"] = dict(data.file.options.types)
    if data.call is not None:
        step = data.call.step
        facts["call"] = step.function_name
        facts["in"] = _arguments(step.inputs)
        facts["with"] = _plain(step.literals)
        facts["from"] = dict(data.call.columns)
    for key in ("zip", "concat"):
        facts[key] = [_data_facts(d) for d in getattr(data, key)]
    return {k: v for k, v in facts.items() if v not in ([], {})}


def _arguments(arguments: tuple[Argument, ...]) -> Any:
    if any(a.parameter is None for a in arguments):
        return [a.name for a in arguments]
    return {a.parameter: a.name for a in arguments}


def _outputs(outputs: Outputs) -> Any:
    if outputs.form == "one":
        return outputs.names[0]
    if outputs.form == "keys":
        return dict(zip(outputs.keys, outputs.names, strict=True))
    return list(outputs.names)


def _plain(value: Any) -> Any:
    """A value as JSON; what is no plain value by its type, arrays by dtype, shape and digest."""
    if value is None or isinstance(value, bool | str):
        return value
    if type(value) is int:
        return value
    if type(value) is float:
        return to_json(value)
    if isinstance(value, Template):
        return value.text
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return _foreign(value)


def _foreign(value: Any) -> str:
    """A value that only a job made in Python can hold."""
    kind = type(value)
    dtype = getattr(value, "dtype", None)
    if kind.__module__.partition(".")[0] == "numpy" and dtype is not None:
        if getattr(dtype, "hasobject", False):
            return f"array of objects {value.shape}"
        data = hashlib.sha256(value.tobytes()).hexdigest()
        return f"array {dtype.str} {tuple(value.shape)} {data[:16]}"
    if callable(value):
        module = getattr(value, "__module__", None) or kind.__module__
        return f"{module}:{getattr(value, '__qualname__', kind.__qualname__)}"
    if isinstance(value, int | float | complex | bytes):
        return f"{kind.__qualname__} {value!r}"
    return f"{kind.__module__}:{kind.__qualname__}"


# Differences.


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
    """Whether this is a list of tasks, or none."""
    if value is _ABSENT:
        return False
    return isinstance(value, list) and all(isinstance(v, dict) and "name" in v for v in value)


def _entries(old: list[Any], new: list[Any], path: tuple[str, ...]) -> Iterator[Change]:
    """Tasks by their names, and whether those that both have come in another order."""
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
    """Equal in type too: 1, 1.0 and true are three values."""
    if old is _ABSENT or new is _ABSENT:
        return old is new
    return json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)


def _pair(old: Any, new: Any) -> tuple[str, str]:
    """Both values as one line of text each; of long ones where they begin to differ."""
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
    """At most ``_LONGEST`` characters of a text, from ``start`` on."""
    text = "…" + text[start + 1 :] if start else text
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _row(path: tuple[str, ...]) -> Row:
    """The row of the table that a path belongs to."""
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
    """Facts without those that are free to change."""
    if isinstance(value, Mapping):
        below = {k: (*path, str(k)) for k in value}
        return {k: _job_part(v, below[k]) for k, v in value.items() if _row(below[k]) != "free"}
    if path and _named(value):
        return [_job_part(v, (*path, str(v["name"]))) for v in value]
    return value
