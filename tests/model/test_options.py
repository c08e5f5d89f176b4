"""Options of tasks by themselves; what a run makes of them is in tests/session/test_options.py."""

from __future__ import annotations

import math
from typing import Any

import pytest

from jobrun.model.options import Retries


def test_each_pause_is_longer_by_the_factor() -> None:
    assert [Retries(3, 0.5, 2.0).pause(n) for n in (1, 2, 3)] == [0.5, 1.0, 2.0]


def test_without_a_delay_there_is_no_pause_however_often_it_is_tried() -> None:
    assert Retries(5000, backoff=10.0).pause(4000) == 0.0


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"times": 0}, "'times' is 0"),
        ({"times": True}, "'times' is True"),
        ({"times": 1, "delay": math.inf}, "'delay' is inf"),
        ({"times": 1, "delay": -1.0}, "'delay' is -1.0"),
        ({"times": 1, "backoff": 0.5}, "'backoff' is 0.5"),
        ({"times": 1, "backoff": math.nan}, "'backoff' is nan"),
    ],
)
def test_what_cannot_be_is_said(given: dict[str, Any], fault: str) -> None:
    assert str(Retries(**given).fault()).startswith(fault)
    assert Retries(1, 0.0, 1.0).fault() is None
