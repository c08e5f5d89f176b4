"""The ready-counter scheduler: order, ends, failures, cuts, and edges that come late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from engine import within
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.session.dag_run import Dag, DagRun
from jobrun.session.scheduler import Scheduler

Pairs = set[tuple[int, int]]


def dag_of(count: int, pairs: Pairs, bound: frozenset[int] = frozenset()) -> Dag:
    successors = [sorted(b for a, b in pairs if a == i) for i in range(count)]
    waits = [sum(b == i for _, b in pairs) for i in range(count)]
    return Dag(waits, successors, bound)


def never() -> bool:
    return False


class Recorder:
    """Records when units start and end."""

    def __init__(self, work: Callable[[int], None] = lambda unit: None) -> None:
        self.log: list[tuple[str, int]] = []
        self.work = work

    def __call__(self, unit: int) -> None:
        self.log.append(("start", unit))
        self.work(unit)
        self.log.append(("end", unit))

    @property
    def started(self) -> list[int]:
        return [unit for what, unit in self.log if what == "start"]


def run(
    threads: int,
    dag: Dag,
    execute: Callable[[int], None],
    done: tuple[int, ...] = (),
    cut: Callable[[], bool] = never,
) -> list[int]:
    scheduler = Scheduler(threads)
    try:
        return within(30, lambda: scheduler.run(dag, execute, done, cut))
    finally:
        scheduler.close()


_dags = st.integers(1, 20).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.sets(
            st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda p: p[0] < p[1]),
            max_size=3 * n,
        ),
    )
)


@settings(deadline=None, max_examples=60)
@given(_dags, st.sampled_from([1, 2, 8]))
def test_every_unit_runs_once_after_those_it_waits_for(
    shape: tuple[int, Pairs], threads: int
) -> None:
    count, pairs = shape
    execute = Recorder(lambda unit: time.sleep(0.0005 * (unit % 3 == 0)))
    assert run(threads, dag_of(count, pairs), execute) == list(range(count))
    assert sorted(execute.started) == list(range(count))
    for before, after in pairs:
        assert execute.log.index(("end", before)) < execute.log.index(("start", after))


@settings(deadline=None, max_examples=60)
@given(_dags, st.sampled_from([1, 4]), st.data())
def test_what_is_done_does_not_run_again(
    shape: tuple[int, Pairs], threads: int, data: st.DataObject
) -> None:
    """Whether or not those before it are done too."""
    count, pairs = shape
    done = tuple(sorted(data.draw(st.sets(st.integers(0, count - 1)))))
    execute = Recorder()
    assert run(threads, dag_of(count, pairs), execute, done) == list(range(count))
    assert sorted(execute.started) == [i for i in range(count) if i not in done]


def test_one_dag_runs_again_and_again_on_the_same_threads() -> None:
    scheduler = Scheduler(3)
    dag = dag_of(4, {(0, 1), (0, 2), (1, 3), (2, 3)})
    seen: set[int] = set()
    for _ in range(50):
        execute = Recorder(lambda unit: seen.add(threading.get_ident()))
        assert within(30, lambda e=execute: scheduler.run(dag, e, (), never)) == [0, 1, 2, 3]
    assert len(seen) <= 3
    assert dag.waits == [0, 1, 1, 2]
    scheduler.close()


@settings(deadline=None, max_examples=60)
@given(_dags, st.sampled_from([1, 2, 8]), st.data())
def test_pinned_units_run_on_one_thread_the_same_in_every_run(
    shape: tuple[int, Pairs], threads: int, data: st.DataObject
) -> None:
    count, pairs = shape
    dag = dag_of(count, pairs)
    dag.pinned = frozenset(data.draw(st.sets(st.integers(0, count - 1))))
    seen: set[int] = set()

    def work(unit: int) -> None:
        if unit in dag.pinned:
            seen.add(threading.get_ident())
        time.sleep(0.0003 * (unit % 3 == 0))

    scheduler = Scheduler(threads)
    for _ in range(3):
        execute = Recorder(work)
        assert within(30, lambda e=execute: scheduler.run(dag, e, (), never)) == [*range(count)]
        assert sorted(execute.started) == [*range(count)]
        for before, after in pairs:
            assert execute.log.index(("end", before)) < execute.log.index(("start", after))
    scheduler.close()
    assert len(seen) <= 1


@settings(deadline=None, max_examples=60)
@given(_dags, st.sampled_from([1, 2, 8]), st.data())
def test_a_cut_among_pinned_units_leaves_whole_units_and_the_rest_can_run(
    shape: tuple[int, Pairs], threads: int, data: st.DataObject
) -> None:
    count, pairs = shape
    dag = dag_of(count, pairs)
    dag.pinned = frozenset(data.draw(st.sets(st.integers(0, count - 1))))
    stop_at = data.draw(st.integers(0, count))
    execute = Recorder()
    scheduler = Scheduler(threads)
    cut = lambda: len(execute.started) >= stop_at  # noqa: E731
    done = within(30, lambda: scheduler.run(dag, execute, (), cut))
    assert sorted(execute.started) == done
    assert within(30, lambda: scheduler.run(dag, execute, done, never)) == [*range(count)]
    assert sorted(execute.started) == [*range(count)]
    scheduler.close()


def test_a_pinned_unit_does_not_wait_for_others_that_another_thread_can_run() -> None:
    """The first worker hands on what it made ready; else the two would not meet."""
    both = threading.Barrier(2, timeout=120)
    dag = dag_of(3, {(0, 1), (0, 2)})
    dag.pinned = frozenset({0, 2})
    scheduler = Scheduler(2)
    work = lambda unit: both.wait() and None if unit else None  # noqa: E731
    assert within(30, lambda: scheduler.run(dag, work, (), never)) == [0, 1, 2]
    scheduler.close()


def test_units_of_which_one_runs_at_a_time_stay_on_one_thread() -> None:
    scheduler, ran = Scheduler(3), set()
    for _ in range(50):
        scheduler.run(
            dag_of(3, [(0, 1), (1, 2)]), lambda unit: ran.add(threading.get_ident()), (), never
        )
        time.sleep(0.001)  # what is done between two epochs: the worker comes to rest
    scheduler.close()
    assert len(ran) == 1


def test_an_empty_dag() -> None:
    assert run(2, dag_of(0, set()), Recorder()) == []


def test_units_run_on_daemon_threads_of_the_scheduler() -> None:
    """So that signals are served, and leaving never waits for a task."""
    threads: list[threading.Thread] = []
    run(2, dag_of(3, set()), lambda unit: threads.append(threading.current_thread()))
    assert all(t.daemon for t in threads)
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("threads", [2, 8])
def test_independent_units_run_at_the_same_time(threads: int) -> None:
    """A barrier that all must reach; with fewer threads it would break."""
    barrier = threading.Barrier(threads, timeout=120)
    run(threads, dag_of(threads, set()), lambda unit: barrier.wait() and None)


def test_no_more_units_run_at_once_than_there_are_threads() -> None:
    running, most = [0], [0]
    lock = threading.Lock()

    def execute(unit: int) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.001)
        with lock:
            running[0] -= 1

    run(2, dag_of(20, set()), execute)
    assert 1 <= most[0] <= 2


# Failures.


class BoomError(Exception):
    """What fails in these tests."""


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("error", [BoomError, KeyboardInterrupt, SystemExit])
def test_a_failure_ends_the_run_and_is_raised(threads: int, error: type[BaseException]) -> None:
    def execute(unit: int) -> None:
        if unit == 2:
            raise error

    recorder = Recorder(execute)
    with pytest.raises(error):
        run(threads, dag_of(10, {(i, i + 1) for i in range(9)}), recorder)
    assert recorder.started == [0, 1, 2]


def test_the_first_failure_wins_and_running_units_end() -> None:
    begun, failed, ended = threading.Barrier(3, timeout=120), threading.Event(), []

    def execute(unit: int) -> None:
        begun.wait()
        if unit == 0:
            failed.set()
            raise BoomError("first")
        assert failed.wait(20)
        time.sleep(0.02)
        ended.append(unit)
        if unit == 1:
            raise BoomError("second")

    recorder = Recorder(execute)
    with pytest.raises(BoomError, match="first"):
        run(3, dag_of(6, {(0, 3), (1, 4), (2, 5)}), recorder)
    assert sorted(ended) == [1, 2], "what ran has ended before the error is raised"
    assert sorted(recorder.started) == [0, 1, 2]


def test_a_scheduler_works_again_after_a_failure() -> None:
    scheduler = Scheduler(2)

    def fail(unit: int) -> None:
        raise BoomError

    for _ in range(3):
        with pytest.raises(BoomError):
            within(30, lambda: scheduler.run(dag_of(5, set()), fail, (), never))
        execute = Recorder()
        assert within(30, lambda e=execute: scheduler.run(dag_of(5, set()), e, (), never))
        assert len(execute.started) == 5
    scheduler.close()


def test_an_interrupt_of_the_caller_starts_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C in a program that has no handler of its own."""
    begun, release = threading.Event(), threading.Event()

    def execute(unit: int) -> None:
        begun.set()
        assert release.wait(20)

    recorder = Recorder(execute)
    scheduler = Scheduler(1)

    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            begun.wait(20)
            raise KeyboardInterrupt

    class InterruptedRun(DagRun):
        def __post_init__(self) -> None:
            super().__post_init__()
            self.over = Interrupted()

    monkeypatch.setattr("jobrun.session.scheduler.DagRun", InterruptedRun)
    with pytest.raises(KeyboardInterrupt):
        scheduler.run(dag_of(5, {(i, i + 1) for i in range(4)}), recorder, (), never)
    release.set()
    monkeypatch.undo()
    again = Recorder()
    assert within(30, lambda: scheduler.run(dag_of(2, set()), again, (), never)) == [0, 1]
    assert recorder.started == [0]
    scheduler.close()


