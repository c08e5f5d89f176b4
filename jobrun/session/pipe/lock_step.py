"""The copies of a pipe in lock step: their ``do`` steps reduce blobs over nodes, batch by batch.

The copies here run on one thread, in the order of the nodes; those on other workers meet them at
three kinds of points, at which each worker sends one message to each other one:

- before the first batch: whether all have the same number of batches;
- before each batch: whether all have it, so that a cut falls between the same two batches on all;
- before each step that reduces: what its blobs are reduced to on each worker.

All workers decide from the same messages, so they all take the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from jobrun.analysis.accesses import Reduced
from jobrun.core.current_task import Place, enter
from jobrun.core.position import PipeState, ReaderState
from jobrun.errors import DataError, TaskError
from jobrun.model.job import Pipe
from jobrun.session.base import Control
from jobrun.session.pipe.map_steps import Prepared
from jobrun.session.pipe.run import PipeEpoch, PipeRun
from jobrun.session.stores import Stores
from jobrun.values.boxes import Value
from jobrun.values.reduction import Range, kept, partial_ranges, reduced

__all__ = ["Exchange", "LockStep", "alone"]

Exchange = Callable[[Any], Sequence[Any]]
"""Sends a message to the other workers; returns theirs.  Raises TaskStoppedError at the end.

Arrays in what it returns may change once it is called again.
"""

State = tuple[PipeState | None, ReaderState]

_CUT, _READY, _ENDED = "cut", "ready", "ended"


def alone(message: Any) -> Sequence[Any]:
    """Return no messages: all copies are here."""
    return ()


class LockStep:
    """The copies of ``pipe`` on the nodes of ``stores`` that are here: ``runs``.

    ``places`` are the copies as tasks, so that what a step logs is that of its node.
    """

    def __init__(
        self, pipe: Pipe, runs: Sequence[PipeRun], stores: Stores, places: Sequence[Place]
    ) -> None:
        self._pipe = pipe
        self._runs = runs
        self._stores = stores
        self._places = places

    def run(
        self,
        epoch: int,
        states: Sequence[tuple[PipeState, ReaderState]],
        control: Control,
        exchange: Exchange,
    ) -> tuple[list[State], list[float]]:
        """Run the batches of an epoch; return the places reached, and the seconds of each copy."""
        with ExitStack() as stack:
            epochs = []
            for run, place, state in zip(self._runs, self._places, states, strict=True):
                enter(place)  # for what the pipe does ahead
                epochs.append(stack.enter_context(run.begin(epoch, *state, control)))
            going = self._agree_on_start(epochs, control, exchange)
            applied = 0
            while going and self._have_next(epochs, control, exchange):
                self._apply(epochs, exchange)
                applied += 1
                control.applied(applied)
            ended = going and all(one.feed.ended for one in epochs)
            return [one.end(ended) for one in epochs], [one.seconds for one in epochs]

    def _agree_on_start(
        self, epochs: Sequence[PipeEpoch], control: Control, exchange: Exchange
    ) -> bool:
        """Return whether the copies run; raises DataError if they differ in their batches."""
        totals = {one.run.node: one.total for one in epochs}
        own = None if control.cut() else totals
        others = exchange(own)
        if own is None or any(other is None for other in others):
            return False
        for other in others:
            totals |= other
        known = sorted((total, node) for node, total in totals.items() if total is not None)
        if known and known[0][0] != known[-1][0]:
            raise self._differ(
                f"{known[0][0]} batches in this epoch on node {known[0][1]!r}, but {known[-1][0]} "
                f"on node {known[-1][1]!r}"
            )
        return True

    def _have_next(self, epochs: Sequence[PipeEpoch], control: Control, exchange: Exchange) -> bool:
        """Return whether all copies have their next batch, which is prepared."""
        found = {one.run.node: self._prepare(one, control) for one in epochs}
        for other in exchange(found):
            found |= other
        if _CUT in found.values():
            return False
        if _READY not in found.values():
            return False
        ended = [node for node, state in found.items() if state == _ENDED]
        if ended:
            nodes = next(node for node, state in found.items() if state == _READY)
            raise self._differ(f"no more batches on node {min(ended)!r}, but one on node {nodes!r}")
        return True

    def _prepare(self, one: PipeEpoch, control: Control) -> str:
        if one.feed.ended:
            return _ENDED
        started = time.perf_counter()
        one.prepared = None if control.cut() else one.feed.next()
        one.seconds += time.perf_counter() - started
        if one.prepared is None:
            return _CUT
        if not one.prepared[1]:
            raise self._differ(
                f"no rows are left in batch {one.number + 1} on node {one.run.node!r}"
            )
        return _READY

    def _apply(self, epochs: Sequence[PipeEpoch], exchange: Exchange) -> None:
        """Run the ``do`` steps, each on all copies before the next one."""
        prepared = [_given(one) for one in epochs]
        for number in range(len(self._pipe.do)):
            due = [one.run.is_due(number, one) for one in epochs]
            shared = self._reduced(epochs[0], number, exchange) if due[0] else {}
            for one, place, (moment, rows) in zip(epochs, self._places, prepared, strict=True):
                if not due[0]:
                    continue
                enter(place)
                started = time.perf_counter()
                moment.reduced = shared
                one.run.apply_step(number, one, moment, rows)
                one.seconds += time.perf_counter() - started
        for one, (_, rows) in zip(epochs, prepared, strict=True):
            one.applied(rows)

    def _reduced(self, one: PipeEpoch, number: int, exchange: Exchange) -> dict[Reduced, Value]:
        """Return what a step reads of all nodes, reduced."""
        reductions = one.run.reductions(number)
        if not reductions:
            return {}
        try:
            own = {r: self._own_ranges(r) for r in reductions}
            others: Sequence[Mapping[Reduced, Mapping[Range, Value]]] = exchange(own)
            return {r: _joined(r, own[r], [other[r] for other in others]) for r in reductions}
        except TaskError as error:
            raise one.run.failed_step(number, error, one) from error.__cause__

    def _own_ranges(self, reduction: Reduced) -> dict[Range, Value]:
        """Return what the blobs here are reduced to: the largest ranges of the tree."""
        keys, here = reduction.keys, {run.node for run in self._runs}
        owned = [node in here for node, _ in keys]
        return partial_ranges(
            reduction.how, _names(reduction), owned, lambda i: self._stores.get(keys[i])
        )

    def _differ(self, text: str) -> DataError:
        return DataError(
            f"pipe {self._pipe.name!r} reduces over its nodes in each batch, so all need the same "
            f"batches; it has {text}",
            where=self._pipe.mark("batch", "pipe"),
            hint="'batches_per_epoch: n' sets their number, 'drop_last: true' drops a short one",
        )


def _given(one: PipeEpoch) -> Prepared:
    assert one.prepared is not None
    return one.prepared


def _joined(
    reduction: Reduced, own: Mapping[Range, Value], others: Sequence[Mapping[Range, Value]]
) -> Value:
    """Return a reduction of which each worker has some ranges."""
    parts = dict(own)
    for other in others:
        parts |= other
    every = (0, len(reduction.keys))
    if every in parts and every not in own:  # nothing is computed here from what has come
        parts[every] = kept(parts[every])
    return reduced(reduction.how, _names(reduction), lambda i, j: parts.get((i, j)))


def _names(reduction: Reduced) -> list[str]:
    return [f"{node}:{path}" for node, path in reduction.keys]
