"""What a power cut may leave of a run directory, on a disk that keeps as little as it may.

The operations of a save are recorded; then every state is built that a weakly ordered file system
could have on its disk after each of them.  Of what no sync has covered,

* the names in directories are there up to any one change, or all but any one;
* the bytes of files are kept, missing, zeros, or there by half: of all files, or of any one; so are
  those that one write has appended, and a file that was cut is cut or as long as it was.

What a sync of a file, a directory or the whole file system has covered is there.  A change is one
name given, moved or taken away; a name is found only where its directories are.

The method is that of ALICE (Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014).
"""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock

from jobrun.storage.fs import Buffer, Fs, Sums, SyncAll

__all__ = [
    "Appended",
    "Changed",
    "Cut",
    "Node",
    "Operation",
    "Recorder",
    "State",
    "Synced",
    "Written",
    "states",
]


@dataclass(eq=False)
class Node:
    """A file or a directory, whatever its names.

    ``entries`` are those by now (None: a file), ``data`` what a file held before all.
    """

    entries: dict[str, Node] | None = None
    data: bytes = b""

    @classmethod
    def read(cls, path: Path, known: dict[int, Node]) -> Node:
        """What lies at a path; files of several names are one."""
        inode = path.stat().st_ino
        if inode not in known:
            known[inode] = node = cls()
            if path.is_dir():
                node.entries = {p.name: cls.read(p, known) for p in sorted(path.iterdir())}
            else:
                node.data = path.read_bytes()
        return known[inode]


Tree = Mapping[Node, Mapping[str, Node]]


@dataclass(frozen=True)
class Changed:
    """Names in directories given (a node) or taken away (None), all at once or not at all."""

    names: tuple[tuple[Node, str, Node | None], ...]


@dataclass(frozen=True)
class Written:
    """All bytes of a file."""

    node: Node
    data: bytes


@dataclass(frozen=True)
class Appended:
    """Bytes of a file from ``start`` on, which was its end."""

    node: Node
    start: int
    data: bytes


@dataclass(frozen=True)
class Cut:
    """A file ends after ``size`` bytes."""

    node: Node
    size: int


@dataclass(frozen=True)
class Synced:
    """The first ``covers`` operations are durable: those of a node, or (None) all."""

    covers: int
    node: Node | None


Operation = Changed | Written | Appended | Cut | Synced


class Recorder(Fs):
    """Does the operations, and notes them.

    An operation is noted when it is over (a deletion when it begins), and a sync covers those that
    were noted when it began: less than it does cover, if others work meanwhile.
    """

    def __init__(self, root: Path) -> None:
        self.root = Node.read(root, {})
        self.before: Tree = {n: dict(n.entries or {}) for n in _below(self.root)}
        self.log: list[Operation] = []
        self._path = str(root)
        self._mutex = RLock()

    # What is noted.

    def mkdir(self, path: str) -> None:
        super().mkdir(path)
        self._name(path, Node(entries={}))

    def write(
        self, path: str, buffers: Sequence[Buffer], *, sync: bool, sums: Sums | None = None
    ) -> None:
        super().write(path, buffers, sync=sync, sums=sums)
        tail = b"" if sums is None else sums.tail()
        with self._mutex:
            node = Node()
            self._name(path, node)
            self.log.append(Written(node, b"".join([*buffers, tail])))
            if sync:
                self.log.append(Synced(len(self.log), node))

    def open_append(self, path: str) -> io.FileIO:
        with self._mutex:
            new = not os.path.exists(path)
            file = super().open_append(path)
            if new:
                self._name(path, Node())
        return file

    def append(self, file: io.FileIO, path: str, data: bytes) -> None:
        with self._mutex:
            start = os.fstat(file.fileno()).st_size
            super().append(file, path, data)
            self.log.append(Appended(self._at(path), start, data))

    def cut(self, file: io.FileIO, path: str, size: int) -> None:
        with self._mutex:
            super().cut(file, path, size)
            self.log.append(Cut(self._at(path), size))

    def sync_file(self, path: str) -> None:
        self._sync(path, super().sync_file)

    def sync_dir(self, path: str) -> None:
        self._sync(path, super().sync_dir)

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self._move(source, target)

    def replace(self, source: str, target: str) -> None:
        super().replace(source, target)
        self._move(source, target)

    def link(self, source: str, target: str) -> None:
        super().link(source, target)
        self._name(target, self._at(source))

    def unlink(self, path: str) -> None:
        super().unlink(path)
        with self._mutex:
            self._note((*self._place(path), None))

    def remove_tree(self, path: str) -> None:
        with self._mutex:
            self._forget(*self._place(path))
        super().remove_tree(path)

    def sync_all(self, path: str) -> SyncAll | None:
        recorder = self

        class Noted(SyncAll):
            def __call__(self) -> None:
                covers = len(recorder.log)
                super().__call__()
                with recorder._mutex:
                    recorder.log.append(Synced(covers, None))

        return Noted(self, path) if super().sync_all(path) else None

    # How.

    def _at(self, path: str) -> Node:
        node = self.root
        for name in Path(os.path.relpath(path, self._path)).parts:
            assert node.entries is not None
            node = node.entries[name]
        return node

    def _place(self, path: str) -> tuple[Node, str]:
        return self._at(os.path.dirname(path)), os.path.basename(path)

    def _name(self, path: str, node: Node) -> None:
        with self._mutex:
            self._note((*self._place(path), node))

    def _move(self, source: str, target: str) -> None:
        with self._mutex:
            node = self._at(source)
            self._note((*self._place(source), None), (*self._place(target), node))

    def _forget(self, folder: Node, name: str) -> None:
        """Take away a name and all below, one by one."""
        assert folder.entries is not None
        node = folder.entries[name]
        for below in list(node.entries or ()):
            self._forget(node, below)
        self._note((folder, name, None))

    def _note(self, *names: tuple[Node, str, Node | None]) -> None:
        for folder, name, node in names:
            assert folder.entries is not None
            if node is None:
                del folder.entries[name]
            else:
                folder.entries[name] = node
        self.log.append(Changed(names))

    def _sync(self, path: str, call: Callable[[str], None]) -> None:
        with self._mutex:
            node, covers = self._at(path), len(self.log)
        call(path)
        with self._mutex:
            self.log.append(Synced(covers, node))


