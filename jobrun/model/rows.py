"""The data of a pipe and how it is read, as plain values; ``jobrun.model.job`` builds them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields

from jobrun.core.template import Template
from jobrun.model.options import Number
from jobrun.model.task import Task

__all__ = [
    "LIBRARIES",
    "NO_OPTIONS",
    "RESUMES",
    "SHARD",
    "SHUFFLE_IN_BLOCKS",
    "Batches",
    "CallSource",
    "ColumnNames",
    "Data",
    "FileOptions",
    "FileSource",
    "Reader",
    "Shuffle",
    "Workers",
]

SHARD = re.compile(r"(\w+) */ *(\w+)")
"""``i/n`` of ``shard``: two numbers, or names of vars."""

RESUMES = ("replay", "state")
"""The ways in which an iterable resumes at a place: reading again up to it, or its own state."""

SHUFFLE_IN_BLOCKS = (
    "'shuffle: {buffer: 10000}' shuffles blocks of 10000 rows, "
    "and all rows at once if there are no more"
)
"""The hint on how to shuffle a source that is read from front to back."""

LIBRARIES = ("torch", "jax")
"""The libraries of which the ``do`` steps may be given the columns."""


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Options for reading a file; ``jobrun.data.formats`` has which formats know which of these.

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


ColumnNames = Mapping[str, str | tuple[str, ...]]
"""The name that each column has elsewhere, or the names of the columns of a matrix."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """Columns of a file, or of the files of a pattern.

    ``columns`` maps a column to its name in the file, or to several names, or a pattern, whose
    columns make a matrix (empty: all).
    """

    path: str | Template
    columns: ColumnNames = field(default_factory=dict)
    options: FileOptions = NO_OPTIONS


@dataclass(frozen=True, slots=True)
class CallSource:
    """The items of a function: ``columns`` maps a column to its key in an item.

    Or to several keys, whose values make a row of a matrix.

    ``resume`` is one of ``RESUMES``.
    """

    step: Task
    columns: ColumnNames
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
class Batches:
    """The rows that make a batch and an epoch.  Numbers may be names of vars or blobs.

    ``drop_last`` leaves out a last batch of a pass that is smaller.  Without ``batches_per_epoch``
    an epoch is one pass; without ``passes`` the data never ends.
    """

    batch: Number = 1
    drop_last: bool = False
    batches_per_epoch: Number | None = None
    passes: Number | None = None


@dataclass(frozen=True, slots=True)
class Shuffle:
    """A random order in each pass: of all rows, or within blocks of ``buffer`` rows."""

    buffer: Number | None = None


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers of reading and ``map`` steps: ``threads`` threads, or ``map`` in ``processes``.

    They run up to ``ahead`` batches before the ``do`` steps (default: twice the threads or
    processes); with one thread and no ``ahead``, in turn with them.
    """

    threads: Number = 1
    ahead: Number | None = None
    processes: Number | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """The data of a pipe and how it is read.

    ``shard`` is ``i/n``, each a number or a var: every n-th row from the i-th on, counted from 0;
    or ``node``: one shard for each node of the pipe.  ``rows`` names the column whose length is the
    number of rows that the ``map`` steps leave of a batch; None: see
    ``jobrun.session.pipe.row_columns``.  ``library`` is that whose arrays the ``do`` steps are
    given; None: numpy.
    """

    data: Data = Data()
    batches: Batches = Batches()
    shuffle: Shuffle | None = None
    workers: Workers = Workers()
    shard: str | None = None
    rows: str | None = None
    library: str | None = None

    @property
    def numbers(self) -> dict[str, Number | None]:
        """The numbers by their keys in a spec (``buffer``: that of ``shuffle``)."""
        return {
            "batch": self.batches.batch,
            "batches_per_epoch": self.batches.batches_per_epoch,
            "passes": self.batches.passes,
            "threads": self.workers.threads,
            "ahead": self.workers.ahead,
            "processes": self.workers.processes,
            "buffer": None if self.shuffle is None else self.shuffle.buffer,
        }
