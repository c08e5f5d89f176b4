"""The data of a pipe and how it is read, as plain values; ``jobrun.model.job`` builds them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar

from jobrun.core.template import Template
from jobrun.model.options import Number
from jobrun.model.task import Task

__all__ = [
    "NO_OPTIONS",
    "RESUMES",
    "SHARD",
    "CallSource",
    "Data",
    "FileOptions",
    "FileSource",
    "Reader",
]

SHARD = re.compile(r"(\w+) */ *(\w+)")
"""``i/n`` of ``shard``: two numbers, or names of vars."""

RESUMES = ("replay", "state")
"""The ways in which an iterable resumes at a place: reading again up to it, or its own state."""


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How a file is read; ``jobrun.data.formats`` has which formats know which of these.

    ``types`` maps columns to their type: int, float or text.  ``cell_limit`` is the most characters
    of a cell; None: the default of the format.
    """

    types: Mapping[str, str] = field(default_factory=dict)
    cell_limit: int | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the options that are given."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) not in (None, {}))


NO_OPTIONS = FileOptions()


@dataclass(frozen=True, slots=True)
class FileSource:
    """Columns of a file, or of the files of a pattern.

    ``columns`` maps a column to its name in the file, or to a pattern whose columns make a matrix
    (empty: all).
    """

    path: str | Template
    columns: Mapping[str, str] = field(default_factory=dict)
    options: FileOptions = NO_OPTIONS


@dataclass(frozen=True, slots=True)
class CallSource:
    """The items of a function: ``columns`` maps a column to its key in an item.

    ``resume`` is one of ``RESUMES``.
    """

    step: Task
    columns: Mapping[str, str]
    resume: str = "replay"


@dataclass(frozen=True, slots=True)
class Data:
    """A source of rows: exactly one of ``blobs`` (column to blob), ``file``, ``call``.

    Or other sources joined: ``zip`` puts columns side by side, ``concat`` rows one after another.
    """

    blobs: Mapping[str, str] = field(default_factory=dict)
    file: FileSource | None = None
    call: CallSource | None = None
    zip: tuple[Data, ...] = ()
    concat: tuple[Data, ...] = ()

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms that are given; there must be exactly one."""
        given = {
            "from": self.blobs,
            "file": self.file,
            "call": self.call,
            "zip": self.zip,
            "concat": self.concat,
        }
        return tuple(name for name, value in given.items() if value)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are known without reading the data; see ``is_open``."""
        if self.zip:
            return tuple(c for d in self.zip for c in d.columns)
        if self.concat:
            return next((d.columns for d in self.concat if d.columns), ())
        source = self.file or self.call
        return tuple(self.blobs if source is None else source.columns)

    @property
    def is_open(self) -> bool:
        """Whether there may be further columns: those of a file without named columns."""
        if self.concat:
            return all(d.is_open for d in self.concat)
        return any(d.file is not None and not d.file.columns for d in self.leaves())

    def leaves(self) -> Iterator[Data]:
        """Yield the sources that are not joins."""
        for data in (*self.zip, *self.concat):
            yield from data.leaves()
        if not self.zip and not self.concat:
            yield self

    def calls(self) -> Iterator[Task]:
        """Yield the tasks of the sources that are functions."""
        return (d.call.step for d in self.leaves() if d.call is not None)

    def blob_names(self) -> Iterator[tuple[str, str]]:
        """Yield every column that is a blob, with the blob."""
        return ((c, b) for d in self.leaves() for c, b in d.blobs.items())


@dataclass(frozen=True, slots=True)
class Reader:
    """The data of a pipe and how it is read.  Numbers may be names of vars or blobs.

    ``shuffle`` is a permutation of each pass, or within blocks of ``buffer`` rows.  ``shard`` is
    ``i/n``, each a number or a var: every n-th row from the i-th on, counted from 0; or ``node``:
    one shard for each node of the pipe.  Without ``batches_per_epoch`` an epoch is one pass;
    without ``passes`` the data never ends.  Reading and ``map`` steps run on ``threads`` threads,
    up to ``ahead`` batches before the ``do`` steps (default: twice the threads); with one thread
    and no ``ahead``, in turn with them.  With ``processes``, the ``map`` steps run in that many
    worker processes instead, likewise ahead.  ``rows`` names the column whose length is the number
    of rows that the ``map`` steps leave of a batch; None: see ``jobrun.session.pipe.row_columns``.
    """

    data: Data = Data()
    batch: Number = 1
    shuffle: bool = False
    drop_last: bool = False
    batches_per_epoch: Number | None = None
    passes: Number | None = None
    threads: Number = 1
    buffer: Number | None = None
    shard: str | None = None
    ahead: Number | None = None
    processes: Number | None = None
    rows: str | None = None

    NUMBERS: ClassVar[tuple[str, ...]] = (
        "batch",
        "batches_per_epoch",
        "passes",
        "threads",
        "ahead",
        "processes",
        "buffer",
    )
