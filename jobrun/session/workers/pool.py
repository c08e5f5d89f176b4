"""The ``map`` steps of a pipe in worker processes.

Rows are read here, by the readers of all pipes: so a position means the same, and a source is open
once.  A worker gets the columns that its steps read and returns those that the ``do`` steps read;
all others stay where they are.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jobrun.core.blob_paths import covers
from jobrun.core.events import Warned
from jobrun.core.template import render
from jobrun.errors import BindError, TaskError, ValueRefusedError, Where
from jobrun.model.job import Job, Pipe, Task
from jobrun.session.base import Places
from jobrun.session.call import Call
from jobrun.session.current import TaskStoppedError, current
from jobrun.session.stores import CallContext
from jobrun.session.workers.process import LostError, WorkerProcess
from jobrun.session.workers.wire import Packed, UnsendableError
from jobrun.session.workers.worker import Message, boxed
from jobrun.usercode.reference import Main, main_module, reference
from jobrun.values.views import view

__all__ = ["WorkerPool"]

_GRACE = 1.0
"""The seconds that workers have to end by themselves."""
_OTHERS = 3
"""The number of times that a batch goes to another worker, each killed before it began a step."""


class WorkerPool:
    """Runs the ``map`` steps of a pipe, in as many processes as there are calling threads.

    They are started on first use, and kept for the next epochs.  ``columns`` are those of the
    source, ``wanted`` those that the ``do`` steps read.
    """

    def __init__(
        self,
        job: Job,
        pipe: Pipe,
        calls: Sequence[Call],
        columns: Sequence[str],
        wanted: Sequence[str],
        places: Places,
    ) -> None:
        self._pipe = pipe
        self._calls = calls
        self._timeouts = [step.timeout for step in pipe.map]
        reads = {a.name for step in pipe.map for a in step.inputs}
        puts = dict.fromkeys(name for step in pipe.map for name in step.outputs.names)
        self._sent = [c for c in columns if c in reads]
        wanted = [c for c in puts if any(covers(c, name) for name in wanted)]
        self._wanted = wanted
        self._description = _description(job, pipe, calls, columns, self._sent, wanted, places)
        self._lock = threading.Lock()
        self._idle: list[WorkerProcess] = []
        self._busy: set[WorkerProcess] = set()
        self._stopped = False

    def begin(self) -> None:
        """Begin or resume an epoch."""
        self._stopped = False

    def stop(self) -> None:
        """End the workers at once; their results are not needed any more."""
        with self._lock:
            self._stopped = True
            idle, self._idle = self._idle, []
            for worker in self._busy:
                worker.kill()  # its caller sees that
        for worker in idle:
            worker.end()

    def close(self) -> None:
        """Let the idle workers end by themselves, and end the others."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.leave()
        self.stop()
        for worker in idle:
            worker.end(_GRACE)

    def run(self, moments: Sequence[CallContext]) -> Iterator[CallContext]:
        """Run all steps on the columns of batches; yield each with its results beside them.

        Raises, in the place of a batch, TaskError for a step that fails, takes longer than its
        timeout or ends its process, more often than its ``retries`` allow; BindError for one that
        the worker cannot import; TaskStoppedError if the run ends.
        """
        lost = None
        if len(moments) > 1:
            try:
                answer = self._ask(self._question(moments))
            except LostError as error:  # all again, one by one
                lost = error
            else:
                yield from self._done(moments, answer)
                return
        for number, moment in enumerate(moments):
            begun = lost is not None and number == lost.doing.batch
            yield from self._run_one(moment, lost if begun else None)

    def _run_one(self, moment: CallContext, lost: LostError | None) -> Iterator[CallContext]:
        """Run all steps on a batch, in which a worker may have been ``lost`` already."""
        tried = [0] * len(self._calls)
        unbegun = 0
        while True:
            if lost is not None and lost.doing.step < 0:
                if not lost.proven:  # else it was idle: that is not the fault of the batch
                    unbegun += 1
                self._give_to_another(lost, moment, unbegun)
            elif lost is not None:
                self._try_again(lost, moment)
                tried[lost.doing.step] = lost.doing.tries
            try:
                answer = self._ask(self._question([moment], tried))
                break
            except LostError as error:
                lost = error
        yield from self._done([moment], answer)

    def _question(
        self, moments: Sequence[CallContext], tried: Sequence[int] | None = None
    ) -> Message:
        columns = [[view(moment.columns[name]) for moment in moments] for name in self._sent]
        return {
            "epoch": moments[0].epoch,
            "tried": [*(tried or [0] * len(self._calls))],
            "numbers": [moment.batch for moment in moments],
            "columns": columns,
        }

    def _done(self, moments: Sequence[CallContext], answer: Message) -> Iterator[CallContext]:
        """Yield the batches that are done; raises the error of the first that is not."""
        columns = [*zip(self._wanted, answer["columns"], strict=True)]
        for number, moment in enumerate(moments[: answer["done"]]):
            for name, values in columns:
                moment.columns[name] = boxed(values[number])
            yield moment
        if "failed" in answer:
            raise self._failure(*answer["failed"])

    def _ask(self, question: Message) -> Message:
        """Return the answer of an idle worker."""
        running = current()
        stopping = running.stopping if running is not None else _never
        worker = self._take()
        try:
            if not worker.ready:
                self._configure(worker, stopping)
            worker.ask(question)
            while "warning" in (answer := worker.answer(stopping)):
                if running is not None:
                    running.control.report(Warned(answer["warning"]))
        except BaseException as error:
            self._end(worker)
            if isinstance(error, LostError) and (self._stopped or stopping()):
                raise TaskStoppedError from None
            if isinstance(error, OSError):
                raise self._exhausted(error) from error
            raise
        self._give_back(worker)
        found: Message = answer
        return found

    def _take(self) -> WorkerProcess:
        """Return an idle worker; a new one if there is none."""
        with self._lock:
            if self._stopped:
                raise TaskStoppedError
            try:
                worker = self._idle.pop() if self._idle else WorkerProcess(self._timeouts)
            except OSError as error:
                raise self._exhausted(error) from error
            self._busy.add(worker)
            return worker

    def _configure(self, worker: WorkerProcess, stopping: Callable[[], bool]) -> None:
        """Send a new worker its steps, and wait until it has imported their functions."""
        worker.ask(self._description)
        answer = worker.answer(stopping)
        if "unbound" in answer:
            raise self._unbound(*answer["unbound"])
        worker.ready = True

    def _give_back(self, worker: WorkerProcess) -> None:
        worker.proven = True
        with self._lock:
            self._busy.discard(worker)
            if not self._stopped:
                self._idle.append(worker)
                return
        worker.end()

    def _end(self, worker: WorkerProcess) -> None:
        with self._lock:
            self._busy.discard(worker)
        worker.end()

    # Errors.

    def _give_to_another(self, lost: LostError, moment: CallContext, times: int) -> None:
        """Report that a batch, of which no step began, goes to another worker: no try is lost.

        Raises TaskError if it was given to new ones ``times`` too often, or if the worker ended by
        itself.
        """
        text = f"a worker process of pipe {self._pipe.name!r} {lost} before it began a step"
        if times > _OTHERS or lost.ended.code >= 0:
            raise TaskError(text, where=self._pipe.where, trace=_end_of_output(lost))
        running = current()
        if running is not None:
            text += f" of batch {(moment.batch or 0) + 1}, which another is given"
            running.control.report(Warned(text))

    def _try_again(self, lost: LostError, moment: CallContext) -> None:
        """Wait before a batch is given to another worker; raises TaskError if no retry is left."""
        step, tries = lost.doing.step, lost.doing.tries
        trace = _end_of_output(lost)
        task, call = self._pipe.map[step], self._calls[step]
        text, hint = f"its worker process {lost}", ""
        if lost.late:
            text = f"it exceeded its timeout of {task.timeout:g} s, and was stopped"
        elif lost.ended.code == -signal.SIGKILL:
            hint = "the system kills processes with SIGKILL when memory runs out"
        where = task.mark("timeout") if lost.late else None
        error = TaskError(text, where=where, hint=hint, trace=trace)
        if task.retries is None or tries > task.retries.times:
            raise call.placed(error, moment)
        call.pause(error, tries, task.retries, moment)

    def _exhausted(self, error: OSError) -> TaskError:
        """Return the error of a system that has no more processes, memory or descriptors."""
        text = f"pipe {self._pipe.name!r}: no resources for its worker processes: {error}"
        hint = "fewer 'processes', or a smaller 'batch' or 'ahead', need less"
        return TaskError(text, where=self._pipe.mark("processes"), hint=hint)

    def _failure(self, step: int, refused: bool, message: str, hint: str, trace: str) -> TaskError:
        """Return the error of a step as it would be in this process."""
        kind = ValueRefusedError if refused else TaskError
        return kind(message, where=self._pipe.map[step].where, hint=hint, trace=trace)

    def _unbound(self, step: int, message: str, hint: str, trace: str, where: Any) -> BindError:
        text = f"a worker process cannot run {self._pipe.map[step].function_name}: {message}"
        place = Where(*where) if where else self._pipe.map[step].mark("call")
        return BindError(text, where=place, hint=hint, trace=trace)


