"""Work ahead of its consumer: order, the window, and every way to end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from engine import within
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.session.pipe import prefetch
from jobrun.session.pipe.prefetch import Ahead, Turns

THREADS = range(1, 9)


def workers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("jobrun-ahead")]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert not workers()


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 30), st.integers(1, 8), st.integers(1, 10), st.randoms(use_true_random=False))
def test_results_come_in_order_whatever_takes_how_long(
    count: int, threads: int, window: int, random: Any
) -> None:
    pauses = [random.choice([0.0, 0.0, 0.0005]) for _ in range(count)]

    def work(item: int) -> int:
        time.sleep(pauses[item])
        return item * item

    with Ahead(range(count), work, threads, window) as ahead:
        assert within(20, lambda: list(ahead)) == [i * i for i in range(count)]


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("window", [1, 2, 5, 20])
def test_no_more_than_the_window_is_ahead(threads: int, window: int) -> None:
    lock = threading.Lock()
    fetched, taken, most = 0, 0, 0

    def items() -> Iterator[int]:
        nonlocal fetched, most
        for i in range(40):
            with lock:
                fetched += 1
                most = max(most, fetched - taken)
            yield i

    with Ahead(items(), lambda i: i, threads, window) as ahead:
        for i in range(40):
            with lock:  # counted before it is asked for, so that the count is never behind
                taken += 1
            assert next(ahead) == i
    assert most <= window + 1  # the one that is being asked for


def test_a_full_window_is_reached_and_then_nothing_is_fetched() -> None:
    fetched: list[int] = []
    full = threading.Event()

    def items() -> Iterator[int]:
        for i in range(100):
            fetched.append(i)
            if len(fetched) == 4:
                full.set()
            yield i

    with Ahead(items(), lambda i: i, 2, 4) as ahead:
        assert full.wait(10)
        time.sleep(0.02)
        assert fetched == [0, 1, 2, 3]
        assert next(ahead) == 0


@pytest.mark.parametrize("threads", THREADS)
def test_the_source_is_asked_by_one_thread_at_a_time(threads: int) -> None:
    inside = 0

    class Source:
        def __init__(self) -> None:
            self.left = iter(range(30))

        def __iter__(self) -> Source:
            return self

        def __next__(self) -> int:
            nonlocal inside
            inside += 1
            assert inside == 1
            time.sleep(0.0002)
            inside -= 1
            return next(self.left)

    with Ahead(Source(), lambda i: i, threads, 8) as ahead:
        assert within(20, lambda: list(ahead)) == list(range(30))


def test_work_goes_on_at_the_same_time() -> None:
    both = threading.Barrier(4)
    with Ahead(range(4), lambda i: both.wait(10), 4, 4) as ahead:
        assert sorted(within(20, lambda: list(ahead))) == [0, 1, 2, 3]


# Errors: in the place of the result.


@pytest.mark.sampled(5)
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("window", [1, 3, 16])
@pytest.mark.parametrize("at", [0, 1, 7, 19])
@pytest.mark.parametrize("who", ["source", "work"])
def test_an_error_comes_after_all_results_before_it(
    threads: int, window: int, at: int, who: str
) -> None:
    def items() -> Iterator[int]:
        for i in range(20):
            if who == "source" and i == at:
                raise KeyError(i)
            yield i

    def work(i: int) -> int:
        if who == "work" and i >= at:  # a later one may fail first
            time.sleep(0.001 * (i == at))
            raise KeyError(i)
        return i

    def consume(got: list[int]) -> None:
        with Ahead(items(), work, threads, window) as ahead:
            for i in ahead:
                got.append(i)

    got: list[int] = []
    with pytest.raises(KeyError) as caught:
        within(20, lambda: consume(got))
    assert got == list(range(at))
    assert caught.value.args == (at,)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration])
def test_whatever_work_raises_is_passed_on(error: type[BaseException]) -> None:
    def work(i: int) -> int:
        raise error("no")

    def consume() -> None:
        with Ahead([1], work, 2, 2) as ahead:
            next(ahead)

    with pytest.raises(error):
        within(20, consume)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("consumed", [0, 1, 5])
def test_closing_early_ends_the_threads_in_every_state_of_the_window(
    threads: int, consumed: int
) -> None:
    entered = threading.Semaphore(0)

    def work(i: int) -> int:
        entered.release()
        return i

    for window in (1, 4, 100):
        ahead = Ahead(iter(int, 1), work, threads, window)  # a source without an end
        for _ in range(consumed):
            next(ahead)
        assert entered.acquire(timeout=120)
        within(20, ahead.close)
        assert not workers()


def test_closing_waits_for_a_call_that_is_running() -> None:
    started, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work(i: int) -> None:
        started.set()
        assert go_on.wait(10)
        ended.set()

    ahead = Ahead([1, 2], work, 1, 2)
    assert started.wait(10)
    threading.Timer(0.02, go_on.set).start()
    within(20, ahead.close)
    assert ended.is_set()


def test_a_consumer_that_fails_leaves_no_thread() -> None:
    def consume() -> None:
        with Ahead(range(10**9), lambda i: i, 3, 6) as ahead:
            for i in ahead:
                1 / (i - 5)

    with pytest.raises(ZeroDivisionError):
        within(20, consume)


def test_nothing_is_kept_of_a_result_that_was_taken() -> None:
    with Ahead(range(20), lambda i: [i] * 3, 2, 4) as ahead:
        alone = [sys.getrefcount(next(ahead)) for _ in range(20)]
    assert set(alone) == {sys.getrefcount([0])}


# Light work, which the consumer does itself.


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 120), st.integers(1, 4), st.integers(1, 8), st.sets(st.integers(0, 119)))
def test_results_come_in_order_whoever_works(
    count: int, threads: int, window: int, slow: set[int]
) -> None:
    def work(item: int) -> int:
        time.sleep(0.001 if item in slow else 0)
        return item * item

    with Ahead(range(count), work, threads, window, Turns()) as ahead:
        assert within(20, lambda: list(ahead)) == [i * i for i in range(count)]


def until_the_consumer_works(ahead: Ahead[int, int]) -> int:
    """The number of items taken until one was worked on here; ``work`` returns a thread's id."""
    return next(n for n, ident in enumerate(ahead) if ident == threading.get_ident())


