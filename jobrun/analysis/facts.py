"""The facts of a job: a tree of JSON values in the words of the spec, stored with each run.

A job from a spec and one from Python have the same facts.  Defaults are absent, so that a later
version with more keys finds no difference.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from datetime import date, time, timedelta
from enum import Enum
from functools import partial
from numbers import Number
from pathlib import PurePath
from typing import Any

from jobrun.analysis.names import step_names
from jobrun.core.json_floats import to_json
from jobrun.core.template import Template
from jobrun.model.job import GROUPS, Argument, Data, Job, Outputs, Pipe, Reader, Task
from jobrun.model.options import Load
from jobrun.model.policy import SessionSpec
from jobrun.model.reporter import Reporter
from jobrun.model.rows import ColumnNames
from jobrun.model.shell import Shell
from jobrun.model.task import callable_name

__all__ = ["Facts", "job_facts"]

Facts = dict[str, Any]
"""A tree of JSON values."""

_BY_TYPE = "the adapter of its type"
_BY_REPR = (Number, bytes, date, time, timedelta, PurePath, Enum, range, slice)
"""Types of which equal values, and no others, have one ``repr``; a datetime is a date."""


def job_facts(job: Job) -> Facts:
    """Return the facts of a job, as JSON values only."""
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
    """Return the value and options of a reporter, as the spec has them."""
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
    """Return the program that a task calls."""
    shell = task.fn
    if isinstance(shell, Load):
        place = {"run": _plain(shell.run), "epoch": shell.epoch, "id": shell.id}
        if shell.file is not None:
            place |= {"file": _plain(shell.file), "strict": shell.strict}
        return {"load": {k: v for k, v in place.items() if v is not None}}
    if not isinstance(shell, Shell):
        return _call_facts(task)
    files = {
        name: form.dtype if form.shape is None else {"dtype": form.dtype, "shape": [*form.shape]}
        for name, form in shell.files.items()
    }
    if shell.command and not files:
        return {"shell": shell.command}
    facts = {"command": shell.command, "script": shell.script, "files": files}
    return {"shell": {k: v for k, v in facts.items() if v}}


def _call_facts(task: Task) -> Facts:
    """Return the function that a task calls, and the arguments that a ``partial`` has bound."""
    facts: Facts = {"call": task.function_name}
    if isinstance(task.fn, partial):
        bound = _bound(task.fn)
        facts |= {"bound": bound} if bound else {}
    return facts


def _bound(call: partial[Any]) -> Facts:
    """Return the arguments that a ``partial`` has bound, those by position by their number."""
    by_position = {str(n): _plain(v) for n, v in enumerate(call.args)}
    return {**by_position, **{k: _plain(v) for k, v in call.keywords.items()}}


def _reader_facts(reader: Reader) -> Facts:
    facts: Facts = _data_facts(reader.data)
    if reader.data.call is not None and reader.data.call.resume != "replay":
        facts["resume"] = reader.data.call.resume
    usual = _reading(Reader())
    for key, value in _reading(reader).items():
        if value != usual[key] or type(value) is not type(usual[key]):
            facts[key] = _plain(value)
    return facts


def _reading(reader: Reader) -> dict[str, Any]:
    """Return how a pipe reads its data, with the keys that it has in a spec."""
    numbers = reader.numbers
    buffer = numbers.pop("buffer")
    return {
        **numbers,
        "shuffle": reader.shuffle is not None if buffer is None else {"buffer": buffer},
        "drop_last": reader.batches.drop_last,
        "shard": reader.shard,
        "rows": reader.rows,
        "as": reader.library,
    }


def _data_facts(data: Data) -> Facts:
    """Return a source, with the keys that it has in a spec."""
    facts: Facts = {"from": dict(data.blobs)}
    if data.file is not None:
        facts["file"] = _plain(data.file.path)
        facts["from"] = _names(data.file.columns)
        facts["types"] = dict(data.file.options.types)
    if data.call is not None:
        step = data.call.step
        facts |= _call_facts(step)
        facts["in"] = _arguments(step.inputs)
        facts["with"] = _plain(step.literals)
        facts["from"] = _names(data.call.columns)
    for key in ("zip", "concat"):
        facts[key] = [_data_facts(d) for d in getattr(data, key)]
    return {k: v for k, v in facts.items() if v not in ([], {})}


def _names(columns: ColumnNames) -> dict[str, Any]:
    return {c: name if isinstance(name, str) else [*name] for c, name in columns.items()}


def _arguments(arguments: tuple[Argument, ...]) -> Any:
    if any(a.parameter is None for a in arguments):
        return [_named(a) for a in arguments]
    return {a.parameter: _named(a) for a in arguments}


def _named(argument: Argument) -> Any:
    if argument.reduce is None:
        return argument.name
    return {"reduce": argument.reduce, "of": argument.name}


def _outputs(outputs: Outputs) -> Any:
    if outputs.form == "one":
        return outputs.names[0]
    if outputs.form == "keys":
        return dict(zip(outputs.keys, outputs.names, strict=True))
    return list(outputs.names)


def _plain(value: Any) -> Any:
    """Return a value as JSON; other types by their type, arrays by dtype, shape and digest."""
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


def _foreign(value: Any) -> Any:
    """Return the description of a value that only a job made in Python can hold.

    Of an object whose content is unknown it is the type.
    """
    kind = type(value)
    dtype = getattr(value, "dtype", None)
    if kind.__module__.partition(".")[0] == "numpy" and dtype is not None:
        if getattr(dtype, "hasobject", False):
            return f"array of objects {value.shape}"
        data = hashlib.sha256(value.tobytes()).hexdigest()
        return f"array {dtype.str} {tuple(value.shape)} {data[:16]}"
    if isinstance(value, partial):
        return {"call": callable_name(value), "bound": _bound(value)}
    if is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, set | frozenset):
        return [kind.__qualname__, *sorted(json.dumps(_plain(v), sort_keys=True) for v in value)]
    if callable(value):
        return callable_name(value)
    if isinstance(value, _BY_REPR):
        return f"{kind.__qualname__} {value!r}"
    return f"{kind.__module__}:{kind.__qualname__}"


def _fields(value: Any) -> Any:
    """Return the fields of a dataclass; of one that holds itself its type."""
    name = callable_name(type(value))
    try:
        return {"": name, **{f.name: _plain(getattr(value, f.name)) for f in fields(value)}}
    except RecursionError:
        return name
