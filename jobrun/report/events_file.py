"""``events.jsonl``: every event of every attempt, one JSON object per line.

A line is appended by one write.  A crash can leave a torn last line, which is cut at the next
start.  While the disk is full no line can be written; the first one after them says how many are
missing.  Progress within an epoch is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from jobrun.core.events import PASSING, Event, Warned
from jobrun.core.json_forms import (
    Form,
    list_of,
    mapping_of,
    misfit,
    optional,
    pair_of,
    record_of,
    scalar,
    seconds,
    text,
    time,
    whole,
)
from jobrun.report.append_file import Appender
from jobrun.report.formatting import json_line, plural
from jobrun.storage.bounded_json import parse_json
from jobrun.storage.regular_file import open_run_file, refuse_long_line, whole_lines

__all__ = ["EventReader", "EventsFile", "read_events", "runs_ended", "tell_events", "undoes"]


class EventsFile:
    """Appends events to a file."""

    name = "events.jsonl"

    def __init__(self, path: Path) -> None:
        self._file = Appender(path)
        self._missing = 0

    def __call__(self, event: Event) -> None:
        """Append ``event`` with the time (UTC); raises OSError if that fails."""
        if isinstance(event, PASSING):
            return
        try:
            self._file.append(self._said_missing() + _line(event))
        except OSError:
            self._missing += 1
            raise
        self._missing = 0

    def _said_missing(self) -> bytes:
        """Return the line that reports how many lines are missing before it; empty if none is."""
        if not self._missing:
            return b""
        return _line(Warned(f"{plural(self._missing, 'event')} could not be written here"))

    def close(self) -> None:
        """Make all lines durable, and close the file; raises OSError if that fails."""
        if self._missing:
            with suppress(OSError):  # the failure was reported
                self._file.append(self._said_missing())
        try:
            self._file.sync()
        finally:
            self._file.close()


def _line(event: Event) -> bytes:
    return json_line(event.to_json()).encode("ascii")


_LONGEST = 16 << 20
"""Bytes of a line: more than any event has."""
_MARK = b'"event": "'
_STARTED, _ENDED = _MARK + b"RunS", _MARK + b"RunE"
_CHUNK = 1 << 20
_BLOCK = 500
"""Lines that are parsed with one call, which takes a third of the time of a call for each."""

_TIME = {"time": time}
_EPOCHS: Mapping[str, Form] = {"epoch": whole, "checkpoint": optional(whole)}
_TASK: Mapping[str, Form] = {"group": text, "epoch": whole, "task": text, "node": text}
_FORMS: Mapping[str, Mapping[str, Form]] = {
    "RunStarted": {**_TIME, **_EPOCHS, "attempt": whole, "session": text},
    "RunWentBack": {**_TIME, **_EPOCHS, "message": text},
    "EpochFinished": {
        **_TIME,
        "epoch": whole,
        "seconds": seconds,
        "elapsed": seconds,
        "metrics": mapping_of(scalar),
    },
    "GroupStarted": {**_TIME, "group": text, "epoch": whole},
    "GroupFinished": {
        **_TIME,
        "group": text,
        "epoch": whole,
        "seconds": seconds,
        "slowest": list_of(pair_of(text, seconds)),
    },
    "TaskFinished": {**_TIME, **_TASK, "seconds": seconds},
    "TaskFailed": _TASK,
    "StepLogged": {
        "task": text,
        "node": text,
        "epoch": whole,
        "batch": whole,
        "values": mapping_of(scalar),
        "batches": optional(whole),
    },
    "CheckpointSaved": {
        **_TIME,
        "id": whole,
        "epoch": whole,
        "seconds": seconds,
        "stall": seconds,
    },
    "CheckpointFailed": {**_TIME, "id": whole, "message": text},
    "CheckpointSkipped": {"id": whole, "reason": text},
    "CheckpointLoaded": {"epoch": whole, "differences": list_of(text)},
    "Uploaded": {"place": text},
    "Warned": {"message": text},
    "RunEnded": {
        **_TIME,
        "outcome": text,
        "reason": text,
        "exit_code": whole,
        "seconds": seconds,
        "saved": whole,
        "checkpoint_seconds": seconds,
        "ran": whole,
    },
}
"""The fields that are read of each event; an older jobrun did not write those of ``_MAYBE``."""

_MAYBE: Mapping[str, Mapping[str, Form]] = {
    "RunStarted": {"only": text, "spec": text, "code": text},
    "RunEnded": {
        "only": text,
        "epoch": whole,
        "slowest": optional(record_of({"node": text, "seconds": seconds, "others": seconds})),
    },
}


def read_events(path: Path, kinds: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the events of ``kinds`` (names of classes) in a file, oldest first.

    Where both are among them, the start of a group is left out if its end is the next: of a run of
    many epochs they are a third of all.  Torn lines, and lines of another form, are skipped.
    Raises DamagedError, naming the file, if it is a link or not a regular file, or has a line
    longer than that of any event.
    """
    names = {kind.encode("ascii") for kind in kinds}
    try:
        file = open_run_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    with file:
        lines = _of_kinds(whole_lines(file, path, _LONGEST), names)
        while block := list(islice(lines, _BLOCK)):
            for event in _parsed(block):
                if isinstance(event, dict) and event.get("event") in kinds and _is_event(event):
                    yield event


