"""The check before epoch 1 that the disk has room for the checkpoints that a run will keep.

Arithmetic on the policy alone: the saver warns with it, and a dry run shows the same count.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from jobrun.core.save_cost import SHARE, less_often
from jobrun.core.text import size
from jobrun.model.policy import CheckpointPolicy

__all__ = ["Room", "files_warning", "free_room", "kept_in_all", "room_warning", "share_warning"]

_SOON = 10.0
"""Seconds of an attempt before which no share is judged: the first saves import and warm up."""

_MANY, _TINY = 500, 1024
"""A checkpoint of so many files of fewer bytes on average is one of single numbers."""


@dataclass(frozen=True, slots=True)
class Room:
    """The room that a checkpoint takes or a disk has: bytes, and files (None: it has no limit)."""

    bytes: int
    files: int | None = None


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


def free_room(path: str | os.PathLike[str]) -> Room:
    """Return what the disk of ``path`` has free for this user.  Raises OSError."""
    disk = os.statvfs(path)
    return Room(disk.f_bavail * disk.f_frsize, disk.f_favail if disk.f_files else None)


def room_warning(policy: CheckpointPolicy, epochs: int | None, each: Room, free: Room) -> str:
    """Return a warning about checkpoints of ``each`` where ``free`` is left; empty: no warning.

    Too little room is always reported; a tenth of it only if everything is kept, since that is what
    happens by default.  Unchanged blobs are linked, so this is an upper bound.
    """
    count = kept_in_all(policy, epochs)
    if count is None:
        return ""
    total = count * each.bytes
    files = count * (each.files or 0)
    if total > free.bytes:
        return (
            f"up to {count} checkpoints of {size(each.bytes)} may need {size(total)}, "
            f"but only {size(free.bytes)} are free; checkpoint.keep and checkpoint.every limit them"
        )
    if free.files is not None and files > free.files:
        return (
            f"up to {count} checkpoints of {each.files} files may need {files} inodes, but the "
            f"disk has only {free.files} free; checkpoint.keep and checkpoint.every limit them"
        )
    if not policy.keep.all:
        return ""
    if total * 10 > free.bytes:
        return (
            f"all checkpoints are kept: up to {count} of {size(each.bytes)}, {size(total)} of the "
            f"{size(free.bytes)} that are free; checkpoint.keep.last limits them"
        )
    if free.files is not None and files * 10 > free.files:
        return (
            f"all checkpoints are kept: up to {count} of {each.files} files, {files} of the "
            f"{free.files} inodes that are free; checkpoint.keep.last limits them"
        )
    return ""


def files_warning(each: Room) -> str:
    """Return a warning if a checkpoint is very many tiny files; empty if it is not."""
    if each.files is None or each.files < _MANY or each.bytes >= each.files * _TINY:
        return ""
    return (
        f"each checkpoint has {each.files} files, of {size(each.bytes // each.files)} on average: "
        "each number in a list or a dict is one; an np.array of them would be a single one"
    )


def share_warning(saves: int, waited: float, epochs: int, elapsed: float) -> str:
    """Return a warning if the run has waited long for its saves; empty if it has not.

    All numbers are those of this attempt, times in seconds.  A single save is not judged.
    """
    if saves < 2 or elapsed < _SOON or waited <= SHARE * elapsed:
        return ""
    return (
        f"{saves} saves have taken {waited / elapsed:.0%} of the time so far; "
        f"{less_often(saves, waited, epochs, elapsed)}"
    )
