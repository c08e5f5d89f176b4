"""By what rules a checkpoint is saved, and which stay: one value, handed to the manager whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jobrun.checkpoint.part_source import SaveWatch
from jobrun.checkpoint.record import Record
from jobrun.model.policy import KEEP_ALL, Compress, Keep

__all__ = ["SaveRules"]


@dataclass(frozen=True, slots=True)
class SaveRules:
    """``keep``, ``link`` and ``compress`` are as in ``CheckpointPolicy``.

    ``watch`` is asked before each save and told of it.  ``named_now`` returns a record with the
    names that its nodes have by now, for ``keep``.  ``beside`` is called while the parts are
    written: it makes durable what the checkpoint covers and does not hold.
    """

    keep: Keep = KEEP_ALL
    link: str = "alternate"
    compress: tuple[Compress, ...] = ()
    watch: SaveWatch | None = None
    named_now: Callable[[Record], Record] | None = None
    beside: Callable[[], None] | None = None