def test_a_closed_scheduler_says_so() -> None:
    scheduler = Scheduler(1)
    scheduler.close()
    with pytest.raises(RuntimeError, match="closed"):
        within(10, lambda: scheduler.run(dag_of(1, set()), Recorder(), (), never))


def test_threads_end_after_closing() -> None:
    scheduler = Scheduler(3)
    within(30, lambda: scheduler.run(dag_of(10, set()), Recorder(), (), never))
    workers = list(scheduler._workers)
    scheduler.close()
    for worker in workers:
        worker.join(20)
        assert not worker.is_alive()


# Loops of runs.


@settings(deadline=None, max_examples=60)
@given(_dags, st.sampled_from([1, 2, 8]))
def test_runs_of_a_loop_are_like_others_on_the_same_threads(
    shape: tuple[int, Pairs], threads: int
) -> None:
    count, pairs = shape
    scheduler = Scheduler(threads)
    dag = dag_of(count, pairs)
    ran: list[list[int]] = []
    on: set[threading.Thread] = set()

    def loop() -> None:
        on.add(threading.current_thread())
        for _ in range(3):
            recorder = Recorder(lambda unit: on.add(threading.current_thread()))
            ran.append(scheduler.run(dag, recorder, (), never))
            places = {entry: place for place, entry in enumerate(recorder.log)}
            assert all(places["end", a] < places["start", b] for a, b in pairs)

    within(30, lambda: scheduler.run_loop(loop, lambda: None))
    assert ran == [list(range(count))] * 3
    assert on <= set(scheduler._workers)
    assert scheduler._workers[0] in on
    assert within(30, lambda: scheduler.run(dag, Recorder(), (), never)) == list(range(count))
    scheduler.close()


