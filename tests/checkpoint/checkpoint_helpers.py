"""Random blobs, a comparison of their bits, and file operations that fail or kill."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.manifest import META
from jobrun.checkpoint.part_source import BlobSource
from jobrun.checkpoint.publish import discard
from jobrun.checkpoint.record import RecordFields
from jobrun.core.position import Position
from jobrun.storage.fs import Buffer, Fs
from jobrun.storage.threads import THREADS
from jobrun.values.boxes import Box, Tree, Value

# Equality of bits.


def same(a: Value, b: Value) -> bool:
    """Whether two values are the same in kind, type, dtype, shape, order of keys, and bits."""
    if isinstance(a, Tree) or isinstance(b, Tree):
        return (
            isinstance(a, Tree)
            and isinstance(b, Tree)
            and a.kind == b.kind
            and list(a.items) == list(b.items)
            and all(same(a.items[k], b.items[k]) for k in a.items)
        )
    if a.kind != b.kind or type(a.value) is not type(b.value):
        return False
    if isinstance(a.value, (str, bytes)):
        return len(a.value) == len(b.value) and all(
            x == y for x, y in zip(a.value, b.value, strict=True)
        )
    if a.kind in ("array", "scalar"):
        return same_bits(np.asarray(a.value), np.asarray(b.value))
    if a.kind == "float":
        return np.float64(a.value).tobytes() == np.float64(b.value).tobytes()
    return bool(a.value == b.value)


def same_bits(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays agree in dtype (byte order too), shape, and bits."""
    return (
        x.dtype == y.dtype
        and x.dtype.str == y.dtype.str
        and x.shape == y.shape
        and x.tobytes() == y.tobytes()
    )


def same_blobs(a: Mapping[str, Value], b: Mapping[str, Value]) -> bool:
    """Whether two dictionaries of blobs are the same; the order of the blobs does not count."""
    return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)


# Random blobs.

SIMPLE = [
    *("?", "i1", "<i2", ">i2", "<i4", ">i4", "<i8", ">i8", "u1", "<u2", ">u2", "<u4", "<u8", ">u8"),
    *("<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "<c8", ">c8", "<c16", ">c16"),
    *("<M8[ns]", ">M8[D]", "<M8[25s]", "<M8", "<m8[ms]", ">m8[Y]", "<m8", ">m8"),
    *("<U1", "<U3", ">U2", "<U0", "S1", "S5", "S0", "V1", "V7", "V0"),
]
FOREIGN = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "float8_e8m0fnu"]

_fields = st.sampled_from([d for d in SIMPLE if np.dtype(d).itemsize])
_names = st.sampled_from(["a", "b", "c", "x y", "ä"])


@st.composite
def _struct(draw: st.DrawFn, depth: int = 2) -> np.dtype[Any]:
    fields: list[Any] = []
    for name in draw(st.lists(_names, min_size=0 if depth < 2 else 1, max_size=3, unique=True)):
        kind = draw(st.integers(0, 5))
        if kind == 0 and depth:
            fields.append((name, draw(_struct(depth - 1))))
        elif kind == 1:
            fields.append((name, draw(_fields), draw(st.sampled_from([(2,), (1, 3), 2]))))
        else:
            fields.append((name, draw(_fields)))
    return np.dtype(fields)


dtypes = st.one_of(
    st.sampled_from(SIMPLE).map(np.dtype),
    st.sampled_from(FOREIGN).map(lambda name: np.dtype(getattr(ml_dtypes, name))),
    _struct(),
)
shapes = st.one_of(
    st.just(()),
    st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple),
    st.integers(20, 90).map(lambda n: (n,)),
    st.integers(5, 30).map(lambda n: (2, n, 3)),
)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Arrays of every dtype that can be stored, of random bits: NaNs, NaT and -0.0 among them."""
    dtype, shape = draw(dtypes), draw(shapes)
    count = int(np.prod(shape, dtype=int))
    if dtype.itemsize == 0:
        return frozen(np.ndarray(shape, dtype))  # not np.zeros, which makes U1 of U0
    raw = np.random.default_rng(draw(st.integers(0, 2**32))).bytes(count * dtype.itemsize)
    if dtype == np.bool_:
        return frozen(np.frombuffer(raw, "u1").reshape(shape) % 2 == 1)
    if dtype.kind == "U":
        order = dtype.str[0]
        raw = (np.frombuffer(raw, "<u4") % 0x110000).astype(f"{order}u4").tobytes()
    array = np.frombuffer(bytearray(raw), dtype).reshape(shape)
    if dtype.kind in "fc" and dtype.isbuiltin != 2 and count:
        special = draw(st.sampled_from([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.5]))
        array.reshape(-1)[0] = special
    elif dtype.kind == "U" and count and draw(st.booleans()):
        array.reshape(-1)[:] = draw(st.text("aä\u20ac\U0001f600\0", max_size=3))
    elif dtype.names is not None and _delicate(dtype):
        array = np.zeros(shape, dtype)
    return frozen(array)


def _delicate(dtype: np.dtype[Any]) -> bool:
    """Whether not all bits are values: bools are 0 or 1, characters end at 0x10ffff."""
    if dtype.names is None:
        return dtype.base.kind in "bU" or (dtype.subdtype is not None and _delicate(dtype.base))
    return any(_delicate(dtype[name]) for name in dtype.names)


def frozen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A read-only copy that owns its memory, as values in a workspace are."""
    array = np.array(array, order="C")
    array.setflags(write=False)
    return array


