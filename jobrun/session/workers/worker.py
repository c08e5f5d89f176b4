"""A worker process: runs the ``map`` steps of a pipe on one batch after another.

It is started by ``session.workers.process`` and communicates over a ``Channel``.  It receives the
description of its steps once, then receives columns and returns columns.  The steps run by the same
``Call`` as everywhere; so arguments, random numbers and results are those of a thread.

It ends when its connection does.  Signals for the whole run are left to the process that started
it.
"""

from __future__ import annotations

import faulthandler
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple
from functools import cache
from typing import Any

import numpy as np

from jobrun.analysis.names import StepColumns
from jobrun.core.current_task import IN_MAP, enter_batch
from jobrun.core.events import Event, Warned
from jobrun.core.names import are_names
from jobrun.core.signal_handlers import Handlers
from jobrun.errors import BindError, TaskError, ValueRefusedError, Where
from jobrun.model.job import Job, Task
from jobrun.model.options import Retries
from jobrun.session.base import Control
from jobrun.session.batch_columns import make_private
from jobrun.session.call import Call
from jobrun.session.call_failure import described
from jobrun.session.current import Running, enter
from jobrun.session.generators import Generators
from jobrun.session.stores import CallContext, Stores
from jobrun.session.torch_views import watch_views
from jobrun.session.workers.channel import Channel
from jobrun.session.workers.shared_memory import mapped
from jobrun.session.workers.status import Status
from jobrun.session.workers.wire import Packed, UnsendableError
from jobrun.usercode.bind import bind
from jobrun.usercode.reference import import_main
from jobrun.usercode.traces import user_trace
from jobrun.values.adapters.registry import value_adapter
from jobrun.values.adoption import adopt
from jobrun.values.boxes import Box, Tree, Value
from jobrun.values.views import view

__all__ = ["boxed", "main"]

Message = dict[str, Any]


def main(connection: int, status: int) -> None:
    """Serve until the connection ends; the arguments are inherited descriptors."""
    # Handlers, since ignored signals would be inherited by programs.
    stops = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU, signal.SIGUSR2)
    Handlers(dict.fromkeys(stops, lambda *_: None)).install()
    if sys.version_info >= (3, 14):  # the stack of C would push the user's lines out of the tail
        faulthandler.enable(c_stack=False)
    else:
        faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]
    watch_views()
    channel = Channel(socket.socket(fileno=connection))
    try:
        _serve(channel, Status(mapped(status)))
    except (EOFError, ConnectionError):
        return


def _serve(channel: Channel, status: Status) -> None:
    """Answer the description of the steps once, then batch after batch."""
    answer = _Steps.made(channel.receive(), status, channel)
    steps = answer if isinstance(answer, _Steps) else None
    channel.send({} if steps is not None else answer)
    while steps is not None:
        answer = steps.run(channel.receive())
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # closed by a step, which is not a failure
                stream.flush()
        try:
            channel.send(answer)
        except UnsendableError:
            channel.send(steps.sendable(answer["columns"]))
        del answer  # its arrays may be views of the received ones


class _Recorded:
    """A function that records each call, for which batch, and which try that is."""

    def __init__(self, function: Callable[..., Any], step: int, status: Status) -> None:
        self.tries = 0
        self.batch = 0
        self._function = function
        self._step = step
        self._status = status

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.tries += 1
        self._status.begin(self.batch, self._step, self.tries)
        return self._function(*args, **kwargs)


