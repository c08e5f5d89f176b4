"""When the garbage collector of Python collects."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from jobrun import collecting


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_it_is_rare_until_it_is_usual() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    collecting.rare()
    assert gc.get_threshold()[0] > 10 * before[0] > 0
    assert gc.isenabled()
    collecting.usual()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() > frozen


def test_where_it_is_usual_nothing_is_kept_from_it() -> None:
    frozen = gc.get_freeze_count()
    collecting.usual()
    assert gc.get_freeze_count() == frozen
