"""A task's function, bound to a node's blobs: fetch the arguments, call, adopt the result.

Everything that does not change between epochs is computed once, when a group is compiled; a call
then costs a few microseconds.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from jobrun.analysis.accesses import Reduced
from jobrun.analysis.names import resolve
from jobrun.core.blob_paths import Key, PathSet, levels
from jobrun.core.events import Warned
from jobrun.core.forked import PROCESS, end_if_forked
from jobrun.core.rng import make_rng
from jobrun.core.template import render
from jobrun.errors import TaskError, did_you_mean_or_all
from jobrun.model.job import Argument, Job, Task
from jobrun.model.options import Load, Retries
from jobrun.model.shell import Shell
from jobrun.session.batch_columns import copied
from jobrun.session.call_failure import beside_spec, column_hint, described, order_hint, remedy
from jobrun.session.call_inputs import Arguments, Fetch, Given, Held, Input, Place, has_no_memory
from jobrun.session.call_outputs import CallOutputs, Write
from jobrun.session.current import Running, TaskStoppedError, current
from jobrun.session.deadline import unlimited
from jobrun.session.generators import Generators, Slot
from jobrun.session.input_check import HINT, changed_later, find_changed
from jobrun.session.live_objects import LiveObjects
from jobrun.session.missing_return import Forgotten
from jobrun.session.stores import CallContext, Stores
from jobrun.session.torch_views import calls
from jobrun.usercode.bind import user_trace
from jobrun.values.adoption import adopt
from jobrun.values.boxes import Box, Tree, Value

__all__ = ["Call", "column_of"]

Gathered = list[Held]
"""The inputs as they were read, in the order of the task's arguments."""
_SCALARS = (bool, int, float, str, type(None), np.generic)
_CHANGEABLE = (list, dict, tuple, set, bytearray, np.ndarray)
"""Types of literals of which each call gets a copy, so that no call affects the next one."""


_LOOK = 0.05


class _CallError(TaskError):
    """A failure of the function itself, which may be called again."""