def test_pinned_units_of_a_loop_run_on_its_thread_while_others_run_beside() -> None:
    scheduler = Scheduler(2)
    dag = Dag([0, 0, 1], [[], [2], []], pinned=frozenset({0, 2}))
    both = threading.Barrier(2)
    on: dict[int, threading.Thread] = {}

    def execute(unit: int) -> None:
        on[unit] = threading.current_thread()
        if unit < 2:
            both.wait(20)

    within(30, lambda: scheduler.run_loop(lambda: _run(scheduler, dag, execute), lambda: None))
    first, second = scheduler._workers
    assert on == {0: first, 1: second, 2: first}
    scheduler.close()


def _run(scheduler: Scheduler, dag: Dag, execute: Callable[[int], None]) -> None:
    scheduler.run(dag, execute, (), never)


def test_the_caller_of_a_loop_looks_while_a_unit_runs_and_cuts() -> None:
    scheduler = Scheduler(1)
    looked, cut = threading.Event(), threading.Event()
    callers: set[int] = set()

    def look() -> None:
        callers.add(threading.get_ident())
        looked.set()

    def loop() -> None:
        dag = dag_of(2, {(0, 1)})
        finished = scheduler.run(dag, lambda unit: wait(looked) or cut.set(), (), cut.is_set, look)
        assert finished == [0]

    def caller() -> int:
        scheduler.run_loop(loop, lambda: None)
        return threading.get_ident()

    assert callers == {within(30, caller)}
    scheduler.close()