_texts = st.text(max_size=6) | st.text("a\0\ud800\udfff\u20ac", max_size=4)
# numpy makes no scalar of a text whose characters are none; texts have a strategy of their own.
_scalars = arrays().filter(lambda a: a.shape == () and a.dtype.kind != "U").map(lambda a: a[()])
leaves = st.one_of(
    arrays().map(lambda a: Box(a, "array")),
    _scalars.filter(lambda v: isinstance(v, np.generic)).map(lambda v: Box(v, "scalar")),
    _texts.map(lambda t: Box(np.str_(t), "scalar")),
    st.binary(max_size=4).map(lambda b: Box(np.bytes_(b), "scalar")),
    st.booleans().map(lambda v: Box(v, "bool")),
    st.integers(-(2**63), 2**64 - 1).map(lambda v: Box(v, "int")),
    st.floats(width=64).map(lambda v: Box(v, "float")),
    st.integers(0, 2**64 - 1).map(lambda v: Box(float(np.uint64(v).view("f8")), "float")),
    _texts.map(lambda v: Box(v, "str")),
    st.none().map(lambda v: Box(v, "none")),
)
keys = st.text("abcdefghijklmnopqrstuvwxyz0123456789_-", min_size=1, max_size=5)
values = st.recursive(
    leaves,
    lambda below: st.one_of(
        st.dictionaries(keys, below, max_size=3).map(lambda items: Tree("dict", items)),
        st.lists(below, max_size=3).map(
            lambda items: Tree("list", {str(i): v for i, v in enumerate(items)})
        ),
    ),
    max_leaves=6,
)


@st.composite
def blobs(draw: st.DrawFn) -> dict[str, Value]:
    """A node's blobs: names at the top, and names with slashes that do not lie under others."""
    plain = draw(st.dictionaries(keys, values, max_size=4))
    deep = draw(st.dictionaries(st.tuples(keys, keys), values, max_size=2))
    slashed = {f"{a}/{b}": v for (a, b), v in deep.items() if a not in plain}
    return plain | slashed


# A checkpoint.


def array(*numbers: float) -> Box:
    """A blob that is an array of float64."""
    return Box(frozen(np.array(numbers, "f8")), "array")


def fresh(blobs: Mapping[str, Value]) -> dict[str, Value]:
    """The same values as if no checkpoint had them yet."""

    def copy(value: Value) -> Value:
        if isinstance(value, Box):
            return Box(value.value, value.kind)
        return Tree(value.kind, {name: copy(item) for name, item in value.items.items()})

    return {name: copy(value) for name, value in blobs.items()}


def save(
    run_dir: Path | str,
    blobs: Mapping[str, Value] | None = None,
    *,
    epoch: int = 0,
    fs: Fs | None = None,
    **fields: Any,
) -> Path:
    """Save one checkpoint of one node and let go of the lock again; its path."""
    blobs = SAMPLE if blobs is None else blobs
    with CheckpointManager(run_dir, fs=fs or Fs()) as manager:
        position = fields.pop("position", Position(epochs=epoch))
        source = BlobSource({"main": dict(blobs)}, fs or Fs())
        return manager.save_snapshot(source, RecordFields(position=position, **fields)).path