class _Update(NamedTuple):
    """A blob under ``update`` that is borrowed: its key, and its place among the arguments."""

    place: Place
    key: Key


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
        self._columns = columns
        self._puts_columns = puts_columns
        self._keep_maps = group == "setup"
        self._check = check
        self._owner = PROCESS.id
        self._places = _places(task)
        self._inputs = self._all_inputs()
        self.reductions = tuple(
            Reduced(a.reduce, resolve(job, node, a.name).keys)
            for a in task.inputs
            if a.reduce is not None
        )
        """The blobs that the call reads reduced over nodes."""
        self._best_live = self._live_of_best()
        self._constants = self._constants_given()
        self._copies: dict[Key, Any] = {}
        self._live_updates = [s.keys[0] for s in self._inputs if s.form == "live"]
        self._updated_in = -1
        """The last epoch in which a call has changed these."""
        literals = render(task.literals, texts or {})
        self._spec_dir = (texts or {}).get("spec.dir")
        self._literals = {k: v for k, v in literals.items() if not isinstance(v, _CHANGEABLE)}
        self._containers = {k: v for k, v in literals.items() if isinstance(v, _CHANGEABLE)}
        self._updates = self._borrowed_updates()
        self._fetches = [self._fetch(source) for source in self._inputs]
        self._bound = self._given = self._bind({})
        self._outputs: list[tuple[Key, ...]] = [
            (("", n),) if puts_columns else resolve(job, node, n, columns).keys
            for n in task.outputs.names
        ]
        self._results = CallOutputs(
            task.outputs,
            self._outputs,
            [next((p for node, p in ks if node and is_updated(p)), "") for ks in self._outputs],
            {i for i, keys in enumerate(self._outputs) if self._is_live(keys[0])},
            self._keep_maps,
        )
        self._live_keys = self._used_live()
        self._live = stores.live if self._live_keys else None
        replaced = (key for keys in self._outputs for key in keys if self._is_live(key))
        self._replaces: dict[Key, type | None] = {} if group == "setup" else dict.fromkeys(replaced)
        """The live objects that it puts out, each with the type of which nothing is to be noted."""
        self._retries = task.retries
        self._forgotten = (
            Forgotten(job, task, unlimited(function), [k for (k,) in self._outputs], self._held)
            if task.outputs.form == "one" and len(self._outputs[0]) == 1 and not puts_columns
            else None
        )

    def _all_inputs(self) -> list[Input]:
        """Return the inputs, and the live objects under ``update``, which are handed over alike."""
        first = len(self.task.inputs)
        inputs = [*map(self._input, self.task.inputs, self._places)]
        for argument, place in zip(self.task.updates, self._places[first:], strict=True):
            key = self._one_key(argument.name)
            if self._is_live(key):
                inputs.append(Input(argument, "live", (key,), place))
        return inputs

    def _borrowed_updates(self) -> list[_Update]:
        """Return what of ``update`` is borrowed: all but live objects."""
        places = self._places[len(self.task.inputs) :]
        keys = (self._one_key(argument.name) for argument in self.task.updates)
        pairs = zip(places, keys, strict=True)
        return [_Update(place, key) for place, key in pairs if not self._is_live(key)]

    def _bind(self, fixed: Mapping[int, Any]) -> Arguments:
        """Return the form of the arguments, which holds the objects of some inputs, by number."""
        form = Arguments([None] * sum(isinstance(p, int) for p in self._places), {}, [], [])
        form.keywords.update(self._literals)
        for number, (source, fetch) in enumerate(zip(self._inputs, self._fetches, strict=True)):
            if isinstance(fetch, Box):
                form.put(source.place, fetch.value)
            elif number in fixed:
                form.put(source.place, fixed[number])
            else:
                form.sources.append(source)
                form.fetches.append(fetch)
        return form

    def begin(self, changing: PathSet) -> None:
        """Read once, for all calls until ``end``, the objects and single values in blobs.

        Not those of the paths ``changing`` (as of node ``""``), which are replaced meanwhile.
        Arrays and containers are made anew for each call.
        """
        fixed = {}
        for number, source in enumerate(self._inputs):
            if source.form in ("blob", "live") and not changing.touches(("", source.keys[0][1])):
                value = self._held(source.keys[0])
                if type(value) is Box and has_no_memory(value) and not _is_single(source, value):
                    fixed[number] = value.value
        self._given = self._bind(fixed)

    def end(self) -> None:
        """Read all inputs for each call again."""
        self._given = self._bound

    def _is_live(self, key: Key) -> bool:
        return self._stores.live is not None and key in self._stores.live

    def _constants_given(self) -> list[Key]:
        """Return the constants that a call gets, if they are to be looked at."""
        if self._stores.live is None or not self._check or self.group == "setup":
            return []
        named = [key for source in self._inputs if source.form == "blob" for key in source.keys]
        return [key for key in named if key in self._stores.live.live.constants]

    def _live_of_best(self) -> list[Key]:
        """Return the live objects that a call gets from the best checkpoint."""
        named = [(self.node, s.keys[0][1]) for s in self._inputs if s.form == "best"]
        return [key for key in dict.fromkeys(named) if self._is_live(key)]

    def _used_live(self) -> list[Key]:
        """Return the live state that a call may change: what it names, and what is linked with it.

        That includes the generators of its node; a ``map`` step has its own.
        """
        if self._stores.live is None or self._puts_columns:
            return []
        named = [
            k for source in self._inputs if source.form in ("blob", "live") for k in source.keys
        ]
        named += [update.key for update in self._updates]
        named += [key for keys in self._outputs for key in keys]
        live = self._stores.live.live
        own = [key for key in live.generators if key[0] == self.node]
        return own + live.linked(key for key in named if key in live)

    def _held(self, key: Key) -> Value | None:
        """Return the value of a blob, or None if it has none."""
        try:
            return self._stores.get(key)
        except TaskError:
            return None

    def _input(self, argument: Argument, place: Place) -> Input:
        if argument.reduce is not None:
            return Input(argument, "reduced", (), place)
        source = resolve(self._job, self.node, argument.name, self._columns)
        column: tuple[Key, ...] = (("", argument.name),)
        keys = column if source.form == "column" else source.keys
        return Input(argument, source.form, keys, place)

    def _fetch(self, input_: Input) -> Fetch | Box:
        """Return how an input is read for a call, or a constant."""
        argument = input_.argument
        if input_.form == "live":
            return lambda moment: self._updated_object(input_)
        source = resolve(self._job, self.node, argument.name, self._columns)
        stores = self._stores
        if argument.reduce is not None:
            reduction = Reduced(argument.reduce, source.keys)
            return lambda moment: stores.reduced(reduction, moment.reduced)
        match source.form:
            case "blob":
                return source.keys[0]
            case "blobs":
                keys = source.keys
                return lambda moment: stores.get_all(keys, moment.lists)
            case "column":
                return argument.name
            case "best":
                key = (self.node, source.keys[0][1])
                if self._is_live(key):
                    return lambda moment: lambda: self._copies[key]
                return lambda moment: _best(stores, key)
            case "epoch":
                return lambda moment: lambda: moment.epoch
            case "rng":
                return lambda moment: (
                    lambda: make_rng(
                        self._job.seed, self.group, self.name, self.node, moment.epoch, moment.batch
                    )
                )
        value = source.value  # a var, or the node's name
        if isinstance(value, _CHANGEABLE):
            return lambda moment: lambda: copy.deepcopy(value)
        return Box(value, "opaque")

    def _one_key(self, name: str) -> Key:
        return resolve(self._job, self.node, name, self._columns).keys[0]

    def gather(self, moment: CallContext) -> Gathered:
        """Read the inputs now; each call gets arguments of its own that are made of them."""
        if self._best_live and self._stores.live is not None:
            states = {key: _best(self._stores, key) for key in self._best_live}
            self._copies = self._stores.live.copies(self._best_live, states)
        nodes, columns = self._stores.nodes, moment.columns
        gathered: Gathered = []
        for each in self._given.fetches:  # without a call for what most inputs are
            if isinstance(each, tuple):
                node, path = each
                gathered.append(nodes[node].root.get(path) or nodes[node].get(path))
            elif isinstance(each, str):
                gathered.append(columns.get(each) or column_of(columns, each))
            else:
                gathered.append(each(moment))
        return gathered

    def value(self, moment: CallContext) -> Any:
        """Return the function's result as it is; raises TaskError with the user's own lines."""
        try:
            given = Given(self._given, self.gather(moment))
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
            return self._run(moment, gathered or self.gather(moment))
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
                writes = self._run(own, gathered or self.gather(own), preserve=True)
            except _CallError as error:
                if live:
                    live.restore_all(states)
                self.pause(error, number, retries, moment)
            else:
                if live:
                    live.release(states)
                moment.columns.update(own.columns)
                return writes
        return self._run(moment, gathered or self.gather(moment))

    def _with_own_columns(self, moment: CallContext) -> CallContext:
        """Return the context of a try: with copies of the columns that the function is given."""
        names = {s.argument.name for s in self._inputs if s.form == "column"}
        heads = {n for name in names for n in (name, *levels(name)) if n in moment.columns}
        columns = moment.columns | {n: copied(moment.columns[n]) for n in heads}
        return replace(moment, columns=columns)

    def pause(self, error: TaskError, number: int, retries: Retries, moment: CallContext) -> None:
        """Report a failed call, and wait; raise TaskStoppedError if the run ends meanwhile.

        In the middle of a batch the call is then repeated at once, since only whole batches can be
        resumed.
        """
        running, seconds = current(), retries.pause(number)
        if running is None:
            return
        again = f"try {number + 1} of {retries.times + 1}" + (
            f" in {seconds:g} s" if seconds else ""
        )
        running.control.report(Warned(f"{self.placed(error, moment).message}; {again}"))
        end = time.monotonic() + seconds
        while not _ends(running) and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK))
        if running.stopping() and moment.batch is None:
            raise TaskStoppedError

    def _run(self, moment: CallContext, gathered: Gathered, preserve: bool = False) -> list[Write]:
        live, generators = self._live, self._stores.generators
        if live is not None:  # whatever fails from here on leaves the objects in an unknown state
            live.broken[self] = self._live_keys
        given = Given(self._given, gathered)
        cells = self._take_updates(given, preserve) if self._updates else []
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
            for cell, update in zip(cells, self._updates, strict=True):
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
        if self._containers:
            given.keywords.update(copy.deepcopy(self._containers))
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
            or beside_spec(error, self._literals, self._spec_dir)
            or order_hint(self.task, self._function),
            trace=user_trace(error),
        )

    def _take_updates(self, given: Given, preserve: bool) -> list[list[Any]]:
        """Put in the writable arguments of ``update``; return them in cells, for adoption."""
        cells = []
        for place, key in self._updates:
            cell = [self._borrow(key, preserve)]
            if isinstance(cell[0], _SCALARS):
                raise _cannot_update(key[1], cell[0])
            given.put(place, cell[0])
            cells.append(cell)
        return cells

    def _updated_object(self, source: Input) -> Value:
        """Return a live object that is updated; raises TaskError for a single value."""
        value = self._stores.get(source.keys[0])
        if isinstance(value, Box) and _is_single(source, value):
            raise _cannot_update(source.keys[0][1], value.value)
        return value

    def _borrow(self, key: Key, preserve: bool) -> Any:
        return self._stores.nodes[key[0]].borrow(key[1], preserve=preserve)

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


