"""The seconds of the tasks of each node in the epochs of an attempt, and the slowest node."""

from __future__ import annotations

from collections.abc import Mapping

from jobrun.core.events import SlowestNode

__all__ = ["NodeTimes"]


class NodeTimes:
    """The seconds that the tasks of each node took."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add the seconds that the tasks of nodes have taken."""
        for node, more in seconds.items():
            self._seconds[node] = self._seconds.get(node, 0.0) + more

    def slowest(self) -> SlowestNode | None:
        """Return the node whose tasks took longest, beside the others; None if there are none."""
        if len(self._seconds) < 2:
            return None
        from statistics import median  # with fractions and decimals, which few jobs need

        node = max(self._seconds, key=self._seconds.__getitem__)
        others = median(s for other, s in self._seconds.items() if other != node)
        return SlowestNode(node, self._seconds[node], others)
