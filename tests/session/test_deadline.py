"""Functions with a deadline: it or the end of the function counts, whichever comes first."""

from __future__ import annotations

import threading

import pytest
from engine import within

from jobrun.errors import TaskError, Where
from jobrun.session.deadline import Deadline

WHERE = Where("job.yaml", 3, 5)


class Run:
    """A run that may be abandoned."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.abandoned = threading.Event()

    def abandon(self, error: BaseException) -> None:
        self.errors.append(error)
        self.abandoned.set()


def test_in_time_it_is_the_function() -> None:
    run = Run()
    limited = Deadline(lambda a, b=0: (a, b), 60, run.abandon, "task 't'", WHERE)
    assert limited(1, b=2) == (1, 2)
    assert not run.errors
    assert not [t for t in threading.enumerate() if isinstance(t, threading.Timer) and t.is_alive()
                and not t.finished.is_set()]  # fmt: skip


def test_an_error_in_time_is_the_functions_own() -> None:
    run = Run()

    def fails() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        Deadline(fails, 60, run.abandon, "task 't'", WHERE)()
    assert not run.errors


@pytest.mark.parametrize("ending", ["returns", "raises"])
def test_at_the_deadline_the_run_is_abandoned_while_the_function_goes_on(ending: str) -> None:
    run = Run()

    def late() -> str:
        assert run.abandoned.wait(20)
        if ending == "raises":
            raise KeyError("too late")
        return "too late"

    limited = Deadline(late, 0.01, run.abandon, "task 't'", WHERE)
    with pytest.raises(TaskError if ending == "returns" else KeyError):
        within(30, limited)
    (error,) = run.errors
    assert isinstance(error, TaskError)
    assert error.message == "task 't' failed: it exceeded its timeout of 0.01 s"
    assert error.where == WHERE
    assert "a thread cannot be killed" in error.hint
