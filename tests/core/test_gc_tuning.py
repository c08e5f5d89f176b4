"""When the garbage collector of Python collects."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from jobrun.core import gc_tuning


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How often what is there was left alone; the count of frozen objects falls by itself."""
    found: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: found.append("frozen"))
    return found


def test_it_is_rare_until_it_is_usual(frozen: list[str]) -> None:
    before = gc.get_threshold()
    gc_tuning.rare()
    assert gc.get_threshold()[0] > 10 * before[0] > 0
    assert gc.isenabled()
    gc_tuning.usual()
    assert gc.get_threshold() == before
    assert frozen == ["frozen"]


def test_where_it_is_usual_nothing_is_kept_from_it(frozen: list[str]) -> None:
    gc_tuning.usual()
    assert frozen == []
