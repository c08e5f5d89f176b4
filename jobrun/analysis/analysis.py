"""All that follows from a job without running it, computed once: accesses, live state, names."""

from __future__ import annotations

from functools import cached_property

from jobrun.analysis.accesses import Accesses
from jobrun.analysis.live_state import LiveState
from jobrun.model.job import GROUPS

__all__ = ["JobAnalysis"]


class JobAnalysis(Accesses):
    """The accesses of a complete job, and what they say of it; the job is not changed any more."""

    @cached_property
    def live(self) -> LiveState:
        """The blobs and generators that ``state`` names."""
        return LiveState(self)

    @cached_property
    def written(self) -> frozenset[str]:
        """Every blob name that a task writes, with ``node:`` in front if there are several nodes.

        Includes the bare names, which a metric may use for the blob of each node.
        """
        names: set[str] = set()
        for group in GROUPS:
            for node, path in self.writes_of(group):
                names.add(path)
                if self.job.multi_node:
                    names.add(f"{node}:{path}")
        return frozenset(names)
