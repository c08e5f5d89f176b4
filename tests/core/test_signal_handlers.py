"""Handlers of ours: set again where they were replaced, given back, and not left to children."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from jobrun.core.signal_handlers import Handlers

USR2 = signal.SIGUSR2


@pytest.fixture
def heard() -> Iterator[list[int]]:
    before = signal.getsignal(USR2)
    yield []
    signal.signal(USR2, before)


def test_they_are_set_again_and_said_once(heard: list[int]) -> None:
    handlers = Handlers({USR2: lambda number, _: heard.append(number)})
    before = signal.getsignal(USR2)
    handlers.install()
    assert handlers.hold() == ()
    signal.raise_signal(USR2)
    signal.signal(USR2, signal.SIG_IGN)
    assert handlers.hold() == (USR2,)
    signal.raise_signal(USR2)
    assert heard == [USR2, USR2]
    signal.signal(USR2, before)
    assert handlers.hold() == ()
    handlers.restore()
    assert signal.getsignal(USR2) == before


def test_what_was_set_meanwhile_is_given_back(heard: list[int]) -> None:
    handlers = Handlers({USR2: lambda number, _: heard.append(number)})
    handlers.install()
    signal.signal(USR2, signal.SIG_IGN)
    handlers.restore()
    assert signal.getsignal(USR2) == signal.SIG_IGN
    signal.signal(USR2, signal.SIG_DFL)
    handlers.restore()  # of which nothing is left to be done
    assert signal.getsignal(USR2) == signal.SIG_DFL


def test_a_signal_that_was_blocked_is_heard(heard: list[int]) -> None:
    handlers = Handlers({USR2: lambda number, _: heard.append(number)})
    handlers.install()
    signal.pthread_sigmask(signal.SIG_BLOCK, {USR2})
    signal.raise_signal(USR2)
    assert heard == []
    handlers.hold()
    assert heard == [USR2]
    handlers.restore()


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_child_has_what_was_there_before_from_its_first_instant_on(heard: list[int]) -> None:
    outer = Handlers({USR2: lambda number, _: heard.append(number)})
    inner = Handlers({USR2: lambda number, _: heard.append(-number)})
    outer.install()
    inner.install()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        os.kill(child, USR2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -USR2
    assert USR2 not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    signal.raise_signal(USR2)
    inner.restore()
    signal.raise_signal(USR2)
    outer.restore()
    assert heard == [-USR2, USR2]