def _below(node: Node) -> Iterator[Node]:
    if node.entries is not None:
        yield node
        for entry in node.entries.values():
            yield from _below(entry)


# What may be left.


@dataclass(frozen=True)
class State:
    """What is on the disk if the power is cut once ``done`` operations are over.

    ``files`` has the bytes of each file by its path, and None for each directory.
    """

    done: int
    files: Mapping[str, bytes | None] = field(compare=False)

    def lay(self, root: Path) -> None:
        """Make it, in a new directory."""
        root.mkdir()
        for path, data in self.files.items():  # directories come before what is in them
            if data is None:
                (root / path).mkdir()
            else:
                (root / path).write_bytes(data)


_Harm = Callable[[bytes], bytes]
_HARM: tuple[_Harm, ...] = (
    lambda data: b"",
    lambda data: bytes(len(data)),
    lambda data: data[: len(data) // 2],
)


def states(
    recorder: Recorder,
    marks: Sequence[int] = (),
    log: Sequence[Operation] | None = None,
    every: int = 1,
) -> Iterator[State]:
    """All that may be left, from before the first operation of a log to after the last.

    Of equal states only the first is given, and the first after each of the ``marks``, numbers of
    operations after which more is asked of them.  With ``every``, only every n-th choice of what is
    lost is looked at, and nothing is lost singly.
    """
    log = recorder.log if log is None else log
    seen: set[tuple[int, int]] = set()
    for done, lost, harms in itertools.islice(_choices(log, singly=every == 1), 0, None, every):
        files = dict(_files(recorder, log[:done], lost, harms))
        phase = sum(done >= mark for mark in marks)
        key = (phase, hash(tuple(sorted(files.items(), key=lambda item: item[0]))))
        if key not in seen:
            seen.add(key)
            yield State(done, files)


def _choices(
    log: Sequence[Operation], *, singly: bool
) -> Iterator[tuple[int, frozenset[int], Mapping[int, _Harm]]]:
    """How many operations are over, which changes of names are lost, which bytes are harmed."""
    for done in range(len(log) + 1):
        names, data = _loose(log[:done])
        harms = list(_harms(data, singly))
        for lost in _cuts(names, singly):
            for harm in harms:
                yield done, lost, harm


def _loose(log: Sequence[Operation]) -> tuple[list[int], list[int]]:
    """The changes of names, and the writes, that no sync has covered."""
    covered: dict[Node | None, int] = {}
    for operation in log:
        if isinstance(operation, Synced):
            node = operation.node
            covered[node] = max(covered.get(node, 0), operation.covers)

    def durable(number: int, node: Node) -> bool:
        return number < max(covered.get(node, 0), covered.get(None, 0))

    names, data = [], []
    for number, operation in enumerate(log):
        if isinstance(operation, Changed):
            if not all(durable(number, folder) for folder, _, _ in operation.names):
                names.append(number)
        elif not isinstance(operation, Synced) and not durable(number, operation.node):
            data.append(number)
    return names, data


def _cuts(names: Sequence[int], singly: bool) -> Iterator[frozenset[int]]:
    """What is lost of the loose changes: all after any one, and any one."""
    for kept in range(len(names) + 1):
        yield frozenset(names[kept:])
    for one in names[:-1] if singly else ():
        yield frozenset([one])


def _harms(data: Sequence[int], singly: bool) -> Iterator[Mapping[int, _Harm]]:
    """What becomes of the loose writes: nothing, or harm to all, or to any one."""
    yield {}
    for harm in _HARM if data else ():
        yield dict.fromkeys(data, harm)
        if singly and len(data) > 1:
            yield from ({one: harm} for one in data)


def _files(
    recorder: Recorder,
    log: Sequence[Operation],
    lost: frozenset[int],
    harms: Mapping[int, _Harm],
) -> Iterator[tuple[str, bytes | None]]:
    entries: dict[Node, dict[str, Node]] = {n: dict(e) for n, e in recorder.before.items()}
    written: dict[Node, bytes] = {}
    for number, operation in enumerate(log):
        if isinstance(operation, Changed):
            for folder, name, node in operation.names if number not in lost else ():
                entries.setdefault(folder, {}).pop(name, None)
                if node is not None:
                    entries[folder][name] = node
        elif isinstance(operation, Written):
            harm = harms.get(number)
            written[operation.node] = harm(operation.data) if harm else operation.data
        elif isinstance(operation, Appended):
            harm = harms.get(number)
            data = harm(operation.data) if harm else operation.data
            before = written.get(operation.node, operation.node.data)
            head = before[: operation.start].ljust(operation.start, b"\0") if data else before
            written[operation.node] = head + data + before[operation.start + len(data) :]
        elif isinstance(operation, Cut) and number not in harms:
            before = written.get(operation.node, operation.node.data)
            written[operation.node] = before[: operation.size]

    def walk(folder: Node, path: str) -> Iterator[tuple[str, bytes | None]]:
        for name, node in sorted(entries.get(folder, {}).items()):
            if node.entries is None:
                yield f"{path}{name}", written.get(node, node.data)
            else:
                yield f"{path}{name}", None
                yield from walk(node, f"{path}{name}/")

    yield from walk(recorder.root, "")