class _Steps:
    """The ``map`` steps, made from the description by ``jobrun.session.workers.pool``."""

    def __init__(
        self, description: Message, calls: list[tuple[Call, _Recorded]], channel: Channel
    ) -> None:
        self._calls = calls
        self._channel = channel
        self._sent: list[str] = description["sent"]
        self._wanted: list[str] = description["wanted"]
        self._running = (description["group"], description["pipe"], description["node"])
        self._moment = CallContext()
        self._numbers: list[int] = []
        enter((self, 0))

    @classmethod
    def made(cls, description: Message, status: Status, channel: Channel) -> _Steps | Message:
        """Return the steps; or the answer for a function that cannot be imported."""
        sys.argv[:] = description["argv"]
        nodes = [description["node"]] if description["multi_node"] else None
        job = Job(
            description["job"], seed=description["seed"], vars=description["vars"], nodes=nodes
        )
        calls: list[tuple[Call, _Recorded]] = []
        columns = StepColumns(description["columns"])
        for number, step in enumerate(description["steps"]):
            try:
                found = _function(step["function"], description["folder"], description["main"])
            except BindError as error:
                return _unbound(number, error)
            function = _Recorded(found, number, status)
            call = _call(job, description, step, function, columns.copy())
            calls.append((call, function))
            columns.add(call.task.outputs.names)
        return cls(description, calls, channel)

    def running(self, number: int) -> Running:
        """Return the context of the running task."""
        group, pipe, node = self._running
        control = Control(report=self._report)
        return Running(group, self._moment.epoch, pipe, node, control, lambda: False)

    def _report(self, event: Event) -> None:
        """Pass on that a call is repeated; the progress of a call says nothing of the pipe."""
        if isinstance(event, Warned):
            self._channel.send({"warning": event.message})

    def run(self, request: Message) -> Message:
        """Run all steps on each batch; return the wanted columns, up to the error of one step."""
        self._numbers = request["numbers"]
        found: list[list[Any]] = [[] for _ in self._wanted]
        for place, number in enumerate(self._numbers):
            columns = {
                name: boxed(values[place])
                for name, values in zip(self._sent, request["columns"], strict=True)
            }
            self._moment = CallContext(request["epoch"], number, columns)
            failed = self._run(place, self._moment, request["tried"])
            if failed is not None:
                return _answer(found, place, failed)
            for name, values in zip(self._wanted, found, strict=True):
                values.append(view(columns[name]))
        self._moment = CallContext(request["epoch"])  # the columns are released
        return _answer(found, len(self._numbers))

    def _run(self, place: int, moment: CallContext, tried: list[int]) -> list[Any] | None:
        """Run all steps on the batch at a place of the request; return the error of one step."""
        make_private(moment.columns.values())
        enter_batch(IN_MAP)
        for number, (call, function) in enumerate(self._calls):
            function.batch, function.tries = place, tried[number]
            try:
                for (_, name), value in call.run(moment, tried=function.tries):
                    make_private([value])
                    moment.columns[name] = value
            except TaskError as error:
                return _failed(number, error)
        return None

    def sendable(self, found: list[list[Any]]) -> Message:
        """Return the answer up to the first column that cannot be sent, with the error of that."""
        for place, batch in enumerate(zip(*found, strict=True)):
            for name, value in zip(self._wanted, batch, strict=True):
                try:
                    Packed(value)
                except UnsendableError as error:
                    failed = self._unsendable(name, error, self._numbers[place])
                    return _answer([values[:place] for values in found], place, failed)
        raise AssertionError(found)

    def _unsendable(self, name: str, error: UnsendableError, batch: int) -> list[Any]:
        """Return the error of the step that returned a column."""
        step = [n for n, (c, _) in enumerate(self._calls) if name in c.task.outputs.names][-1]
        text = f"column {name!r} is {error}, which cannot be sent from a worker process"
        moment = CallContext(self._moment.epoch, batch)
        refused = self._calls[step][0].placed(TaskError(text, hint=_SENDABLE), moment)
        return _failed(step, refused)


_SENDABLE = (
    "a column for 'do' steps is an array, number or string, or a list or dict of them; "
    "on 'threads', without 'processes', it may be anything"
)


def boxed(value: Any) -> Value:
    """Return a received value as ``adopt`` would return it; nothing else holds it."""
    return _boxed(value, {})


def _boxed(value: Any, arrays: dict[int, Box]) -> Value:
    kind = type(value)
    if kind is dict and are_names(value):
        return Tree("dict", {k: _boxed(v, arrays) for k, v in value.items()})
    if kind is list:
        return Tree("list", {str(i): _boxed(v, arrays) for i, v in enumerate(value)})
    if kind is np.ndarray:
        box = arrays.get(id(value))
        if box is None:
            box = arrays[id(value)] = Box(value, "array")
        else:
            box.tied = True
        return box
    if kind is tuple or kind is dict or value_adapter(value) is not None:
        return adopt([value])
    return Box(value, _KINDS.get(kind, "scalar" if isinstance(value, np.generic) else "opaque"))


_KINDS = {bool: "bool", int: "int", float: "float", str: "str", type(None): "none"}


def _call(
    job: Job, description: Message, step: Message, function: _Recorded, columns: StepColumns
) -> Call:
    names, inputs = step["out"], step["in"]
    task = Task(
        function,
        None if not inputs else dict(inputs) if inputs[0][0] else [name for _, name in inputs],
        step["with"],
        out=names,
        name=step["name"],
        retries=None if step["retries"] is None else Retries(*step["retries"]),
    )
    return Call(
        job,
        description["group"],
        task,
        description["node"],
        function,
        Stores(generators=_generators(description)),
        name=step["name"],
        columns=columns,
        puts_columns=True,
    )


def _generators(description: Message) -> Generators | None:
    names = description["generators"]
    return Generators(names, description["seed"]) if names else None


def _function(name: str, folder: str | None, main: Any) -> Callable[..., Any]:
    """Return the function of a name; raises BindError."""
    module, _, path = name.partition(":")
    if module != "__main__":
        return bind(name, folder)
    return bind(f"{_main(*main)}:{path}")


@cache
def _main(kind: str, name: str) -> str:
    """Return the module that is ``__main__`` in the process that started this one."""
    try:
        return import_main((kind, name))
    except BindError:
        raise
    except BaseException as error:
        raise BindError(
            f"{name} fails on import: {described(error)}", trace=user_trace(error)
        ) from error


def _unbound(step: int, error: BindError) -> Message:
    where = list(astuple(error.where)) if isinstance(error.where, Where) else None
    return {"unbound": [step, error.message, error.hint, error.trace, where]}


def _answer(columns: list[list[Any]], done: int, failed: list[Any] | None = None) -> Message:
    """Return the answer to a question: the values of each column of the batches that are done."""
    answer: Message = {"columns": columns, "done": done}
    return answer if failed is None else {**answer, "failed": failed}


def _failed(step: int, error: TaskError) -> list[Any]:
    refused = isinstance(error, ValueRefusedError)
    return [step, refused, error.message, error.hint, error.trace]
