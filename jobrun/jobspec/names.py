"""The names of a spec: what is wrong with one, in words, or None.

They rest on the rule of ``core.names``; here are the forms that a spec adds to it: ``node:blob``,
patterns of nodes, ``best:blob``, reserved names.
"""

from __future__ import annotations

import re

from jobrun.core.names import check_name, is_name
from jobrun.model.job import RESERVED

__all__ = [
    "blob_fault",
    "node_fault",
    "output_fault",
    "pattern_fault",
    "plain_fault",
    "reference_fault",
]

_NODE_PATTERN = re.compile(r"[A-Za-z0-9_.\-*?\[\]!]+")
_LONGEST = 200
_LONGEST_PATTERN = 500
"""Characters of a pattern: the time to compare it grows with their square."""
_TEXT_ONLY = "'${…}' is for the texts of 'with' and for paths"


def plain_fault(name: str) -> str | None:
    """Return what is wrong with a name of one part: of a task, column, node or job."""
    if "${" in name:
        return _TEXT_ONLY
    if len(name) > _LONGEST:
        return f"a name of more than {_LONGEST} characters"
    if not is_name(name):
        return f"{name!r} is not a name: letters, digits, '_', '.', '-', not starting with a dot"
    return None


def blob_fault(name: str) -> str | None:
    """Return what is wrong with the name of a blob, ``/`` between the levels of a tree."""
    if "${" in name:
        return _TEXT_ONLY
    if len(name) > _LONGEST:
        return f"a name of more than {_LONGEST} characters"
    return check_name(name)


def pattern_fault(pattern: str) -> str | None:
    """Return what is wrong with a name or pattern of blobs or nodes."""
    if len(pattern) > _LONGEST_PATTERN:
        return f"a pattern of more than {_LONGEST_PATTERN} characters"
    return None


def reference_fault(name: str) -> str | None:
    """Return what is wrong with ``w``, ``node:w``, ``nodes_*:w`` or ``best:w``, which is read."""
    node, colon, blob = name.rpartition(":")
    if colon and not _NODE_PATTERN.fullmatch(node):
        return f"{name!r}: {node!r} is neither a node nor a pattern of nodes"
    if colon and (fault := pattern_fault(node)):
        return fault
    if blob == "best" and not colon:
        return "'best' stands in front of a blob: best:model"
    return blob_fault(blob)


def output_fault(name: str) -> str | None:
    """Return what is wrong with the name of a blob that a task updates or returns."""
    node, _, blob = name.rpartition(":")
    if node == "best":
        return f"{name!r}: a checkpoint cannot be written to"
    if blob in RESERVED:
        return f"{blob!r} is a reserved name"
    return reference_fault(name)


def node_fault(pattern: str) -> str | None:
    """Return what is wrong with ``node:`` of a task: a name, or a pattern of names."""
    if not _NODE_PATTERN.fullmatch(pattern):
        return f"{pattern!r} is neither a node nor a pattern of nodes"
    return pattern_fault(pattern)