def _never() -> bool:
    return False


def _end_of_output(lost: LostError) -> str:
    return f"the end of its output:\n{lost.tail}" if lost.tail else ""


# The description of the steps, for a worker.


def _description(
    job: Job,
    pipe: Pipe,
    calls: Sequence[Call],
    columns: Sequence[str],
    sent: Sequence[str],
    wanted: Sequence[str],
    places: Places,
) -> Message:
    """Return the description of the steps; raises BindError for a step that cannot be described."""
    node = calls[0].node
    steps = [_step(t, c, places) for t, c in zip(pipe.map, calls, strict=True)]
    return {
        "argv": sys.argv,
        "folder": None if places.code is None else str(places.code),
        "main": _main(pipe, [step["function"] for step in steps]),
        "job": job.name,
        "seed": job.seed,
        "generators": list(job.generators),
        "multi_node": job.multi_node,
        "node": node,
        "group": calls[0].group,
        "pipe": pipe.name,
        "vars": _vars(job, pipe, node),
        "columns": list(columns),
        "sent": list(sent),
        "wanted": list(wanted),
        "steps": steps,
    }


def _step(task: Task, call: Call, places: Places) -> Message:
    literals = render(task.literals, places.texts(call.node))
    for name, value in literals.items():
        _check_sendable(value, f"the literal {name!r}", task, f"with:{name}")
    outputs = task.outputs
    out: dict[str, Any] = {
        "none": None,
        "one": outputs.names[0] if outputs.names else None,
        "many": list(outputs.names),
        "keys": dict(zip(outputs.keys, outputs.names, strict=False)),
    }
    retries = task.retries
    return {
        "name": call.name,
        "function": _named(task),
        "in": [[a.parameter, a.name] for a in task.inputs],
        "with": literals,
        "out": out[outputs.form],
        "retries": None if retries is None else [retries.times, retries.delay, retries.backoff],
    }