def _places(task: Task) -> list[Place]:
    """Return the place of each parameter, of ``in`` and then of ``update``."""
    numbers = count()
    parameters = (argument.parameter for argument in (*task.inputs, *task.updates))
    return [next(numbers) if parameter is None else parameter for parameter in parameters]


def _is_single(source: Input, box: Box) -> bool:
    """Return whether a single value is to be updated, which cannot be."""
    return source.form == "live" and isinstance(box.value, _SCALARS)


def _cannot_update(path: str, value: Any) -> TaskError:
    return TaskError(
        f"{path!r} is a single {type(value).__name__} and cannot be updated in place",
        hint=f"name {path!r} under both 'in' and 'out', and return the new value",
    )


def _written(what: str) -> TaskError:
    return TaskError(f"it changed one of its inputs ({what}) in place", hint=HINT)


def _ends(running: Running) -> bool:
    """Return whether the run ends, also where this call still has to be made."""
    return running.stopping() or running.control.interrupted()


def column_of(columns: Mapping[str, Value], name: str) -> Value:
    """Return a column of a batch, or a part of a tree column; raises TaskError if there is none."""
    value = columns.get(name)
    if value is not None:
        return value
    head = next((level for level in levels(name) if level in columns), None)
    if head is None:
        raise _no_column(f"there is no column {name!r}", name, list(columns))
    value = columns[head]
    for part in name[len(head) + 1 :].split("/"):
        if not isinstance(value, Tree):
            raise TaskError(f"there is no column {name!r}: {head!r} is no tree")
        if part not in value.items:
            raise _no_column(f"column {head!r} has no part {part!r}", part, list(value.items))
        head, value = f"{head}/{part}", value.items[part]
    return value


def _no_column(text: str, name: str, known: list[str]) -> TaskError:
    return TaskError(text, hint=did_you_mean_or_all(name, known))


def _best(stores: Stores, key: Key) -> Value:
    try:
        return stores.best[key]
    except KeyError:
        raise TaskError(
            f"there is no best checkpoint to read {key[1]!r} from: no finite value of its metric",
        ) from None
