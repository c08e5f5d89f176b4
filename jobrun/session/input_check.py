"""The ``--check`` option: compares the content of blobs with their content at the last look.

An array in a workspace is read-only and is replaced, never changed; so its content is the same as
long as its box lives.  Native code may ignore the flag: a tensor that shares the memory
(``torch.from_dlpack``), a pointer, ``overwrite_a``.  So the checksums of a call's inputs are
compared with those of the last look, before and after the call, and those of all blobs that were
looked at once the group has run.  A change by a call is found at once, with the culprit; a later
change, through a reference that was kept, when the blob is next read or its group ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from jobrun.errors import TaskError
from jobrun.values.boxes import Value, checksum, leaves
from jobrun.values.workspace import Workspace

__all__ = ["HINT", "changed_later", "check_kept", "find_changed"]

HINT = "name the blob under 'update', or give the other library a copy"


def find_changed(name: str, value: Value, *, only_seen: bool = False) -> str | None:
    """Return the path of the first leaf that differs from its last checksum, or None.

    The checksum of each leaf is replaced; with ``only_seen``, only of those that have one.
    """
    found = None
    for path, box in leaves(value, name):
        if only_seen and (box.last_checksum is None or box.value is None):
            continue
        now = checksum(box)
        if box.last_checksum is not None and box.last_checksum != now and found is None:
            found = path
        box.last_checksum = now
    return found


def check_kept(group: str, nodes: Mapping[str, Workspace]) -> None:
    """Raise TaskError if a blob that was looked at has been changed since, once a group has run."""
    for node, workspace in nodes.items():
        for name, value in workspace.root.items():
            if changed := find_changed(name, value, only_seen=True):
                on = f" of node {node!r}" if len(nodes) > 1 else ""
                raise changed_later(f"blob {changed!r}{on}", f"group {group!r}")


def changed_later(what: str, who: str) -> TaskError:
    """Return the error of a change that was made between two calls."""
    return TaskError(
        f"{who} found that the memory of {what} was changed between two calls, through a "
        "reference that was kept (a tensor, a pointer, a generator, a thread)",
        hint=HINT,
    )