def _named(task: Task) -> str:
    if isinstance(task.fn, str):
        return task.fn
    try:
        return reference(task.fn)
    except LookupError as error:
        text = f"a worker process cannot find {task.function_name}: {error}"
        raise BindError(text, where=task.mark("call")) from None


def _main(pipe: Pipe, functions: Sequence[str]) -> Main | None:
    """Return the description of ``__main__``, if a function belongs to it."""
    for task, function in zip(pipe.map, functions, strict=True):
        if function.startswith("__main__:"):
            try:
                return main_module()
            except LookupError as error:
                text = f"a worker process cannot find {function}: {error}"
                raise BindError(text, where=task.mark("call")) from None
    return None


def _vars(job: Job, pipe: Pipe, node: str) -> dict[str, Any]:
    """Return the vars that the steps read."""
    own = job.node_vars(node)
    found: dict[str, Any] = {}
    for task in pipe.map:
        for name in (a.name for a in task.inputs if a.name in own):
            found[name] = own[name]
            _check_sendable(own[name], f"the var {name!r}", task, f"in:{name}")
    return found


def _check_sendable(value: Any, what: str, task: Task, mark: str) -> None:
    if found := _refused(value):
        text = f"{what} is {found}, which cannot be sent to a worker process"
        hint = "numbers, strings, arrays, and lists, tuples and dicts of them can; or use 'threads'"
        raise BindError(text, where=task.mark(mark, "with", "in"), hint=hint)


def _refused(value: Any) -> str:
    """Return which part of a value cannot be sent, or an empty string."""
    try:
        Packed(value)
    except UnsendableError as error:
        return str(error)
    return ""
