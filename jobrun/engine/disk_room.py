"""The check before epoch 1 that the disk has room for the checkpoints that a run will keep.

Arithmetic on the policy alone: the saver warns with it, and a dry run shows the same count.
"""

from __future__ import annotations

from jobrun.core.text import size
from jobrun.model.policy import CheckpointPolicy

__all__ = ["kept_in_all", "room_warning"]


def kept_in_all(policy: CheckpointPolicy, epochs: int | None) -> int | None:
    """Return the most checkpoints that a run of ``epochs`` epochs keeps; None if unknown.

    One that is being written counts too.
    """
    keep = policy.keep
    if keep.all:
        every = policy.every.epochs
        return None if epochs is None or every is None else 1 + -(-epochs // every)
    if keep.every is not None and epochs is None:
        return None
    spread = epochs // keep.every if keep.every and epochs else 0
    return 1 + (keep.last or 1) + (keep.best.count if keep.best else 0) + spread


def room_warning(policy: CheckpointPolicy, epochs: int | None, each: int, free: int) -> str | None:
    """Return a warning, or None, about checkpoints of ``each`` bytes with ``free`` bytes free.

    Too little room is always reported; a tenth of it only if everything is kept, since that is what
    happens by default.  Unchanged blobs are linked, so this is an upper bound.
    """
    count = kept_in_all(policy, epochs)
    if count is None:
        return None
    total = count * each
    if total > free:
        return (
            f"up to {count} checkpoints of {size(each)} may need {size(total)}, "
            f"but only {size(free)} are free; checkpoint.keep and checkpoint.every limit them"
        )
    if policy.keep.all and total * 10 > free:
        return (
            f"all checkpoints are kept: up to {count} of {size(each)}, {size(total)} of the "
            f"{size(free)} that are free; checkpoint.keep.last limits them"
        )
    return None
