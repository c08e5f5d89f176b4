"""A call of a task's function: hand out the arguments, call, check the inputs, adopt the result.

What does not change between epochs is bound once (``jobrun.session.bound_inputs``); a call then
costs a few microseconds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from jobrun.analysis.names import resolve
from jobrun.core.blob_paths import Key, PathSet, levels
from jobrun.core.events import Warned
from jobrun.core.forked import PROCESS, end_if_forked
from jobrun.errors import TaskError
from jobrun.model.job import Job, Task
from jobrun.model.options import Load, Retries
from jobrun.model.shell import Shell
from jobrun.session.batch_columns import copied
from jobrun.session.bound_inputs import BoundInputs, Gathered
from jobrun.session.call_failure import beside_spec, column_hint, described, order_hint, remedy
from jobrun.session.call_inputs import Given
from jobrun.session.call_outputs import CallOutputs, Write
from jobrun.session.call_retry import pause
from jobrun.session.current import TaskStoppedError, current
from jobrun.session.deadline import unlimited
from jobrun.session.generators import Generators, Slot
from jobrun.session.input_check import HINT, changed_later, find_changed
from jobrun.session.live_objects import LiveObjects
from jobrun.session.missing_return import Forgotten
from jobrun.session.stores import CallContext, Stores
from jobrun.session.torch_views import calls
from jobrun.usercode.traces import user_trace
from jobrun.values.adoption import adopt
from jobrun.values.boxes import Box, Value

__all__ = ["Call"]


class _CallError(TaskError):
    """A failure of the function itself, which may be called again."""


class Call:
    """One function call of a job on one node.

    ``run`` returns the values to be written, by blob (or by column name under ``("", name)`` for a
    step whose outputs are columns), without storing them.  ``is_updated`` returns whether a task of
    the job updates the blob at a path in place.
    """

    def __init__(
        self,
        job: Job,
        group: str,
        task: Task,
        node: str,
        function: Callable[..., Any],
        stores: Stores,
        *,
        name: str | None = None,
        columns: Collection[str] | None = None,
        puts_columns: bool = False,
        texts: Mapping[str, str] | None = None,
        check: bool = False,
        is_updated: Callable[[str], bool] = lambda path: False,
    ) -> None:
        self.name = name or task.name
        self.task = task
        self.group = group
        self.node = node
        self._job = job
        self._function = function
        self._stores = stores
        self._puts_columns = puts_columns
        self._keep_maps = group == "setup"
        self._check = check
        self._owner = PROCESS.id
        self._spec_dir = (texts or {}).get("spec.dir")
        self._inputs = BoundInputs(
            job, group, task, node, stores, name=self.name, columns=columns, texts=texts or {}
        )
        self.reductions = self._inputs.reductions
        """The blobs that the call reads reduced over nodes."""
        self._constants = self._constants_given()
        self._live_updates = [s.keys[0] for s in self._inputs.sources if s.form == "live"]
        self._updated_in = -1
        """The last epoch in which a call has changed these."""
        self._outputs: list[tuple[Key, ...]] = [
            (("", n),) if puts_columns else resolve(job, node, n, columns).keys
            for n in task.outputs.names
        ]
        self._results = CallOutputs(
            task.outputs,
            self._outputs,
            [next((p for node, p in ks if node and is_updated(p)), "") for ks in self._outputs],
            {i for i, keys in enumerate(self._outputs) if self._inputs.is_live(keys[0])},
            self._keep_maps,
        )
        self._live_keys = self._used_live()
        self._live = stores.live if self._live_keys else None
        replaced = (key for keys in self._outputs for key in keys if self._inputs.is_live(key))
        self._replaces: dict[Key, type | None] = {} if group == "setup" else dict.fromkeys(replaced)
        """The live objects that it replaces, each with the type of which nothing is to be noted."""
        self._retries = task.retries
        self._forgotten = (
            Forgotten(
                job, task, unlimited(function), [k for (k,) in self._outputs], self._inputs.held
            )
            if task.outputs.form == "one" and len(self._outputs[0]) == 1 and not puts_columns
            else None
        )

    def _constants_given(self) -> list[Key]:
        """Return the constants that a call gets, if they are to be looked at."""
        if self._stores.live is None or not self._check or self.group == "setup":
            return []
        named = [
            key for source in self._inputs.sources if source.form == "blob" for key in source.keys
        ]
        return [key for key in named if key in self._stores.live.live.constants]

    def _used_live(self) -> list[Key]:
        """Return the live state that a call may change: what it names, and what is linked with it.

        That includes the generators of its node; a ``map`` step has its own.
        """
        if self._stores.live is None or self._puts_columns:
            return []
        named = [
            k
            for source in self._inputs.sources
            if source.form in ("blob", "live")
            for k in source.keys
        ]
        named += [update.key for update in self._inputs.updates]
        named += [key for keys in self._outputs for key in keys]
        live = self._stores.live.live
        own = [key for key in live.generators if key[0] == self.node]
        return own + live.linked(key for key in named if key in live)

    def begin(self, changing: PathSet) -> None:
        """Read once what is the same until ``end``; see ``BoundInputs.begin``."""
        self._inputs.begin(changing)

    def end(self) -> None:
        """Read all inputs for each call again."""
        self._inputs.end()

    def gather(self, moment: CallContext) -> Gathered:
        """Read the inputs now; each call gets arguments of its own that are made of them."""
        return self._inputs.gather(moment)

    def value(self, moment: CallContext) -> Any:
        """Return the function's result as it is; raises TaskError with the user's own lines."""
        try:
            given = Given(self._inputs.form, self._inputs.gather(moment))
            return self._call_with(given)[0]
        except TaskError as error:
            raise self.placed(error, moment) from error.__cause__

    def run(
        self,
        moment: CallContext,
        gathered: Gathered | None = None,
        tried: int = 0,
    ) -> list[Write]:
        """Call the function; raises TaskError with the user's own lines.

        ``tried`` is the number of failed calls for this context so far.
        """
        try:
            if self._retries is not None:
                return self._run_again(moment, gathered, self._retries, tried)
            return self._run(moment, gathered or self._inputs.gather(moment))
        except TaskError as error:
            raise self.placed(error, moment) from error.__cause__

    def _run_again(
        self, moment: CallContext, gathered: Gathered | None, retries: Retries, tried: int
    ) -> list[Write]:
        """Call the function until it does not fail, each time with the same original inputs.

        Each try has columns of its own; those of the one that does not fail are then the batch's,
        since later steps see what a step changes in them.
        """
        live = self._live
        for number in range(tried + 1, retries.times + 1):
            states = live.read_all(self._live_keys) if live else {}
            own = self._with_own_columns(moment)
            try:
                writes = self._run(own, gathered or self._inputs.gather(own), preserve=True)
            except _CallError as error:
                if live:
                    live.restore_all(states)
                self.pause(error, number, retries, moment)
            else:
                if live:
                    live.release(states)
                moment.columns.update(own.columns)
                return writes
        return self._run(moment, gathered or self._inputs.gather(moment))

    def _with_own_columns(self, moment: CallContext) -> CallContext:
        """Return the context of a try: with copies of the columns that the function is given."""
        names = {s.argument.name for s in self._inputs.sources if s.form == "column"}
        heads = {n for name in names for n in (name, *levels(name)) if n in moment.columns}
        columns = moment.columns | {n: copied(moment.columns[n]) for n in heads}
        return replace(moment, columns=columns)

    def pause(self, error: TaskError, number: int, retries: Retries, moment: CallContext) -> None:
        """Report a failed call, and wait; raise TaskStoppedError if the run ends meanwhile.

        In the middle of a batch the call is then repeated at once, since only whole batches can be
        resumed.
        """
        pause(self.placed(error, moment).message, number, retries, may_stop=moment.batch is None)

    def _run(self, moment: CallContext, gathered: Gathered, preserve: bool = False) -> list[Write]:
        live, generators = self._live, self._stores.generators
        if live is not None:  # whatever fails from here on leaves the objects in an unknown state
            live.broken[self] = self._live_keys
        given = Given(self._inputs.form, gathered)
        updates = self._inputs.updates
        cells = self._inputs.take_updates(given, preserve) if updates else []
        if generators is None:
            result = self._call_with(given)
        else:
            with generators.using(self._slot(generators, moment)):
                result = self._call_with(given)
        values = given.values
        del given  # what holds an array decides whether it is copied
        if result[0] is None and self._forgotten is not None:
            self._say_forgotten(self._forgotten, moment)
        writes = self._results.writes(result, values)
        if cells:
            for cell, update in zip(cells, updates, strict=True):
                writes.append((update.key, self._updated(cell, values, update.key)))
        if live is not None:
            if self._replaces:
                self._note_replaced(live, writes)
            if self._live_updates and self._updated_in != self._stores.written.epoch:
                self._stores.written.note(*self._live_updates)  # in place: nothing to store
                self._updated_in = self._stores.written.epoch
            live.broken.pop(self, None)
        return writes

    def _note_replaced(self, live: LiveObjects, writes: list[Write]) -> None:
        """Note which live objects the call has replaced, as long as there is anything to note."""
        kinds = self._replaces
        for key, value in writes:
            if type(value) is Box and value.kind == "live":
                kind = type(value.value)
                if kinds[key] is not kind and live.replaced(key, value.value):
                    kinds[key] = kind

    def _slot(self, generators: Generators, moment: CallContext) -> Slot:
        """Return the states of the global generators for a call."""
        if not self._puts_columns:
            return generators.of_node(self.node)
        place = (self.group, self.name, self.node, moment.epoch, moment.batch)
        return generators.slot("map", *place, kept=False)

    def _say_forgotten(self, forgotten: Forgotten, moment: CallContext) -> None:
        """Warn once that the function seems to lack a ``return``."""
        running = current()
        if running is not None and (text := forgotten.look()):
            running.control.report(Warned(f"{self._who(moment)}: {text}"))

    def _call_with(self, given: Given) -> list[Any]:
        """Call the function, and raise TaskError if it changed one of its read-only inputs.

        Every call of a user's function passes here.  The result is in a list, so that its holders
        can be counted.
        """
        if self._inputs.containers:
            given.keywords.update(copy.deepcopy(self._inputs.containers))
        if self._check:
            self._look(given, called=False)
        values = given.values
        if values:
            calls.look = partial(self._look_closely, given)
        try:
            result = [self._function(*given.positional, **given.keywords)]
        except TaskStoppedError:
            raise
        except BaseException as error:  # a user's function may raise anything
            raise self._failure(error) from (None if self._is_own(error) else error)
        finally:
            if values:
                calls.look = None
            if PROCESS.id != self._owner:
                end_if_forked(self._owner, f"task {self.name!r}")
        change = given.change(self._results.returned, result) if given.noted else None
        if change is not None:
            raise change.error(self.task)
        if self._check:
            self._look(given, called=True)
        if values and (unlocked := given.unlocked()):
            raise _written(repr(unlocked))
        return result

    def _is_own(self, error: BaseException) -> bool:
        """Return whether an error is one of jobrun itself, whose message is complete."""
        return isinstance(error, TaskError) and isinstance(self.task.fn, Shell | Load)

    def _failure(self, error: BaseException) -> _CallError:
        """Return the error of a call whose function raised ``error``."""
        if isinstance(error, TaskError) and self._is_own(error):
            return _CallError(error.message, hint=error.hint, trace=error.trace)
        return _CallError(
            described(error),
            hint=remedy(error)
            or beside_spec(error, self._inputs.literals, self._spec_dir)
            or order_hint(self.task, self._function),
            trace=user_trace(error),
        )

    def _updated(self, cell: list[Any], given: Sequence[Value], key: Key) -> Value:
        """Return what a borrowed blob has become as a value."""
        old = self._stores.nodes[key[0]].find(key[1])
        return adopt(cell, given, self._keep_maps, key[1], old=old)

    def placed(self, error: TaskError, moment: CallContext) -> TaskError:
        """Return the error with task, group, batch and place."""
        message = f"{self._who(moment)} failed: {error.message}"
        hint = error.hint or (column_hint(message) if moment.batch is not None else "")
        return type(error)(
            message, where=error.where or self.task.where, hint=hint, trace=error.trace
        )

    def _who(self, moment: CallContext) -> str:
        """Return task, group, node and batch in words."""
        at = f" on node {self.node!r}" if self._job.multi_node else ""
        if moment.batch is not None:
            at += f" in batch {moment.batch + 1}"
        return f"task {self.name!r} of group {self.group!r}{at}"

    def _look_closely(self, given: Given) -> None:
        """Take the checksums of the inputs; they are compared after this call and each later one.

        Called while the function runs, when it makes what can write into them.
        """
        if not self._check:
            self._check = True
            self._look(given, called=False)

    def _look(self, given: Given, *, called: bool) -> None:
        """Compare the contents of the inputs with their last checksums; raises TaskError."""
        for name, value in zip(given.names, given.values, strict=True):
            if changed := find_changed(name, value):
                what = repr(changed)
                raise _written(what) if called else changed_later(f"its input {what}", "it")
        for key in self._constants:
            assert self._stores.live is not None
            if self._stores.live.is_changed(key):
                by = "it" if called else "a call before, or another thread,"
                raise TaskError(
                    f"{by} changed {key[1]!r}, which 'constant' names",
                    hint=f"name it under 'state' instead, so that its content is saved: "
                    f"state: [{key[1]}]",
                )


def _written(what: str) -> TaskError:
    return TaskError(f"it changed one of its inputs ({what}) in place", hint=HINT)
