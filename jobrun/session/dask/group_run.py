"""A run of a group on several workers, as the client sees it: started, followed, and cut.

A run is one request to each worker; they meet only where they exchange blobs (see
``worker_plan``).  The cut of a run over several workers: all are asked to start nothing new, and
report what they have finished.  A finished unit may have overtaken one that comes before it on
another worker, since nothing waits for a reader whose values have been sent; so the workers then
run the missing units until the finished ones are closed: with each unit, all that come before it in
the plan.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from queue import Empty

from jobrun.analysis.graph import Plan
from jobrun.core.events import Event, TasksRunning
from jobrun.core.position import Position
from jobrun.errors import TaskError
from jobrun.model.job import Job
from jobrun.session.base import Control
from jobrun.session.dask.closure import closure
from jobrun.session.dask.code import with_lines
from jobrun.session.dask.messages import Applied, News, Outcome, PrintedText, RunRequest
from jobrun.session.dask.workers import DaskWorkers, Happening

__all__ = ["GroupRun", "keys_by_worker", "reached"]

_LOOK = 0.02
"""Seconds between two checks whether a cut is requested."""

_SHOWN = 8
"""The number of running tasks that are reported."""

_LOOK_AT_REST = 0.2
"""Seconds between two calls of ``look`` while a group runs."""


class GroupRun:
    """One run of the group of ``plan``.  ``turns`` numbers the requests to the workers.

    ``was_cut``: not all of it has run.
    """

    def __init__(
        self, workers: DaskWorkers, job: Job, plan: Plan, control: Control, turns: Iterator[int]
    ) -> None:
        self.was_cut = False
        self._workers = workers
        self._job = job
        self._plan = plan
        self._control = control
        self._turns = turns
        self._running: dict[str, TasksRunning] = {}
        self._next_look = 0.0

    def outcomes(
        self,
        position: Position,
        units: Mapping[str, set[str]],
        watched: tuple[str, ...],
        forget: Collection[str],
    ) -> dict[str, Outcome]:
        """Run it from ``position`` on; return the outcome of the ``units`` of each worker.

        The workers return the scalars ``watched`` at its end; those in ``forget`` drop the scratch
        of the epoch before.  Raises the first error of a task, and WorkerLostError.
        """
        turn, left = next(self._turns), self._control.batches_left()
        for worker, own in units.items():
            part = _part_of(position, own)
            every = self._control.every_task
            request = RunRequest(
                turn, self._plan.group, part, left, every, watched, worker in forget
            )
            self._workers.follow(worker, "run", request)
        outcomes = self._follow(turn, units)
        self.was_cut = any(one.left for one in outcomes.values())
        if self.was_cut:
            self._close_cut(position, outcomes)
        return outcomes

    def _close_cut(self, position: Position, outcomes: dict[str, Outcome]) -> None:
        """Let the workers run the units that must have run beside those that have.

        The order of units that use one object shows while the workers run: units that they could
        not run because of it are reported, and requested together with those that they wait for.
        """
        while True:
            wanted = self._wanted(position, outcomes)
            open_workers = {key for key, one in outcomes.items() if one.left & wanted}
            if not open_workers:
                break
            turn = next(self._turns)
            for worker in open_workers:
                one = outcomes[worker]
                place = Position(position.epochs, one.tasks, one.pipes, one.readers)
                self._workers.follow(worker, "resume_run", turn, place, wanted)
            outcomes.update(self._follow(turn, open_workers, wanted))
        owing = [key for key, one in outcomes.items() if one.owes]
        self._workers.ask(dict.fromkeys(owing, ("flush",)))

    def _wanted(self, position: Position, outcomes: Mapping[str, Outcome]) -> frozenset[str]:
        """Return the units that belong to the cut, by what the workers have reported so far."""
        done = {*position.tasks, *(key for one in outcomes.values() for key in one.tasks)}
        begun = {key for one in outcomes.values() for key in one.pipes}
        edges = {edge for one in outcomes.values() for edge in one.edges}
        return closure(self._plan, done, begun, edges)

    # Following.

    def _follow(
        self, turn: int, wanted: Collection[str], needed: frozenset[str] | None = None
    ) -> dict[str, Outcome]:
        """Wait for the outcomes of workers; report events, and pause them if a cut is requested.

        A worker that has been held lets the others run on: they come to as many batches.  If units
        are ``needed``, no cut is possible: they pause only where one of them cannot run its own,
        since others may wait for it.  Raises the first error, once all have ended.
        """
        outcomes: dict[str, Outcome] = {}
        error: BaseException | None = None
        paused, interrupted = False, needed is not None
        while len(outcomes) < len(wanted):
            happened = self._next(_LOOK)
            if happened is not None and (outcome := self._heard(happened)) is not None:
                outcomes[happened.worker] = outcome
                if outcome.error is not None and error is None:
                    error = outcome.error
                    self._pause(turn, wanted, interrupted=True, halt=True)
                elif not paused and _is_cut(outcome, needed):
                    paused = True
                    self._pause(turn, wanted)
            if needed is None and not paused and self._control.cut():
                paused = True
                interrupted = self._control.interrupted()
                self._pause(turn, wanted, interrupted=interrupted)
            elif paused and not interrupted and self._control.interrupted():
                interrupted = True
                self._pause(turn, wanted, interrupted=True)
        self._hear_all(outcomes)
        if isinstance(error, TaskError):
            raise with_lines(error, self._job)
        if error is not None:
            raise error
        if self._job.multi_node:
            self._control.spent({n: s for one in outcomes.values() for n, s in one.spent.items()})
        return outcomes

    def _next(self, seconds: float) -> Happening | None:
        """Return what happens next, or None; ``look`` is called now and then."""
        try:
            happened = self._workers.happened.get(timeout=seconds)
        except Empty:
            happened = None
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_AT_REST
            self._control.look()
        return happened

    def _heard(self, happened: Happening) -> Outcome | None:
        """Pass on what a worker has sent; return its outcome, if it was that."""
        if happened.news is not None:
            self._pass_on(happened.worker, happened.news)
        elif happened.answer is not None:
            if happened.answer.error is not None:
                raise happened.answer.error
            outcome: Outcome = happened.answer.value
            return outcome
        return None

    def _hear_all(self, outcomes: Mapping[str, Outcome]) -> None:
        """Pass on all news up to the outcomes."""
        waiting = True
        while waiting:
            waiting = not all(
                self._workers.heard(worker, one.sequence) for worker, one in outcomes.items()
            )
            happened = self._next(_LOOK if waiting else 0)
            if happened is not None:
                self._heard(happened)
                waiting = True

    def _pause(
        self, turn: int, wanted: Iterable[str], *, interrupted: bool = False, halt: bool = False
    ) -> None:
        for worker in wanted:
            self._workers.call(worker, "pause", turn, interrupted, halt)

    def _pass_on(self, worker: str, news: News) -> None:
        """Pass on news of a worker; running tasks are joined over all workers."""
        if isinstance(news, TasksRunning):
            self._running[worker] = news
            self._control.report(_joined(self._running, news))
        elif isinstance(news, Event):
            self._control.report(news)
        elif isinstance(news, Applied):
            self._control.applied(news.batches)
        elif isinstance(news, PrintedText):
            print(news.text, end="", file=sys.stderr if news.is_error else sys.stdout)


def _is_cut(outcome: Outcome, needed: frozenset[str] | None) -> bool:
    """Return whether a worker has ended early, so that others may wait for it in vain."""
    if needed is None:
        return bool(outcome.left) and not outcome.held
    return bool(outcome.left & needed)


def _joined(running: Mapping[str, TasksRunning], news: TasksRunning) -> TasksRunning:
    """Return the running tasks of several workers, the longest first."""
    tasks = [task for one in running.values() for task in one.tasks]
    longest = tuple(sorted(tasks, key=lambda task: -task[1])[:_SHOWN])
    return replace(news, tasks=longest, count=sum(one.count for one in running.values()))


# Positions.


def keys_by_worker(plan: Plan, of_node: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the units of each worker that takes part in a group: by units, or blobs others use."""
    found: dict[str, set[str]] = {}
    for unit in plan.units:
        if not unit.gathers:
            found.setdefault(of_node[unit.node], set()).add(unit.key)
            for node, _ in (*unit.access.reads, *unit.access.writes):
                found.setdefault(of_node[node], set())
    return found


def reached(plan: Plan, position: Position, outcomes: Mapping[str, Outcome]) -> Position:
    """Return the position that the run of a group has reached."""
    done = {*position.tasks, *(key for one in outcomes.values() for key in one.tasks)}
    pipes = {key: pipe for one in outcomes.values() for key, pipe in one.pipes.items()}
    if not outcomes or (len(done) == len(position.tasks) and pipes == position.pipes):
        return position
    readers = dict(position.readers)
    if plan.group == "epoch":
        for one in outcomes.values():
            readers.update(one.readers)
    tasks = tuple(u.key for u in plan.units if not u.gathers and u.key in done)
    return Position(position.epochs, tasks, pipes, readers).in_order(u.key for u in plan.units)


def _part_of(position: Position, own: Collection[str]) -> Position:
    """Return a position as one worker gets it: all finished tasks, its own pipes and readers."""
    return Position(
        position.epochs,
        position.tasks,
        {key: pipe for key, pipe in position.pipes.items() if key in own},
        {key: reader for key, reader in position.readers.items() if key in own},
    )