def wait(event: threading.Event) -> None:
    assert event.wait(20)


@pytest.mark.parametrize("in_unit", [True, False])
def test_an_error_in_a_loop_is_its_caller_s(in_unit: bool) -> None:
    scheduler = Scheduler(2)

    def fail(unit: int = 0) -> None:
        raise ZeroDivisionError

    def loop() -> None:
        if in_unit:
            scheduler.run(dag_of(2, {(0, 1)}), fail, (), never)
        fail()

    with pytest.raises(ZeroDivisionError):
        within(30, lambda: scheduler.run_loop(loop, lambda: None))
    assert within(30, lambda: scheduler.run(dag_of(2, set()), Recorder(), (), never)) == [0, 1]
    scheduler.close()


@pytest.mark.parametrize("how", ["interrupt", "abandon"])
def test_the_caller_of_a_loop_does_not_wait_for_a_unit(how: str) -> None:
    """As after Ctrl-C, and when a task exceeds its timeout."""
    scheduler = Scheduler(1)
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()
    told: list[str] = []

    def execute(unit: int) -> None:
        begun.set()
        wait(release)

    def look() -> None:
        if how == "interrupt" and begun.is_set():
            raise KeyboardInterrupt

    def loop() -> None:
        try:
            dag = dag_of(2, {(0, 1)})
            scheduler.run(dag, execute, (), never, halted=lambda: told.append("halted"))
            told.append("the loop continued")
        finally:
            ended.set()

    def abandon() -> None:
        wait(begun)
        scheduler.abandon(TimeoutError())

    if how == "abandon":
        threading.Thread(target=abandon).start()
    with pytest.raises(KeyboardInterrupt if how == "interrupt" else TimeoutError):
        within(30, lambda: scheduler.run_loop(loop, look))
    assert told == ["halted"]
    assert not ended.is_set()
    again = Recorder()
    later = threading.Timer(0.05, release.set)
    later.start()
    assert within(30, lambda: scheduler.run(dag_of(2, set()), again, (), never)) == [0, 1]
    wait(ended)
    assert told == ["halted"]
    scheduler.close()


def test_an_interrupt_waits_for_what_a_loop_does_between_its_runs() -> None:
    scheduler = Scheduler(1)
    between, interrupted = threading.Event(), threading.Event()
    log: list[str] = []

    def look() -> None:
        if between.is_set():
            interrupted.set()
            raise KeyboardInterrupt

    def loop() -> None:
        scheduler.run(dag_of(1, set()), lambda unit: None, (), never)
        between.set()
        wait(interrupted)
        time.sleep(0.05)
        log.append("saved")
        scheduler.run(dag_of(1, set()), lambda unit: log.append("ran"), (), never)

    with pytest.raises(KeyboardInterrupt):
        within(30, lambda: scheduler.run_loop(loop, look))
    assert log == ["saved"]
    scheduler.close()


# Cuts.


@settings(deadline=None, max_examples=60)
@given(_dags, st.sampled_from([1, 4]), st.integers(0, 10))
def test_a_cut_leaves_a_part_that_can_be_gone_on_from(
    shape: tuple[int, Pairs], threads: int, calls: int
) -> None:
    count, pairs = shape
    seen = iter(range(1000))
    execute = Recorder()
    dag = dag_of(count, pairs)
    finished = run(threads, dag, execute, (), lambda: next(seen) >= calls)
    assert sorted(execute.started) == finished
    assert all(a in finished for a, b in pairs if b in finished)
    rest = Recorder()
    assert run(threads, dag, rest, tuple(finished)) == list(range(count))
    assert sorted(finished + rest.started) == list(range(count))


def test_a_cut_before_anything() -> None:
    execute = Recorder()
    assert run(2, dag_of(3, set()), execute, (1,), lambda: True) == [1]
    assert execute.started == []


