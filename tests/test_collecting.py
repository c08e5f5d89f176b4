"""When the garbage collector of Python collects."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from jobrun import collecting


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    yield
    gc.set_threshold(*before)
    if not frozen:
        gc.unfreeze()


def test_it_is_rare_until_it_is_usual() -> None:
    before = gc.get_threshold()
    collecting.rare()
    assert gc.get_threshold()[0] > 10 * before[0] > 0
    assert gc.isenabled()
    collecting.usual()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() > 0


def test_where_it_is_usual_nothing_is_kept_from_it() -> None:
    frozen = gc.get_freeze_count()
    collecting.usual()
    assert gc.get_freeze_count() == frozen
