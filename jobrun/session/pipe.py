"""A pipe on one node: reads batches, runs its ``map`` and ``do`` steps on each, in batch order.

The position (batches applied, reader state, reductions so far) is known between any two batches,
so that a run can be cut there and go on with the very next batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jobrun.access import Key, overlaps, resolve, step_names
from jobrun.data.reader import Batch, RowReader
from jobrun.events import BatchesDone, Report, ignore
from jobrun.every import batches_between, epochs_between
from jobrun.job import Job, Pipe, Task
from jobrun.position import PipeState, ReaderState
from jobrun.session.base import Control, Places
from jobrun.session.call import Call, Moment, Stores
from jobrun.session.reading import PipeReading
from jobrun.values import Box, Value, adopt, one_element

__all__ = ["PipeRun"]

_PROGRESS_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class _Step:
    call: Call
    batches: int
    epochs: int

    def due(self, epoch: int, batch: int) -> bool:
        """Whether the step runs on this batch (counted from 1)."""
        return batch % self.batches == 0 and epoch % self.epochs == 0


class PipeRun:
    """A pipe of a job on one node, ready to run epoch after epoch.

    ``make_call(step, name, puts_columns)`` binds one step; ``store`` writes a blob.
    """

    def __init__(
        self,
        job: Job,
        group: str,
        pipe: Pipe,
        node: str,
        stores: Stores,
        store: Callable[[Key, Value], None],
        make_call: Callable[[Task, str, Mapping[str, Any], bool], Call],
        places: Places,
    ) -> None:
        self._job = job
        self._group = group
        self._pipe = pipe
        self._node = node
        self._stores = stores
        self._store = store
        names = step_names(pipe)
        self._reading = PipeReading(job, group, pipe, node, stores, make_call, places)
        columns: dict[str, Any] = dict.fromkeys(self._reading.columns())
        self._map = []
        for step in pipe.map:
            self._map.append(make_call(step, f"{pipe.name}/{names[id(step)]}", columns, True))
            columns = {**columns, **dict.fromkeys(step.outputs.names)}
        self._do = [
            _Step(
                make_call(step, f"{pipe.name}/{names[id(step)]}", columns, False),
                batches_between(job, step, node),
                epochs_between(job, step, node),
            )
            for step in pipe.do
        ]
        self._reduced = self._reduced_keys()
        self._used = {key for key in self._reduced if self._is_used(key)}

    def _reduced_keys(self) -> dict[Key, str]:
        """The blobs that are reduced over an epoch, and how.

        That is what the ``do`` steps only put out, and what ``reduce`` names.
        """
        put: dict[Key, str] = {}
        for step in self._pipe.do:
            for name in step.outputs.names:
                for key in self._keys(name):
                    put[key] = self._pipe.reduce.get(name, "mean")
        explicit = {k for n in self._pipe.reduce for k in self._keys(n)}
        return {k: how for k, how in put.items() if k in explicit or not self._is_used(k)}

    def _is_used(self, key: Key) -> bool:
        """Whether a ``do`` step reads or updates the blob, so that it needs each batch's value."""
        return any(
            node == key[0] and overlaps(path, key[1])
            for step in self._pipe.do
            for argument in (*step.inputs, *step.updates)
            for node, path in self._keys(argument.name)
        )

    def _keys(self, name: str) -> tuple[Key, ...]:
        source = resolve(self._job, self._node, name)
        return source.keys if source.form in ("blob", "blobs") else ()

    def open(self, state: ReaderState, report: Report = ignore) -> RowReader:
        """The reader at a position; raises DataError for what cannot be read."""
        return self._reading.open(state, report)

    def run(
        self, epoch: int, state: PipeState, reader_state: ReaderState, control: Control
    ) -> tuple[PipeState | None, ReaderState]:
        """Run the batches of an epoch from ``state`` on.

        Gives the place reached: None instead of a PipeState when the epoch's batches are done.
        """
        reader = self.open(reader_state, control.report)
        total = reader.total(state.batches)
        number = state.batches
        reductions = _Reductions(state.reduced)
        progress = _Progress(self._pipe.name, self._node, epoch, total, control)
        while reader.more(number):
            if control.cut():
                return PipeState(number, reductions.state()), reader.state
            self._batch(self._reading.next(reader), epoch, number, reductions)
            reader.applied()
            number += 1
            control.applied()
            progress.done(number)
        for (node, path), value in reductions.values():
            self._store((node, path), value)
        return None, reader.state

    def _batch(self, batch: Batch, epoch: int, number: int, reductions: _Reductions) -> None:
        moment = Moment(epoch, number, {c: Box(a, "array") for c, a in batch.columns.items()})
        for call in self._map:
            for (_, column), value in call.run(moment):
                moment.columns[column] = value
        for step in self._do:
            if not step.due(epoch, number + 1):
                continue
            for key, value in step.call.run(moment):
                how = self._reduced.get(key)
                reduced = how is not None and reductions.add(key, how, value, batch.rows)
                if not reduced or key in self._used:
                    self._store(key, value)


class _Reductions:
    """Numbers joined over the batches of an epoch, in batch order.

    A mean is kept as the float64 sum of value times rows, and the rows.
    """

    def __init__(self, state: Mapping[str, tuple[str, float, int]]) -> None:
        self._kept: dict[Key, tuple[str, Any, int]] = {}
        for name, (how, value, rows) in state.items():
            node, _, path = name.partition(":")
            self._kept[node, path] = (how, value, int(rows))

    def add(self, key: Key, how: str, value: Value, rows: int) -> bool:
        """Join a value; False if it is no number, or is to be kept as the last one."""
        if how == "last" or not _is_number(value):
            self._kept.pop(key, None)
            return False
        number = one_element(value)
        kept = self._kept.get(key)
        if how == "mean":
            number = float(number) * rows
        if kept is not None:
            number = _join(how, kept[1], number)
            rows += kept[2]
        self._kept[key] = (how, number, rows)
        return True

    def state(self) -> dict[str, tuple[str, float, int]]:
        """What a position keeps of them."""
        return {f"{n}:{p}": (how, v, r) for (n, p), (how, v, r) in self._kept.items()}

    def values(self) -> list[tuple[Key, Value]]:
        """The reductions of the whole epoch."""
        found: list[tuple[Key, Value]] = []
        for key, (how, value, rows) in self._kept.items():
            number = value / rows if how == "mean" else value
            found.append((key, adopt([number])))
        return found


def _join(how: str, kept: Any, number: Any) -> Any:
    if how in ("mean", "sum"):
        return kept + number
    if math.isnan(kept) or math.isnan(number):
        return math.nan
    return min(kept, number) if how == "min" else max(kept, number)


def _is_number(value: Value) -> bool:
    if not isinstance(value, Box):
        return False
    if value.kind in ("bool", "int", "float"):
        return True
    if value.kind not in ("scalar", "array"):
        return False
    return value.value.ndim == 0 and np.dtype(value.value.dtype).kind in "biuf"


class _Progress:
    """Says how many batches are done, a few times a second."""

    def __init__(
        self, pipe: str, node: str, epoch: int, total: int | None, control: Control
    ) -> None:
        self._event = (pipe, node, epoch)
        self._total = total
        self._report = control.report
        self._next = time.monotonic() + _PROGRESS_SECONDS

    def done(self, batches: int) -> None:
        """``batches`` are applied."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _PROGRESS_SECONDS
            self._report(BatchesDone(*self._event, batches, self._total))
