"""Which task runs on a thread: known to it alone, and to those it hands its place to."""

from __future__ import annotations

import threading

from jobrun.session.base import Control
from jobrun.session.current import Running, current, enter, here


class Tasks:
    """Tasks by number, and how often they were asked for."""

    asked = 0

    def running(self, number: int) -> Running:
        self.asked += 1
        return Running("epoch", 3, f"task {number}", "main", Control(), lambda: False)


def name() -> str | None:
    running = current()
    return None if running is None else running.task


def test_outside_of_a_task_there_is_none() -> None:
    assert here() is None
    assert current() is None


def test_a_thread_knows_its_own_task_which_is_looked_up_when_it_is_asked_for() -> None:
    tasks, seen = Tasks(), {}
    entered = threading.Barrier(3)

    def run(number: int) -> None:
        enter((tasks, number))
        entered.wait(10)
        seen[number] = name()
        enter(None)
        assert current() is None

    threads = [threading.Thread(target=run, args=(n,)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    entered.wait(10)
    for thread in threads:
        thread.join()
    assert seen == {1: "task 1", 2: "task 2"}
    assert tasks.asked == 2
    assert name() is None


def test_a_thread_that_helps_is_given_the_place() -> None:
    tasks, seen = Tasks(), []
    enter((tasks, 7))
    place = here()

    def help_out() -> None:
        assert current() is None
        enter(place)
        seen.append(name())

    thread = threading.Thread(target=help_out)
    thread.start()
    thread.join()
    enter(None)
    assert seen == ["task 7"]
