"""The slowest node of a run."""

from __future__ import annotations

from jobrun.core.events import SlowestNode
from jobrun.engine.node_times import NodeTimes


def test_the_slowest_of_several() -> None:
    times = NodeTimes()
    assert times.slowest() is None
    times.add({"a": 1.0})
    assert times.slowest() is None
    times.add({"b": 2.0, "c": 4.0, "a": 2.0})
    times.add({"b": 3.0})
    assert times.slowest() == SlowestNode("b", 5.0, 3.5)
