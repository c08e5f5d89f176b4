"""The rules by which checkpoints are saved and kept: one value, passed to the manager whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jobrun.checkpoint.part_source import SaveWatch
from jobrun.checkpoint.record import Record
from jobrun.model.policy import KEEP_ALL, Compress, Keep

__all__ = ["SaveRules"]


@dataclass(frozen=True, slots=True)
class SaveRules:
    """The rules of a save; ``keep``, ``link`` and ``compress`` are as in ``CheckpointPolicy``.

    ``watch`` observes each save.  ``named_now`` returns a record with the current names of its
    nodes, for ``keep``.  ``beside`` is called while the parts are written: it makes durable the
    files that the checkpoint covers without holding them.
    """

    keep: Keep = KEEP_ALL
    link: str = "alternate"
    compress: tuple[Compress, ...] = ()
    watch: SaveWatch | None = None
    named_now: Callable[[Record], Record] | None = None
    beside: Callable[[], None] | None = None
