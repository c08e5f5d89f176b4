"""Calls that may take only so long."""

from __future__ import annotations

from threading import Event

import pytest

from jobrun.remote.limit import within


def test_what_a_call_gives_and_raises() -> None:
    assert within(30, lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        within(30, lambda: 1 // 0)
    with pytest.raises(TimeoutError, match="its own"):
        within(30, fails)


def fails() -> None:
    raise TimeoutError("its own")


def test_a_call_that_does_not_end() -> None:
    enough = Event()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        within(0.05, lambda: enough.wait(30))
    enough.set()
