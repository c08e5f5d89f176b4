"""The files of a part: directory, metadata and chunks of each entry, written or linked.

Chunks are submitted to the threads as soon as their entry is reached, so that the disk works while
the directories and links of later entries are made.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jobrun.checkpoint.block_checksums import BLOCK
from jobrun.checkpoint.chunk_grid import Chunk
from jobrun.checkpoint.chunk_links import ChunkLinks, EarlierLeaf, is_fine, plan_chunks
from jobrun.checkpoint.chunk_sums import ChunkSums, described
from jobrun.checkpoint.codecs import choose
from jobrun.checkpoint.dtypes import DType, swapped
from jobrun.checkpoint.hardlinks import Sources
from jobrun.checkpoint.manifest import CHUNK_TAIL, META, Entry, File
from jobrun.checkpoint.zarr_metadata import Form, store, tree_form
from jobrun.core import crc32c
from jobrun.model.policy import Compress
from jobrun.storage.fs import Buffer, Fs, FsError
from jobrun.storage.threads import LARGE
from jobrun.values.adapters.base import Note
from jobrun.values.boxes import Box

__all__ = ["Item", "Writer"]

Array = npt.NDArray[Any]


class Item(NamedTuple):
    """An entry to write: ``box`` is None for a tree; ``key`` and ``note`` as in ``Entry``.

    ``same_as`` too, of trees: ties of arrays are found as they are written.
    """

    path: str
    kind: str
    box: Box | None = None
    key: str | None = None
    note: Note | None = None
    same_as: str | None = None


class _Started(NamedTuple):
    """An entry being written: ``files`` are done, or futures of threads that write them."""

    item: Item
    form: Form
    version: int | None
    files: list[File | Future[File]]
    links: ChunkLinks | None = None

    def entry(self) -> Entry:
        """Return the entry of the manifest, once all files are written."""
        files = [file if isinstance(file, File) else file.result() for file in self.files]
        form, version = self.form, self.version
        path, _, box, key, note, same_as = self.item
        same = None if self.links is None else self.links.whole(files[1:])
        if same is not None and box is not None and same.version is not None:
            # The value is that of the earlier checkpoint, bit for bit, though it was made again.
            version = box.version = same.version
        return Entry(
            path,
            form.kind,
            tuple(files),
            form.dtype,
            form.shape,
            version,
            same_as,
            key=key,
            note=note,
            value=form.value,
            codec=None if form.codec is None else form.codec.to_json(),
        )

    @property
    def linked(self) -> int:
        """Bytes of the chunk files that are links to those of earlier checkpoints."""
        return 0 if self.links is None else sum(file.size for file, _ in self.links.found)


class _Tie(NamedTuple):
    """A further place of the array at ``first``."""

    item: Item
    first: str


class Writer:
    """Writes or links the files of a part; ``linked`` counts the bytes of the linked ones.

    A tied array is written or linked once; its other places share those files.  With ``sync`` each
    file is durable once it is written (its name is not).
    """

    def __init__(
        self,
        fs: Fs,
        root: str,
        node: str,
        id: int,
        sources: Sources,
        compress: Sequence[Compress],
        *,
        sync: bool,
    ) -> None:
        self._fs = fs
        self._node = node
        self._base = f"{root}/{node}"
        self._id = id
        self._sources = sources
        self._compress = compress
        self._sync = sync
        self._started: list[Entry | _Started | _Tie] = []
        # The first place of each tied array, by its blob and box.
        self._first: dict[tuple[str, int], str] = {}
        # The place of each ``zarr.json``, and how many of its bytes are linked: all or none.
        self._metas: dict[bytes, tuple[str, int]] = {}
        self._can_link = True
        self.linked = 0

    def folder(self, path: str) -> str:
        """Return the directory of an entry."""
        return f"{self._base}/{path}" if path else self._base

    def begin(self, pool: ThreadPoolExecutor, items: Sequence[Item]) -> None:
        """Start to write the next entries."""
        self._started += [self._begin(pool, item) for item in items]

    def end(self) -> list[Entry]:
        """Return the entries in order, once all are written."""
        written: dict[str, Entry] = {}
        for started in self._started:
            if isinstance(started, _Tie):
                entry = self._tie(started.item, written[started.first])
            elif isinstance(started, Entry):
                entry = started
            else:
                entry = started.entry()
                self.linked += started.linked
            written[entry.path] = entry
        return [*written.values()]

    def _begin(self, pool: ThreadPoolExecutor, item: Item) -> Entry | _Started | _Tie:
        """Link an entry, or start to write it."""
        path, kind, box = item.path, item.kind, item.box
        folder = self.folder(path)
        self._fs.mkdir(folder)
        if box is not None and box.tied:
            first = self._first.setdefault((path.partition("/")[0], id(box)), path)
            if first != path:
                return _Tie(item, first)
        if box is None:
            form = tree_form(kind)
            return _Started(item, form, None, [self._meta(pool, path, folder, form)])
        entry = self._link(item)
        if entry is not None:
            return entry
        rule = choose(self._compress, self._node, path)
        form, array = store(box, rule)
        links = None
        if array is not None and (earlier := self._earlier(path, form)):
            form = plan_chunks(box, rule, earlier, self._sources.fine)
            links = ChunkLinks(self._fs, earlier, self._sources.fine, form)
        files = [self._meta(pool, path, folder, form)]
        pooled = self._sync or form.codec is not None or form.chunk_size >= LARGE
        if array is not None:
            write = partial(self._write_chunk, folder, form, array, links)
            files += [pool.submit(write, c) if pooled else write(c) for c in form.chunks]
        version = self._id if box.version < 0 else box.version
        started = _Started(item, form, version, files, links)
        return started if pooled or links is not None else started.entry()

    def _earlier(self, path: str, form: Form) -> Sequence[EarlierLeaf]:
        """Return the arrays of earlier checkpoints that may hold chunks of this one."""
        if not self._can_link:
            return ()
        return self._sources.arrays(path, form)

    # Links.

    def _link(self, item: Item) -> Entry | None:
        """Link the files of an unchanged leaf; return None if it has changed or links fail."""
        path, kind, box = item.path, item.kind, item.box
        found = self._sources.unchanged(path, kind, box.version) if box is not None else None
        if found is None:
            return None
        (source, entry), folder = found, self.folder(path)
        made = [
            file
            for file in entry.files
            if self._share(f"{source}/{path}/{file.name}", f"{folder}/{file.name}", file)
        ]
        if len(made) == len(entry.files):
            self.linked += sum(file.size for file in made)
            # Its ties there need not be its ties here.
            return entry._replace(same_as=None, key=item.key, note=item.note)
        for file in made:
            self._fs.unlink(f"{folder}/{file.name}")
        return None

    def _tie(self, item: Item, first: Entry) -> Entry:
        """Link the files of a tied array to another place; copy them if links fail."""
        path, source, target = item.path, self.folder(first.path), self.folder(item.path)
        for file in first.files:
            if self._try_link(f"{source}/{file.name}", f"{target}/{file.name}"):
                self.linked += file.size
            else:
                data = self._fs.read(f"{source}/{file.name}", file.size)
                self._fs.write(f"{target}/{file.name}", [data], sync=self._sync)
        return first._replace(path=path, same_as=first.path, key=item.key, note=item.note)

    def _share(self, source: str, target: str, file: File) -> bool:
        """Link a file of an earlier checkpoint, unless its length is not that of its manifest."""
        if not self._try_link(source, target):
            return False
        if self._fs.is_file(target, file.size):
            return True
        self._fs.unlink(target)
        return False

    def _try_link(self, source: str, target: str) -> bool:
        """Link one file; return whether it was possible.

        Whatever the reason of a failure (another file system, too many links, a full directory, a
        failing disk), the file is written then, and a disk that cannot do that reports it.
        """
        if not self._can_link:
            return False
        try:
            self._fs.link(source, target)
        except FsError as error:
            # Where no file can have two names, only the first of thousands is tried.
            if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                self._can_link = False
            return False
        return True

    # Files.

    def _meta(
        self, pool: ThreadPoolExecutor, path: str, folder: str, form: Form
    ) -> File | Future[File]:
        """Link a ``zarr.json`` without a value to one with the same bytes, or write it.

        Making an inode costs more than giving it a second name.
        """
        target, file = f"{folder}/{META}", form.file
        alike = bool(form.chunks) or form.shape is None
        if alike:
            here, linked = self._metas.get(form.meta, ("", 0))
            if here and self._try_link(here, target):
                self.linked += linked
                return file
            there = self._sources.same_meta(path, form)
            if there is not None and self._try_link(there, target):
                self.linked += file.size
                self._metas[form.meta] = target, file.size
                return file
        if self._sync:
            return pool.submit(self._write_meta, target, form)
        if alike:
            self._metas[form.meta] = target, 0
        return self._write_meta(target, form)

    def _write_meta(self, target: str, form: Form) -> File:
        self._fs.write(target, [form.meta], sync=self._sync)
        return form.file

    def _write_chunk(
        self, folder: str, form: Form, array: Array, links: ChunkLinks | None, chunk: Chunk
    ) -> File:
        """Write a chunk, or link the file of an earlier checkpoint that holds the same bytes."""
        payload: list[Buffer] = [_bytes_of(array, form.memory, chunk)]
        if chunk.padding:
            payload.append(bytes(chunk.padding))
        target = f"{folder}/{chunk.key}"
        has_digest = form.codec is not None or (links is not None and is_fine(form))
        if form.codec is None and _is_new(chunk, payload, links):
            sums = ChunkSums(has_digest=has_digest)
            self._fs.write(target, payload, sync=self._sync, sums=sums)
            return _noted(sums.file(chunk.key), links)
        file = described(chunk.key, payload, has_digest=has_digest)
        if form.codec is not None:
            found = None if links is None else links.find_raw(file)
            if links is not None and found is not None and self._share(found[0], target, found[1]):
                links.linked(chunk.key, found[0])
                return found[1]
            whole = b"".join(payload) if chunk.padding else payload[0]
            payload = [form.codec.compress(whole)]
            file = File(chunk.key, len(payload[0]), crc32c.crc32c(payload[0]), raw=file)
        same = None if links is None else links.find(file, payload)
        if links is not None and same is not None and self._share(same, target, file):
            links.linked(chunk.key, same)
            return file
        payload.append(file.crc.to_bytes(CHUNK_TAIL, "little"))
        self._fs.write(target, payload, sync=self._sync)
        return _noted(file, links)


def _is_new(chunk: Chunk, payload: Sequence[Buffer], links: ChunkLinks | None) -> bool:
    """Return whether the first block of a chunk of several shows that no earlier file holds it."""
    if chunk.length <= BLOCK:
        return False
    if links is None:
        return True
    first = crc32c.crc32c(memoryview(payload[0])[:BLOCK])
    return not links.may_hold(chunk.key, chunk.payload, first)


def _noted(file: File, links: ChunkLinks | None) -> File:
    """Return a file, and note that it was written and not linked."""
    if links is not None:
        links.written(file)
    return file


def _bytes_of(array: Array, memory: DType | None, chunk: Chunk) -> memoryview:
    """Return the bytes of a chunk as on disk: a view, copied only to swap bytes."""
    first, last = chunk.start, chunk.start + chunk.length
    flat = array.reshape(-1)
    if memory is not None and memory != array.dtype:
        size = array.dtype.itemsize
        flat = swapped(flat[first // size : last // size], memory)
        first, last = 0, chunk.length
    data = flat.view(np.uint8).data
    return data if chunk.length == len(data) else data[first:last]
