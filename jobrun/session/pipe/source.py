"""The input of a pipe on one node: its source, its numbers, and a reader at a position."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from jobrun.analysis.names import resolve
from jobrun.analysis.pinned import other_thread
from jobrun.core.blob_paths import Key
from jobrun.core.events import Report, Warned, ignore
from jobrun.core.position import ReaderState
from jobrun.core.rng import make_rng
from jobrun.core.template import render
from jobrun.data.call_source import ItemStream, called_source
from jobrun.data.joined import concat, zipped
from jobrun.data.opening import open_files
from jobrun.data.order import pass_order
from jobrun.data.reader import Batch, BatchReader, Limits, RowReader
from jobrun.data.source import Source, Stream, Table, TableStream
from jobrun.data.stream_reader import StreamReader
from jobrun.data.tables import ArrayTable, blob_columns
from jobrun.errors import DataError, TaskError
from jobrun.model.job import SHARD, CallSource, Data, FileSource, Job, Pipe, Task
from jobrun.session.base import Places
from jobrun.session.call import Call
from jobrun.session.call_failure import described
from jobrun.session.generators import Generators, Slot
from jobrun.session.pipe.drawing import DrawingStream
from jobrun.session.stores import CallContext, Stores
from jobrun.usercode.traces import user_trace
from jobrun.values.boxes import Value, one_element

__all__ = ["PipeReading"]


class PipeReading:
    """The source and the readers of a pipe.

    Files, and sources that functions returned, are opened once; blobs are looked up for each
    reader.  ``make_call(step, name, columns, puts_columns)`` binds a function.
    """

    def __init__(
        self,
        job: Job,
        group: str,
        pipe: Pipe,
        node: str,
        stores: Stores,
        make_call: Callable[[Task, str, Collection[str], bool], Call],
        places: Places,
    ) -> None:
        self._job = job
        self._group = group
        self._pipe = pipe
        self._node = node
        self._stores = stores
        self._make_call = make_call
        self._texts = places.texts(node)
        self._folder = places.folder
        self._made: dict[int, Source] = {}
        self._kept: StreamReader | None = None
        self._place = (group, pipe.name, node)
        data = pipe.reader.data
        self.calls = any(True for _ in data.calls())
        """Whether functions are called to read rows: these may have to wait for anything."""
        self._fixed = not any(d.blobs for d in data.leaves())

    def columns(self) -> tuple[str, ...]:
        """Return the columns of the pipe; reads them from the files if none are named."""
        data = self._pipe.reader.data
        if not data.is_open:
            return data.columns
        with self._placed():
            return self._source(data).columns

    def open(self, state: ReaderState, report: Report = ignore) -> RowReader:
        """Return the reader at a position; raises DataError for data that cannot be read."""
        with self._placed():
            return self._reader(state, report)

    def next(self, reader: RowReader) -> Batch:
        """Return the next batch of a reader; raises DataError with the place of the pipe."""
        try:
            generators = self._stores.generators
            if generators is None or not self.calls or not isinstance(reader, BatchReader):
                return reader.next()
            state = reader.state
            with generators.using(self._slot_of(state.passes, state.row)):
                return reader.next()
        except DataError as error:
            raise self._at_place(error) from error

    def next_few(self, reader: RowReader, done: int) -> list[Batch]:
        """Return one or more of the next batches; see ``RowReader.next_few``."""
        return reader.next_few(done) if reader.light else [self.next(reader)]

    def _slot_of(self, passes: int, row: int) -> Slot:
        """Return the states of the global generators for a read of the functions of the pipe."""
        generators = self._stores.generators
        assert generators is not None
        return generators.slot("source", *self._place, passes, row, kept=row == 0)

    @contextmanager
    def _placed(self) -> Iterator[None]:
        """Add the place of the pipe to an error about its data."""
        try:
            yield
        except DataError as error:
            raise self._at_place(error) from error

    def _at_place(self, error: DataError) -> DataError:
        where = error.where or self._pipe.where
        return DataError(error.message, where=where, hint=error.hint)

    # Sources.

    def _source(self, data: Data) -> Source:
        found = self._made.get(id(data))
        if found is None:
            found = self._new_source(data)
            if self._fixed or data.file is not None or data.call is not None:
                self._made[id(data)] = found
        return found

    def _new_source(self, data: Data) -> Source:
        name = f"pipe {self._pipe.name!r}"
        if data.file is not None:
            return self._files(data.file)
        if data.call is not None:
            return self._called(data.call)
        if data.zip:
            return zipped([self._source(d) for d in data.zip], name)
        if data.concat:
            return concat([self._source(d) for d in data.concat], name)
        return ArrayTable(blob_columns(data.blobs, self._blob), name)

    def _files(self, file: FileSource) -> Source:
        return open_files(self._folder / render(file.path, self._texts), file.columns, file.options)

    def _called(self, source: CallSource) -> Source:
        step = source.step
        call = self._make_call(step, f"{self._pipe.name}/{step.name}", (), False)

        def fail(error: BaseException) -> TaskError:
            text = described(error)
            message = f"{step.function_name}, which pipe {self._pipe.name!r} reads, failed: {text}"
            where = step.where or self._pipe.where
            hint = other_thread(text)
            return TaskError(message, where=where, hint=hint, trace=user_trace(error))

        def make() -> Any:
            with self._drawing("make"):
                return call.value(CallContext())

        with self._drawing("open"):
            by_state = source.resume == "state"
            return called_source(make, source.columns, step.function_name, fail, by_state=by_state)

    def _drawing(self, what: str) -> AbstractContextManager[None]:
        """Let a function that makes a source draw the same from the global generators each time."""
        generators = self._stores.generators
        if generators is None:
            return nullcontext()
        return generators.using(generators.slot(what, *self._place, kept=False))

    def _blob(self, name: str) -> Value:
        return self._stores.get(self._key(name))

    def _key(self, name: str) -> Key:
        return resolve(self._job, self._node, name).keys[0]

    # Numbers.

    def number(self, field: str) -> int | None:
        """Return a whole number of the reader, which may be given as the name of a var or blob."""
        given = self._pipe.reader.numbers[field]
        return None if given is None else self._whole(field, given)

    def _whole(self, field: str, given: Any) -> int:
        value: Any = given
        if isinstance(given, str):
            source = resolve(self._job, self._node, given)
            is_var = source.form == "var"
            value = source.value if is_var else one_element(self._stores.get(source.keys[0]))
        whole = isinstance(value, float) and value.is_integer()
        if isinstance(value, bool) or not (isinstance(value, int) or whole):
            raise DataError(
                f"pipe {self._pipe.name!r}: {field} is {value!r}, but must be a whole number"
            )
        return int(value)

    def _shard(self) -> tuple[int, int]:
        text = self._pipe.reader.shard
        if text is None:
            return 0, 1
        if text == "node":
            nodes = self._job.nodes_of(self._pipe)
            return nodes.index(self._node), len(nodes)
        match = SHARD.fullmatch(text)
        assert match is not None
        index, count = (
            self._whole("shard", int(p) if p.isdecimal() else p) for p in match.groups()
        )
        return index, count

    def _limits(self) -> Limits:
        reader = self._pipe.reader
        return Limits(
            batch=self.number("batch") or 0,
            shuffle=reader.shuffle is not None,
            drop_last=reader.batches.drop_last,
            batches_per_epoch=self.number("batches_per_epoch"),
            passes=self.number("passes"),
            buffer=self.number("buffer"),
            shard=self._shard(),
        )

    # Readers.

    def _reader(self, state: ReaderState, report: Report) -> RowReader:
        source, limits = self._source(self._pipe.reader.data), self._limits()
        if isinstance(source, Table) and limits.buffer is None:
            return self._table_reader(source, limits, state)
        kept = self._kept
        if kept is not None and self._fixed and kept.limits == limits and kept.state == state:
            kept.begin()
            return kept
        if kept is not None:
            kept.close()
        stream = source if isinstance(source, Stream) else TableStream(_table(source))
        if self._stores.generators is not None and self.calls:
            stream = self._with_generators(stream, self._stores.generators, state)
        name = self._pipe.name

        def slow(text: str) -> None:
            report(Warned(f"pipe {name!r}: {text}"))

        self._kept = StreamReader(name, stream, limits, state, self._rng, slow, self._rewritten())
        return self._kept

    def _with_generators(
        self, stream: Stream, generators: Generators, state: ReaderState
    ) -> Stream:
        """Return a stream whose functions draw from global generators of their own."""
        before = self._kept

        def slot_of(row: int) -> Slot:
            reader = self._kept
            if reader is None or reader is before:  # it opens, and is not there yet
                return self._slot_of(state.passes, row)
            return self._slot_of(reader.state.passes, row)

        replayed = isinstance(stream, ItemStream) and not stream.by_state
        return DrawingStream(stream, generators, slot_of, replayed=replayed)

    def _rewritten(self) -> tuple[str, ...]:
        """Return the columns that are blobs which tasks of the epoch write."""
        by_epoch = self._stores.written.by_epoch
        blobs = self._pipe.reader.data.blob_names()
        return tuple(column for column, name in blobs if by_epoch(self._key(name)))

    def _table_reader(self, table: Table, limits: Limits, state: ReaderState) -> BatchReader:
        return BatchReader(
            self._pipe.name,
            table,
            limits,
            state,
            lambda pass_: pass_order(table.rows, self._rng(pass_)),
            self._rewritten(),
        )

    def _rng(self, *number: int) -> Any:
        """Return the generator of a pass, or of a block of it.

        The shards of nodes share one order.  That of a job without nodes is the same with a shard
        and without one, which may come or go within a pass.
        """
        shared = self._job.multi_node and self._pipe.reader.shard is not None
        node = "" if shared else self._node
        return make_rng(self._job.seed, "shuffle", self._group, self._pipe.name, node, *number)


def _table(source: Source) -> Table:
    assert isinstance(source, Table)
    return source
