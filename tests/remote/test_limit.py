"""Calls that may take only so long."""

from __future__ import annotations

from threading import Event

import pytest

from jobrun.core.notices import received_by
from jobrun.remote.limit import Limit, within


def test_what_a_call_gives_and_raises() -> None:
    assert within(Limit(30), lambda: 5, "a store") == 5
    with pytest.raises(ZeroDivisionError):
        within(Limit(30), lambda: 1 // 0, "a store")
    with pytest.raises(TimeoutError, match="its own"):
        within(Limit(30), fails, "a store")


def fails() -> None:
    raise TimeoutError("its own")


def test_a_call_that_does_not_end() -> None:
    enough = Event()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        within(Limit(0.05), lambda: enough.wait(30), "a store")
    enough.set()


def test_a_call_without_any_answer_is_given_up_early() -> None:
    enough = Event()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        within(Limit(30, silence=0.05), lambda: enough.wait(30), "a store")
    answered = Limit(0.3, silence=0.05, last=lambda: float("inf"))
    with pytest.raises(TimeoutError, match=r"no answer within 0\.3 s"):
        within(answered, lambda: enough.wait(30), "a store")
    with pytest.raises(TimeoutError, match=r"no answer within 0\.15 s"):
        within(Limit(30, silence=0.05, sending=0.1), lambda: enough.wait(30), "a store")
    enough.set()


def test_a_long_wait_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobrun.remote.limit._REPORTED", 0.01)
    monkeypatch.setattr("jobrun.remote.limit._LOOK", 0.01)
    notices: list[str] = []
    with received_by(notices.append):
        for _ in range(2):
            within(Limit(30), lambda: Event().wait(0.1), "s3://bucket")
    assert notices == ["waiting for s3://bucket"]
