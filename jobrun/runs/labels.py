"""Tags and a note that a user gives a run, in ``labels.json`` of its directory.

They stand apart from run.json, which the process of a run replaces: a running run can be tagged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobrun.core.json_forms import Form, list_of, misfit, named, text
from jobrun.core.suggestions import did_you_mean_or_all
from jobrun.errors import JobrunError, UsageError
from jobrun.storage.bounded_json import parse_json
from jobrun.storage.regular_file import read_run_file

if TYPE_CHECKING:
    from jobrun.runs.rundir import RunDir

__all__ = ["LABELS", "Labels", "read_labels", "with_tags", "write_labels"]

LABELS = "labels.json"
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,63}")
_MOST = 1 << 16
"""Bytes of the file."""
_LONGEST_NOTE = 4000
_FORMS: Mapping[str, Form] = {"tags": list_of(named(_TAG.pattern)), "note": text}


@dataclass(frozen=True, slots=True)
class Labels:
    """The tags of a run, each once in the order in which they were given, and its note."""

    tags: tuple[str, ...] = ()
    note: str = ""

    def has(self, word: str) -> bool:
        """Return whether a tag is ``word``, or the note contains it in any case."""
        return word in self.tags or word.casefold() in self.note.casefold()


def read_labels(run: RunDir) -> Labels:
    """Return the labels of a run; none where there are none or they cannot be read."""
    try:
        data = parse_json(read_run_file(run.path / LABELS, _MOST))
    except (OSError, ValueError, JobrunError):
        return Labels()
    if not isinstance(data, dict) or misfit(data, _FORMS, {}):
        return Labels()
    return Labels(tuple(data["tags"]), data["note"])


def write_labels(run: RunDir, labels: Labels) -> None:
    """Replace the labels of a run, durably.  Raises UsageError for a note that is too long."""
    if len(labels.note) > _LONGEST_NOTE:
        raise UsageError(f"the note has {len(labels.note)} characters, at most {_LONGEST_NOTE}")
    values = {"tags": labels.tags, "note": labels.note}
    text = json.dumps(values, indent=1, ensure_ascii=False) + "\n"
    run.put(LABELS, text.encode("utf-8", "replace"))


def with_tags(labels: Labels, tags: Iterable[str], *, remove: bool = False) -> Labels:
    """Return labels with tags added, or removed.  Raises UsageError for what cannot be a tag."""
    tags = list(dict.fromkeys(tags))
    for tag in tags:
        if not _TAG.fullmatch(tag):
            hint = "letters, digits and _ . + = -, at most 64, such as good or paper-2"
            raise UsageError(f"{tag!r} cannot be a tag", hint=hint)
    if remove:
        if missing := [tag for tag in tags if tag not in labels.tags]:
            hint = did_you_mean_or_all(missing[0], labels.tags, "it has") or "it has none"
            raise UsageError(f"the run has no tag {missing[0]!r}", hint=hint)
        return replace(labels, tags=tuple(t for t in labels.tags if t not in tags))
    return replace(labels, tags=(*labels.tags, *(t for t in tags if t not in labels.tags)))
