"""The code of the cluster draws nothing from the generator that tasks draw from."""

from __future__ import annotations

import random

import pytest

from jobrun.session.dask.own_random import give_own_random


def test_messages_that_are_measured_draw_from_another_generator() -> None:
    sizeof = pytest.importorskip("dask.sizeof")
    compression = pytest.importorskip("distributed.protocol.compression")
    before = sizeof.random, compression.randint
    try:
        give_own_random()
        state = random.getstate()
        assert sizeof.sizeof(list(range(1000))) > 1000
        assert 0 <= compression.randint(0, 9) <= 9
        assert random.getstate() == state
        own = sizeof.random
        give_own_random()
        assert sizeof.random is own
    finally:
        sizeof.random, compression.randint = before


def test_without_it_they_draw_from_the_global_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would show nothing."""
    sizeof = pytest.importorskip("dask.sizeof")
    monkeypatch.setattr(sizeof, "random", random)  # a session in this process has replaced it
    state = random.getstate()
    sizeof.sizeof(list(range(1000)))
    assert random.getstate() != state
