"""The ``map`` steps of a pipe on a batch, here or in a worker process.

A column is dropped as soon as nothing reads it any more.  So the batches that are ahead hold no
more than the ``do`` steps will read, and the memory of an input, still in the caches, is that of
the next batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from jobrun.core.blob_paths import covers
from jobrun.core.current_task import IN_MAP, enter_batch
from jobrun.data.reader import Batch
from jobrun.errors import TaskError
from jobrun.model.job import Job, Pipe
from jobrun.session.batch_columns import as_library, make_private, take_columns
from jobrun.session.call import Call
from jobrun.session.pipe.row_columns import row_columns
from jobrun.session.stores import CallContext
from jobrun.session.workers.pool import WorkerPool
from jobrun.values.boxes import Value

__all__ = ["MapSteps", "Prepared"]

Prepared = tuple[CallContext, int]
"""A batch for the ``do`` steps: its columns, and the number of rows left in it."""


class MapSteps:
    """The bound ``map`` steps of a pipe on one node.

    ``columns`` are those of the source, ``read`` those that the ``do`` steps read, ``once`` those
    of which they need one object only.
    """

    def __init__(
        self,
        job: Job,
        pipe: Pipe,
        calls: Sequence[Call],
        columns: Sequence[str],
        read: Sequence[str],
        once: Collection[str],
    ) -> None:
        self._job = job
        self._pipe = pipe
        self._calls = calls
        self._row_columns = row_columns(pipe, columns)
        self.wanted = (*read, *self._row_columns.names)
        """The columns that are read after the steps."""
        self._once = once
        self._library = pipe.reader.library
        self._unread, *self._dropped = self._drops(columns)
        self._dead = [name for names in (self._unread, *self._dropped) for name in names]

    def _drops(self, columns: Sequence[str]) -> list[list[str]]:
        """Return the columns that nothing reads after the reader, and after each step."""
        found, present = [], dict.fromkeys(columns)
        for number in range(len(self._pipe.map) + 1):
            later = [a.name for step in self._pipe.map[number:] for a in step.inputs]
            names = [*self.wanted, *later]
            dead = [c for c in present if not any(covers(c, name) for name in names)]
            found.append(dead)
            present = dict.fromkeys(c for c in present if c not in dead)
            if number < len(self._pipe.map):
                present |= dict.fromkeys(self._pipe.map[number].outputs.names)
        return found

    def run(self, epoch: int, number: int, batch: Batch) -> Prepared:
        """Run the steps on a batch, here; may be called from several threads at once."""
        moment = CallContext(epoch, number, take_columns(batch.columns))
        columns = moment.columns
        if self._unread:
            _drop(columns, self._unread)
        make_private(columns.values())
        if self._calls:
            enter_batch(IN_MAP)
            for call, dropped in zip(self._calls, self._dropped, strict=True):
                for (_, column), value in call.run(moment):
                    make_private([value])
                    columns[column] = value
                    del value  # else it is held while the next step runs
                if dropped:
                    _drop(columns, dropped)
        return moment, self._finish(moment, number, batch.rows)

    def run_group(
        self, epoch: int, group: Sequence[tuple[int, Batch]], workers: WorkerPool
    ) -> Iterator[Prepared]:
        """Run the steps on batches in a worker process; yield them in order."""
        moments = [CallContext(epoch, n, take_columns(batch.columns)) for n, batch in group]
        enter_batch(IN_MAP)
        for (number, batch), moment in zip(group, workers.run(moments), strict=True):
            _drop(moment.columns, self._dead)
            make_private(moment.columns.values())
            yield moment, self._finish(moment, number, batch.rows)

    def _finish(self, moment: CallContext, number: int, rows: int) -> int:
        """Make of the columns what ``do`` steps are given; return how many rows are left."""
        if self._calls:
            try:
                rows = self._row_columns.left(moment.columns, rows)
            except TaskError as error:
                raise self._placed(error, number) from error
        if self._library is not None:
            as_library(moment.columns, self._library, self._once)
        return rows

    def _placed(self, error: TaskError, number: int) -> TaskError:
        """Return the error of a batch as a whole, with pipe, node, batch and place."""
        call, pipe = self._calls[0], self._pipe
        at = f" on node {call.node!r}" if self._job.multi_node else ""
        text = f"pipe {pipe.name!r} of group {call.group!r}{at} in batch {number + 1}: "
        where = pipe.mark("rows", "map", "pipe")
        return type(error)(text + error.message, where=where, hint=error.hint)


def _drop(columns: dict[str, Value], names: Iterable[str]) -> None:
    for name in names:
        columns.pop(name, None)
