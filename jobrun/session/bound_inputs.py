"""The inputs of a task on one node: bound once, and fetched for each call.

Everything that does not change between epochs is computed when a group is compiled; to fetch the
inputs of a call then takes less than a microsecond.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from itertools import count
from typing import Any, Final, NamedTuple

import numpy as np

from jobrun.analysis.accesses import Reduced
from jobrun.analysis.names import resolve
from jobrun.core.blob_paths import Key, PathSet
from jobrun.core.rng import make_rng
from jobrun.core.template import render
from jobrun.errors import TaskError
from jobrun.model.job import Argument, Job, Task
from jobrun.session.batch_columns import column_of
from jobrun.session.call_inputs import Arguments, Fetch, Given, Held, Input, Place, has_no_memory
from jobrun.session.stores import CallContext, Stores
from jobrun.values.boxes import Box, Value

__all__ = ["BoundInputs", "Gathered"]

Gathered = list[Held]
"""The inputs as they were read, in the order of the task's arguments."""
_SCALARS: Final = (bool, int, float, str, type(None), np.generic)
_CHANGEABLE: Final = (list, dict, tuple, set, bytearray, np.ndarray)
"""Types of literals of which each call gets a copy, so that no call affects the next one."""


class _Update(NamedTuple):
    """A blob under ``update`` that is borrowed: its key, and its place among the arguments."""

    place: Place
    key: Key


class BoundInputs:
    """The arguments of a task on one node, bound to the blobs of ``stores``.

    ``sources`` are the inputs, ``updates`` what else is borrowed for a call.  ``form`` is the form
    of the arguments of a call now.  ``literals`` are the values of ``with`` that all calls share,
    ``containers`` those of which each call gets a copy.
    """

    def __init__(
        self,
        job: Job,
        group: str,
        task: Task,
        node: str,
        stores: Stores,
        *,
        name: str,
        columns: Collection[str] | None,
        texts: Mapping[str, str],
    ) -> None:
        self._job = job
        self._task = task
        self._node = node
        self._place = (group, name, node)
        self._stores = stores
        self._columns = columns
        self._places = _places(task)
        self.sources = self._all_inputs()
        self.reductions = tuple(
            Reduced(a.reduce, resolve(job, node, a.name).keys)
            for a in task.inputs
            if a.reduce is not None
        )
        """The blobs that the call reads reduced over nodes."""
        self._best_live = self._live_of_best()
        self._copies: dict[Key, Any] = {}
        literals = render(task.literals, texts)
        self.literals = {k: v for k, v in literals.items() if not isinstance(v, _CHANGEABLE)}
        self.containers = {k: v for k, v in literals.items() if isinstance(v, _CHANGEABLE)}
        self.updates = self._borrowed_updates()
        self._fetches = [self._fetch(source) for source in self.sources]
        self._bound = self.form = self._bind({})

    # Binding.

    def _all_inputs(self) -> list[Input]:
        """Return the inputs, and the live objects under ``update``, which are handed over alike."""
        first = len(self._task.inputs)
        inputs = [*map(self._input, self._task.inputs, self._places)]
        for argument, place in zip(self._task.updates, self._places[first:], strict=True):
            key = self._one_key(argument.name)
            if self.is_live(key):
                inputs.append(Input(argument, "live", (key,), place))
        return inputs

    def _borrowed_updates(self) -> list[_Update]:
        """Return what of ``update`` is borrowed: all but live objects."""
        places = self._places[len(self._task.inputs) :]
        keys = (self._one_key(argument.name) for argument in self._task.updates)
        pairs = zip(places, keys, strict=True)
        return [_Update(place, key) for place, key in pairs if not self.is_live(key)]

    def _bind(self, fixed: Mapping[int, Any]) -> Arguments:
        """Return the form of the arguments, which holds the objects of some inputs, by number."""
        form = Arguments([None] * sum(isinstance(p, int) for p in self._places), {}, [], [])
        form.keywords.update(self.literals)
        for number, (source, fetch) in enumerate(zip(self.sources, self._fetches, strict=True)):
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
        Arrays and containers are made again for each call.
        """
        fixed = {}
        for number, source in enumerate(self.sources):
            if source.form in ("blob", "live") and not changing.touches(("", source.keys[0][1])):
                value = self.held(source.keys[0])
                if type(value) is Box and has_no_memory(value) and not _is_single(source, value):
                    fixed[number] = value.value
        self.form = self._bind(fixed)

    def end(self) -> None:
        """Read all inputs for each call again."""
        self.form = self._bound

    def is_live(self, key: Key) -> bool:
        """Return whether a blob is a live object."""
        return self._stores.live is not None and key in self._stores.live

    def _live_of_best(self) -> list[Key]:
        """Return the live objects that a call gets from the best checkpoint."""
        named = [(self._node, s.keys[0][1]) for s in self.sources if s.form == "best"]
        return [key for key in dict.fromkeys(named) if self.is_live(key)]

    def held(self, key: Key) -> Value | None:
        """Return the value of a blob, or None if it has none."""
        try:
            return self._stores.get(key)
        except TaskError:
            return None

    def _input(self, argument: Argument, place: Place) -> Input:
        if argument.reduce is not None:
            return Input(argument, "reduced", (), place)
        source = resolve(self._job, self._node, argument.name, self._columns)
        column: tuple[Key, ...] = (("", argument.name),)
        keys = column if source.form == "column" else source.keys
        return Input(argument, source.form, keys, place)

    def _fetch(self, input_: Input) -> Fetch | Box:
        """Return how an input is read for a call, or a constant."""
        argument = input_.argument
        if input_.form == "live":
            return lambda moment: self._updated_object(input_)
        source = resolve(self._job, self._node, argument.name, self._columns)
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
                key = (self._node, source.keys[0][1])
                if self.is_live(key):
                    return lambda moment: lambda: self._copies[key]
                return lambda moment: _best(stores, key)
            case "epoch":
                return lambda moment: lambda: moment.epoch
            case "rng":
                return lambda moment: (
                    lambda: make_rng(self._job.seed, *self._place, moment.epoch, moment.batch)
                )
        value = source.value  # a var, or the node's name
        if isinstance(value, _CHANGEABLE):
            return lambda moment: lambda: copy.deepcopy(value)
        return Box(value, "opaque")

    def _one_key(self, name: str) -> Key:
        return resolve(self._job, self._node, name, self._columns).keys[0]

    # Calls.

    def gather(self, moment: CallContext) -> Gathered:
        """Read the inputs now; each call gets arguments of its own that are made of them."""
        if self._best_live and self._stores.live is not None:
            states = {key: _best(self._stores, key) for key in self._best_live}
            self._copies = self._stores.live.copies(self._best_live, states)
        nodes, columns = self._stores.nodes, moment.columns
        gathered: Gathered = []
        for each in self.form.fetches:  # without a call for what most inputs are
            if isinstance(each, tuple):
                node, path = each
                gathered.append(nodes[node].root.get(path) or nodes[node].get(path))
            elif isinstance(each, str):
                gathered.append(columns.get(each) or column_of(columns, each))
            else:
                gathered.append(each(moment))
        return gathered

    def take_updates(self, given: Given, preserve: bool) -> list[list[Any]]:
        """Put in the writable arguments of ``update``; return them in cells, for adoption."""
        cells = []
        for place, key in self.updates:
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


def _best(stores: Stores, key: Key) -> Value:
    try:
        return stores.best[key]
    except KeyError:
        raise TaskError(
            f"there is no best checkpoint to read {key[1]!r} from: no finite value of its metric",
        ) from None