def test_light_work_is_done_by_the_consumer_and_heavy_work_by_threads_again() -> None:
    pause = 0.0

    def work(item: int) -> int:
        if pause:
            time.sleep(pause)
        return threading.get_ident()

    with Ahead(iter(int, 1), work, 2, 4, Turns()) as ahead:
        until_the_consumer_works(ahead)
        pause = 0.002
        own = [next(ahead) == threading.get_ident() for _ in range(40)]
        assert not any(own[1:])  # one is enough to see it
        pause = 0.0
        until_the_consumer_works(ahead)


def test_the_consumer_tries_items_that_may_only_have_waited_for_the_interpreter() -> None:
    turns = Turns()
    assert [turns.own_after(150e-6) for _ in range(16)][-1]
    assert turns.own_again(50e-6)
    assert not turns.own_again(1e-3)
    assert not any(turns.own_after(150e-6) for _ in range(100))  # what it has lost is made up for


def test_the_next_iteration_begins_as_the_last_has_ended() -> None:
    pause = 0.0

    def work(item: int) -> int:
        if pause:
            time.sleep(pause)
        return threading.get_ident()

    turns = Turns()
    with Ahead(iter(int, 1), work, 2, 4, turns) as ahead:
        until_the_consumer_works(ahead)
    with Ahead(range(100), work, 2, 4, turns) as ahead:
        assert not workers()
        assert next(ahead) == threading.get_ident()
        pause = 0.002
        own = [ident == threading.get_ident() for ident in ahead]
    assert len(own) == 99
    assert not any(own[1:])


@pytest.mark.parametrize("helps", [False, True])
def test_the_consumer_works_only_if_it_is_to_help(
    helps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "_LIGHT", 10)  # all work is light
    with Ahead(
        range(100), lambda i: threading.get_ident(), 2, 4, Turns() if helps else None
    ) as ahead:
        own = [ident == threading.get_ident() for ident in ahead]
    assert len(own) == 100
    assert own[-50:] == [helps] * 50


@pytest.mark.parametrize("who", ["source", "work"])
def test_an_error_in_the_consumers_own_work_is_raised_once_and_ends_all(
    who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "_LIGHT", 10)

    def items() -> Iterator[int]:
        for i in range(100):
            if who == "source" and i == 60:
                raise KeyError(i)
            yield i

    def work(i: int) -> int:
        if who == "work" and i == 60:
            raise KeyError(i)
        return i

    with Ahead(items(), work, 2, 4, Turns()) as ahead:
        assert [next(ahead) for _ in range(60)] == list(range(60))
        with pytest.raises(KeyError):
            next(ahead)
        assert list(ahead) == []
