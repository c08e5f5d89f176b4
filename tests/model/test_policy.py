"""Policies refuse what cannot be, with the key that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobrun.errors import UsageError
from jobrun.model.policy import KEEP_ALL, Best, Compress, Every, Keep


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Every(0), "every.epochs"),
        (lambda: Every(None, batches=0), "every.batches"),
        (lambda: Every(None, seconds=-1.0), "every.seconds"),
        (lambda: Every(min_gap=-1.0), "every.min_gap"),
        (lambda: Every(None), "epochs, batches or seconds"),
        (lambda: Keep(last=0), "keep.last"),
        (lambda: Keep(last=-1), "keep.last"),
        (lambda: Keep(every=0), "keep.every"),
        (lambda: Best("loss", 0), "keep.best"),
        (lambda: Compress("brotli"), "and none, not 'brotli'"),
        (lambda: Compress("zstd", 23), "the level of zstd is from 1 to 22, not 23"),
        (lambda: Compress("lz4", 10), "the level of lz4 is from 1 to 9, not 10"),
        (lambda: Compress("zstd", -1), "from 1 to 22"),
        (lambda: Compress("none", 1), "none has no level"),
    ],
)
def test_what_cannot_be(make: Callable[[], Any], names: str) -> None:
    with pytest.raises(UsageError, match=names):
        make()


def test_keep_all_is_what_nothing_asked_for_means() -> None:
    assert Keep().all
    assert KEEP_ALL.all
    assert not Keep(last=1).all
    assert not Keep(best=Best("loss")).all


def test_a_level_that_is_not_given_is_the_usual_one() -> None:
    assert Compress("zstd") == Compress("zstd", 3, "*")
    assert Compress("lz4") == Compress("lz4", 5, "*")