SAMPLE: dict[str, Value] = {
    "model": Tree(
        "dict",
        {
            "w": Box(frozen(np.arange(48, dtype="f4").reshape(12, 4)), "array"),
            "b": Box(frozen(np.arange(48, 96, dtype="f4").reshape(12, 4)), "array"),
            "steps": Tree("list", {"0": Box(1, "int"), "1": Box("two", "str")}),
        },
    ),
    "total": Box(100, "int"),
}
"""A small model; ``model/w`` and ``model/b`` have files of the same length."""


FEW: dict[str, Value] = {"model": Tree("dict", {"w": array(1, 2)}), "n": Box(1, "int")}
"""As few files as will do."""

MANY: dict[str, Value] = {**FEW, **{f"x{i}": array(i) for i in range(40)}}
"""Enough files to be synced at once."""

LARGE: dict[str, Value] = {**FEW, "large": Box(frozen(np.arange(3 << 17, dtype="f8")), "array")}
"""One blob of 3 MiB, which is written past the page cache."""


# File operations that fail, kill, or are counted.


class CountingFs(Fs):
    """Remembers the operations, in order."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self._mutex = threading.Lock()

    def at(self, op: str, path: str) -> None:
        with self._mutex:
            self.done.append((op, path))
            self.reached(len(self.done) - 1, op, path)

    def reached(self, number: int, op: str, path: str) -> None:
        """Called at each operation."""


class FailingFs(CountingFs):
    """The ``number``-th operation fails with ``code``, once or from then on.

    Only the operations of ``ops`` count, if given; reading and clearing away never fails.
    """

    FREE = frozenset({"list", "read", "stat", "rmtree"})

    def __init__(
        self, number: int, code: int = errno.ENOSPC, *, ops: frozenset[str] | None = None,
        lasting: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.number, self.code, self.ops, self.lasting = number, code, ops, lasting
        self.met = 0
        self.failures: list[tuple[str, str]] = []

    def reached(self, number: int, op: str, path: str) -> None:
        if op in self.FREE or (self.ops is not None and op not in self.ops):
            return
        hit = self.met == self.number or (self.lasting and self.met > self.number)
        self.met += 1
        if hit:
            self.failures.append((op, path))
            raise OSError(self.code, os.strerror(self.code))


class MeetingFs(CountingFs):
    """Each ``op`` on a chunk of ``x`` waits until as many are under way as there are threads."""

    def __init__(self, op: str) -> None:
        super().__init__()
        self.op = op
        self.met: set[int] = set()
        self._barrier = threading.Barrier(THREADS, timeout=20)

    def at(self, op: str, path: str) -> None:
        super().at(op, path)
        if op == self.op and "/x/" in path and not path.endswith(META):
            self.met.add(threading.get_ident())
            self._barrier.wait()


class VanishingFs(Fs):
    """Checkpoint 1 is removed by its run while it is read, before its second chunk is.

    ``newer``: the run has saved another one meanwhile.
    """

    def __init__(self, run: Path, newer: bool) -> None:
        self.run, self.newer = run, newer
        self.chunks = 0

    def at(self, op: str, path: str) -> None:
        if op == "open" and "checkpoint_1/main/" in path and not path.endswith(META):
            self.chunks += 1
            if self.chunks == 2:
                if self.newer:
                    save(self.run, epoch=2)
                discard(self.run, 1)


class ShortWrites:
    """A ``writev`` whose ``number``-th call writes half of what it is given.

    The next ones write all again, or, with ``lasting``, find the disk full.
    """

    def __init__(self, number: int, lasting: bool) -> None:
        self.number, self.lasting = number, lasting
        self.met = 0
        self._mutex = threading.Lock()

    @property
    def is_reached(self) -> bool:
        """Whether a write was short."""
        return self.met > self.number

    def __call__(self, fd: int, buffers: Sequence[Buffer]) -> int:
        with self._mutex:
            number, self.met = self.met, self.met + 1
        if number == self.number:
            return os.writev(fd, _half(buffers))
        if number > self.number and self.lasting:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.writev(fd, buffers)


def _half(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The first half of all bytes, where they lie: past the cache only what is aligned is taken."""
    left = max(1, sum(map(len, buffers)) // 2)
    half: list[Buffer] = []
    for buffer in buffers:
        half.append(memoryview(buffer)[:left])
        left -= len(half[-1])
    return half


class KillingFs(CountingFs):
    """The process is killed at the ``number``-th operation, before it happens."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def reached(self, number: int, op: str, path: str) -> None:
        if number == self.number:
            os.kill(os.getpid(), signal.SIGKILL)