def test_a_cut_ends_a_run_that_only_waits_for_messages() -> None:
    cut = threading.Event()
    execute = Recorder()
    dag = dag_of(3, {(0, 1), (1, 2)})
    dag.waits[1] += 1  # a message that does not come
    scheduler = Scheduler(2)
    look = lambda: cut.set() if execute.log else None  # noqa: E731
    finished = within(30, lambda: scheduler.run(dag, execute, (), cut.is_set, look))
    scheduler.close()
    assert finished == [0]


@pytest.mark.parametrize("threads", [1, 3])
def test_units_bound_to_one_that_has_run_still_run(threads: int) -> None:
    """0 is a gathering, 1 to 4 are its copies; 5 is any other."""
    cut = threading.Event()
    execute = Recorder(lambda unit: cut.set())
    dag = dag_of(6, {(0, 1), (0, 2), (0, 3), (0, 4), (1, 5)}, frozenset({1, 2, 3, 4}))
    assert run(threads, dag, execute, (), cut.is_set) == [0, 1, 2, 3, 4]


def test_bound_units_do_not_run_after_a_failure() -> None:
    def execute(unit: int) -> None:
        if unit == 1:
            raise BoomError

    recorder = Recorder(execute)
    dag = dag_of(4, {(0, 1), (0, 2), (0, 3)}, frozenset({1, 2, 3}))
    with pytest.raises(BoomError):
        run(1, dag, recorder)
    assert recorder.started == [0, 1]


# Edges that come while a dag runs.


@pytest.mark.parametrize("threads", [1, 8])
def test_an_edge_added_by_a_running_unit_orders_those_behind_it(threads: int) -> None:
    scheduler = Scheduler(threads)
    dag = dag_of(4, {(0, 1), (0, 2), (0, 3)})

    def work(unit: int) -> None:
        if unit == 0 and not dag.successors[3]:
            scheduler.add_edge(3, 2)
            scheduler.add_edge(2, 1)
        time.sleep(0.002)

    for _ in range(2):
        execute = Recorder(work)
        within(30, lambda e=execute: scheduler.run(dag, e, (), never))
        assert [u for w, u in execute.log if w == "end"] == [0, 3, 2, 1]
    scheduler.close()


def test_an_edge_from_a_unit_that_is_done_holds_nothing_up() -> None:
    scheduler = Scheduler(2)
    dag = dag_of(3, {(0, 2)})
    execute = Recorder(lambda unit: scheduler.add_edge(1, 2) if unit == 0 else None)
    assert within(20, lambda: scheduler.run(dag, execute, (1,), never)) == [0, 1, 2]
    scheduler.close()


@pytest.mark.parametrize("threads", [1, 8])
def test_what_waits_for_a_unit_to_skip_is_skipped_too(threads: int) -> None:
    """Whether the edge was there before, or comes while the dag runs."""
    scheduler = Scheduler(threads)
    dag = dag_of(7, {(0, 1), (1, 2), (3, 5), (3, 6), (5, 6)})

    def add(unit: int) -> None:
        if unit == 3:
            scheduler.add_edge(4, 5)

    execute = Recorder(add)
    skip = (1, 4)
    ran = within(20, lambda: scheduler.run(dag, execute, (), never, skip=skip))
    assert ran == sorted(execute.started) == [0, 3]
    scheduler.close()


def test_a_unit_to_skip_stays_so_whatever_edges_it_gets() -> None:
    scheduler = Scheduler(2)
    dag = dag_of(5, {(0, 1), (0, 2), (0, 3)})

    def add(unit: int) -> None:
        if unit == 0:
            scheduler.add_edge(1, 4)
            scheduler.add_edge(2, 4)

    execute = Recorder(add)
    assert within(20, lambda: scheduler.run(dag, execute, (), never, skip=(4,))) == [0, 1, 2, 3]
    assert 4 not in execute.started
    scheduler.close()


@settings(deadline=None, max_examples=100)
@given(_dags, st.randoms())
def test_the_order_of_a_dag_is_that_of_the_numbers_where_it_may_be(
    shape: tuple[int, Pairs], random: object
) -> None:
    count, pairs = shape
    names = list(range(count))
    random.shuffle(names)  # type: ignore[attr-defined]
    renamed = {(names[a], names[b]) for a, b in pairs}
    place = dag_of(count, renamed).order()
    assert sorted(place) == list(range(count))
    assert all(place[a] < place[b] for a, b in renamed)
    if all(a < b for a, b in renamed):
        assert place == list(range(count))
