"""Messages between the client and the workers, and between workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from jobrun.analysis.accesses import Reduced
from jobrun.core.blob_paths import Key
from jobrun.core.events import Event
from jobrun.core.position import PipeState, Position, ReaderState
from jobrun.errors import WorkerLostError
from jobrun.session.base import Places
from jobrun.session.dask.shared_content import MemoryFile
from jobrun.values.boxes import Box, Tree, Value, leaves
from jobrun.values.buffers import copy_array
from jobrun.values.reduction import Range

__all__ = [
    "Answer",
    "Applied",
    "Message",
    "Missing",
    "News",
    "Outcome",
    "Peer",
    "Post",
    "PrintedText",
    "RunRequest",
    "Setup",
    "StepMessage",
    "Unreached",
    "arrived",
    "arrived_content",
    "has_opaque",
    "named",
]


@dataclass(frozen=True, slots=True)
class Missing:
    """Replaces a value that could not be sent: the error for its reader."""

    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """A message from one worker to another in a run of a group.

    ``kind``: blobs for the copies of a task (an ``input``), what a unit has written on the receiver
    (an ``output``), or that a unit has come to its ``end``.  ``run`` identifies the run; ``unit``
    is the name of the task, or the key of the unit.  ``parts`` are blobs of several nodes reduced
    as far as the sender has them.  ``count``: so many batches lie before it, see ``BatchCounts``;
    where it is ``held_in`` a turn because of them, the message has no values.
    """

    run: int
    unit: str
    kind: Literal["input", "output", "end"]
    values: Mapping[Key, Value | Missing] = field(default_factory=dict)
    parts: Mapping[Reduced, Mapping[Range, Value]] = field(default_factory=dict)
    count: int = 0
    held_in: int = 0


@dataclass(frozen=True, slots=True)
class StepMessage:
    """A message of a pipe in lock step, to its copies on another worker: see ``pipe/lock_step``.

    ``number`` counts those of the task in a ``turn``, ``sender`` is the key of the sending actor.
    ``memory`` is where it puts large arrays; ``sees``: the sender sees that of the receiver.
    """

    turn: int
    task: str
    number: int
    sender: str
    content: Any
    memory: MemoryFile | None = None
    sees: bool = False


Post = Callable[[str, Message | StepMessage], None]
"""Sends a message to a worker, soon."""


@dataclass(frozen=True, slots=True)
class Peer:
    """An actor and its nodes, on the worker at an address."""

    address: str
    key: str
    nodes: tuple[str, ...]

    @property
    def described(self) -> str:
        """``the worker tcp://10.0.0.1:1234 of node 'a'``."""
        return f"the worker {self.address} of {named(self.nodes)}"


_NAMED = 4
"""Nodes of a worker that a message names."""


def named(nodes: Sequence[str]) -> str:
    """Return the names of nodes in words: ``node 'a'``, ``nodes 'a', 'b' and 7 more``."""
    names = ", ".join(map(repr, nodes[:_NAMED]))
    more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    return f"node{'s' if len(nodes) > 1 else ''} {names}{more}"


@dataclass(frozen=True, slots=True)
class Setup:
    """The configuration of a worker.

    ``job`` is packed, so that one that cannot be unpacked is an error with a name.  ``nodes`` are
    those of the worker, ``peers`` all workers by the keys of their actors.  ``code`` are the
    checksums of the files of the user's code, ``archive`` the files themselves for a worker that
    does not see them.
    """

    job: bytes
    places: Places
    nodes: tuple[str, ...]
    threads: int
    peers: Mapping[str, Peer]
    code: Mapping[str, str]
    version: str
    archive: bytes | None = None


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A request to a worker to run its part of a group from ``position`` on.

    ``batches``: nothing begins behind as many, see ``Control``.  ``watched`` are the scalars to
    return at the end.  ``forget``: the scratch of the epoch before is dropped first.
    """

    run: int
    group: str
    position: Position
    batches: int | None = None
    every_task: bool = False
    watched: tuple[str, ...] = ()
    forget: bool = False


@dataclass(frozen=True, slots=True)
class Applied:
    """The number of batches of a run that lie one behind another on a worker."""

    batches: int


@dataclass(frozen=True, slots=True)
class PrintedText:
    """Printed text of a task, of stdout or (``is_error``) stderr."""

    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Unreached:
    """A message has not reached another worker, which may wait for it: the run cannot continue.

    ``address`` is that worker's, if this may be the fault of the way between the two.
    """

    error: WorkerLostError
    address: str = ""


News = Event | Applied | PrintedText | Unreached


@dataclass(frozen=True, slots=True)
class Outcome:
    """The position that a worker's part of a group has reached.

    ``tasks`` are the keys of the worker's own units that are finished, ``pipes`` and ``readers``
    those of its nodes.  ``left`` are the units, also of other workers, for which it has something
    left to do; ``held``: all of it lies behind the batches that may be applied.  ``edges`` are
    pairs of units, the second of which waits for the first on this worker because they use one
    object; given where something is left.  ``owes``: what cut pipes have written on other workers
    has not arrived there yet.  ``seconds`` are of the slowest units, ``spent`` of all of each node.
    ``scalars`` are the watched ones; for a blob that is not a scalar, the error that says so.
    ``news`` is what was not yet sent, the answer of number ``sequence``.
    """

    tasks: tuple[str, ...]
    pipes: Mapping[str, PipeState]
    readers: Mapping[str, ReaderState]
    left: frozenset[str] = frozenset()
    held: bool = False
    edges: frozenset[tuple[str, str]] = frozenset()
    owes: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)
    scalars: Mapping[str, Any] = field(default_factory=dict)
    news: tuple[News, ...] = ()
    sequence: int = 0
    error: BaseException | None = None
    spent: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a call to a worker: a value, or an error of its own."""

    value: Any = None
    error: BaseException | None = None


def arrived(value: Value) -> Value:
    """Return a value that came over the network as adopted ones are: read-only, and aligned.

    It has no version: that of one node's blob is not another's.  Tied arrays stay tied.
    """
    return _arrived(value, {})


def arrived_content(content: Any) -> Any:
    """Return the content of a StepMessage, of which values are as adopted ones."""
    if isinstance(content, Mapping):
        return {key: arrived_content(item) for key, item in content.items()}
    return arrived(content) if isinstance(content, Box | Tree) else content


def _arrived(value: Value, tied: dict[int, Box]) -> Value:
    if isinstance(value, Tree):
        return value.replaced({key: _arrived(item, tied) for key, item in value.items.items()})
    if value.kind != "array":
        return value.unsaved(value.value)
    if id(value) in tied:
        return tied[id(value)]
    array = value.value if value.value.flags.aligned else copy_array(value.value)
    array.setflags(write=False)
    box = value.unsaved(np.asarray(array))
    if value.tied:
        box.tied = True
        tied[id(value)] = box
    return box


def has_opaque(value: Value) -> bool:
    """Return whether a value contains something that can only be where it was made."""
    return any(box.kind in ("opaque", "live") for _, box in leaves(value))