def runs_ended(path: Path) -> bool:
    """Return whether each start of a run in a file has its end, as far as can be seen unparsed.

    Raises as ``read_events``.
    """
    starts = ends = 0
    try:
        file = open_run_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    with file:
        before, unended = b"", 0
        while chunk := file.read(_CHUNK):
            unended = unended + len(chunk) if b"\n" not in chunk else 0
            refuse_long_line(path, unended, _LONGEST)
            text = before + chunk
            starts += text.count(_STARTED)
            ends += text.count(_ENDED)
            before = text[-len(_STARTED) + 1 :]
    return starts == ends


def _of_kinds(lines: Iterable[bytes], names: Collection[bytes]) -> Iterator[bytes]:
    """Yield the lines of some events, without starts of groups that end right after."""
    started = b""
    for line in lines:
        kind = _kind(line)
        if kind not in names:
            continue
        if started and kind != b"GroupFinished":
            yield started
        started = line if kind == b"GroupStarted" else b""
        if not started:
            yield line
    if started:
        yield started


class EventReader(Protocol):
    """Something that is made from the events of a run."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The events that it needs: names of classes."""

    def see(self, event: Mapping[str, Any]) -> None:
        """Take in the next event."""


def tell_events(path: Path, readers: Sequence[EventReader]) -> None:
    """Pass each event of a file to the readers that need it; the file is read once for all.

    Raises as ``read_events``.
    """
    calls: dict[str, list[Callable[[Mapping[str, Any]], None]]] = {}
    for reader in readers:
        for kind in reader.kinds:
            calls.setdefault(kind, []).append(reader.see)
    for event in read_events(path, tuple(calls)):
        for see in calls[event["event"]]:
            see(event)


def _kind(line: bytes) -> bytes:
    """Return the name of the event in a line, without parsing it; empty if there is none."""
    start = line.find(_MARK) + len(_MARK)
    return line[start : line.find(b'"', start)] if start >= len(_MARK) else b""


def _parsed(lines: Sequence[bytes]) -> list[Any]:
    """Return the values of lines, without those that are torn."""
    try:
        values = parse_json(b"[" + b",".join(lines) + b"]", max_depth=None)
        if len(values) == len(lines):
            return list(values)
    except ValueError:  # one of them is torn
        pass
    found = []
    for line in lines:
        with suppress(ValueError):
            found.append(parse_json(line))
    return found


def _is_event(event: dict[str, Any]) -> bool:
    kind = event["event"]
    return not misfit(event, _FORMS.get(kind, {}), _MAYBE.get(kind))


def undoes(event: Mapping[str, Any]) -> bool:
    """Return whether the start of a run, or a checkpoint loaded, undoes all later epochs.

    A run that resumes undoes none before its checkpoint is loaded: if it fails before, they stay.
    """
    return event["event"] != "RunStarted" or event["checkpoint"] is None
