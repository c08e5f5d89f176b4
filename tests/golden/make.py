"""Makes the golden checkpoints of the current format: ``python tests/golden/make.py``.

The first holds every kind and dtype, the second what is compressed.  What is in ``format-<n>/`` and
``format-<n>-compressed/`` is never made again once a version with that format is out: every later
version must read it, and find the values that are listed here.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jobrun.checkpoint.manifest import META, group_meta
from jobrun.checkpoint.part import write_part
from jobrun.checkpoint.record import FORMAT, SUCCESS, Record, encode_record
from jobrun.core.position import PipeState, Position, ReaderState
from jobrun.model.policy import Compress
from jobrun.storage.fs import DEFAULT
from jobrun.values.boxes import Box, Tree, Value
from tests.support.chunks import cut_into

HERE = Path(__file__).parent
ID = 7
CHUNK_BYTES = 64
"""Chunks are small here, so that there are several."""


def array(values: Any, dtype: Any) -> Box:
    """A blob that is an array."""
    return Box(np.array(values, dtype), "array")


def bits(values: Any, dtype: str) -> np.ndarray[Any, Any]:
    """An array of these bits."""
    unsigned = f"u{np.dtype(dtype).itemsize}"
    return np.array(values, unsigned).view(dtype)


def main_blobs() -> dict[str, Value]:
    """Every dtype, as an array of one dimension at least and of none."""
    blobs: dict[str, Value] = {}
    for code in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"):
        info = np.iinfo(code)
        blobs[f"ints/{code}"] = array([info.min, 1, info.max], code)
        blobs[f"point/{code}"] = array(info.max, code)
    for code in ("f2", "f4", "f8"):
        specials = [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, np.finfo(code).tiny]
        blobs[f"floats/{code}"] = array(specials, code)
        blobs[f"point/{code}"] = array(-0.0, code)
    blobs["floats/nan2"] = Box(bits([0x7E01, 0xFE00, 0x7C01], "f2"), "array")
    blobs["floats/nan4"] = Box(bits([0x7FC00001, 0xFFC00000, 0x7F800001], "f4"), "array")
    blobs["floats/nan8"] = Box(bits([0x7FF8000000000001, 0xFFF8000000000000], "f8"), "array")
    blobs["point/nan"] = array(math.nan, "f4")
    blobs["point/odd_nan"] = Box(bits(0xFFC00000, "f4"), "array")
    blobs["complex/c8"] = array([1 + 2j, complex(-0.0, math.inf)], "c8")
    blobs["complex/c16"] = array([[complex(math.nan, 1)]], "c16")
    blobs["point/c16"] = array(complex(-0.0, math.nan), "c16")
    blobs["bools"] = array([[True, False], [False, True]], "?")
    blobs["point/bool"] = array(True, "?")
    blobs["big/f4"] = array([1.5, -2.5], ">f4")
    blobs["big/i8"] = array([[1, 2]], ">i8")
    blobs["big/c8"] = array([1 - 1j], ">c8")
    blobs["big/time"] = array(["2020-02-29", "NaT"], ">M8[D]")
    blobs["big/text"] = array(["ab", "\u00e4"], ">U2")
    blobs["big/point"] = array(258, ">u2")
    blobs["times/ns"] = array(["2001-02-03T04:05:06.000000007", "NaT"], "M8[ns]")
    blobs["times/span"] = array([-1, 0, 2**40], "m8[25s]")
    blobs["big/span"] = Box(np.frombuffer(bytes(range(8)), ">m8"), "array")
    blobs["times/plain"] = array(["NaT", "NaT"], "M8")
    blobs["times/number"] = array([5, -5], "m8")
    blobs["times/point"] = array("1969-12-31", "M8[D]")
    blobs["texts/u"] = array(["", "a\u20ac", "\U0001f600z\u00df"], "U3")
    blobs["texts/s"] = array([b"", b"ab", b"\xff\x00c"], "S4")
    blobs["texts/none"] = Box(np.ndarray(2, "U0"), "array")
    blobs["texts/point"] = array("\u00e4b", "U5")
    blobs["texts/bytes"] = array(b"xy", "S3")
    blobs["texts/void"] = Box(np.frombuffer(b"\0\1\2\3\4\5", "V3"), "array")
    record = [("n", "<i4"), ("x", ">f8"), ("s", "S2"), ("in", [("a", "u1"), ("t", "<M8[s]")])]
    blobs["struct/plain"] = array([(1, -0.0, b"ab", (7, 0)), (-1, 2.5, b"", (0, 1))], record)
    blobs["struct/point"] = array((3, 0.5, b"z", (1, 2)), record)
    blobs["struct/sub"] = array([([[1, 2], [3, 4]],)], [("m", "<i2", (2, 2))])
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4"):
        blobs[f"ml/{name}"] = array([0, 1, -1], getattr(ml_dtypes, name))
    blobs["ml/point"] = array(1.5, ml_dtypes.bfloat16)
    blobs["empty/rows"] = array(np.zeros((0, 3)), "f4")
    blobs["empty/columns"] = array(np.zeros((3, 0)), "i8")
    blobs["chunks/even"] = array(np.arange(64).reshape(16, 4), "i4")
    blobs["chunks/padded"] = array(np.arange(19), "f8")
    blobs["chunks/rows"] = array(np.arange(150).reshape(3, 50), "u1")
    return blobs


SCALARS = [
    *(np.float32(0.1), np.float64(-0.0), np.int8(-5), np.uint64(2**64 - 1), np.bool_(False)),
    *(np.complex64(1 - 0j), np.str_("x\0"), np.str_(""), np.void(b"\0\1")),
    *(np.bytes_(b"ab"), np.bytes_(b"ab\0"), np.bytes_(b"")),
    *(np.datetime64("2020-01-01T00", "h"), np.timedelta64("NaT", "s")),
    *(ml_dtypes.bfloat16(2.5), bits(0x7E01, "f2")[()]),
]


def other_blobs() -> dict[str, Value]:
    """Every other kind, and trees."""
    return {
        "none": Box(None, "none"),
        "true": Box(True, "bool"),
        "small": Box(-(2**63), "int"),
        "large": Box(2**64 - 1, "int"),
        "tenth": Box(0.1, "float"),
        "nan": Box(math.nan, "float"),
        "odd_nan": Box(float(bits(0xFFF8000000000000, "f8")[()]), "float"),
        "infinite": Box(-math.inf, "float"),
        "text": Box("gr\u00fc\u00dfe\0\n\U0001f600", "str"),
        "no_text": Box("", "str"),
        "surrogate": Box("a\udc80", "str"),
        "scalars": Tree("list", {str(i): Box(v, "scalar") for i, v in enumerate(SCALARS)}),
        "model": Tree(
            "dict",
            {
                "z": array([1.0, 2.0], "f8"),
                "a": Tree("list", {"0": Box(1, "int"), "1": Tree("dict", {})}),
                "m": Tree("list", {}),
            },
        ),
        "net/layer-1/w": array([[1, 2], [3, 4]], "f4"),
        "net/layer-1/b": array([0, 0], "f4"),
    }


PARTS = {"main": main_blobs, "other": other_blobs}


def compressed_blobs() -> dict[str, Value]:
    """What each codec compresses: several chunks, padding, and all kinds of elements."""
    blobs: dict[str, Value] = {}
    for codec in ("zstd", "lz4", "plain"):
        blobs[f"{codec}/floats"] = array(np.arange(40).reshape(20, 2) / 8, "f4")
        blobs[f"{codec}/padded"] = array(np.arange(19), "f8")
        blobs[f"{codec}/big"] = array(np.arange(9), ">i4")
        blobs[f"{codec}/bytes"] = array([1, 2, 3] * 30, "u1")
        blobs[f"{codec}/times"] = array(["2001-02-03", "NaT"] * 6, "M8[D]")
        blobs[f"{codec}/struct"] = array([(1, 0.5), (2, -0.0)], [("n", "<i4"), ("x", ">f8")])
        blobs[f"{codec}/ml"] = array([1, 2.5, -3], ml_dtypes.bfloat16)
        blobs[f"{codec}/point"] = array(1.5, "f8")
        blobs[f"{codec}/text"] = Box("plain", "str")
    return blobs


COMPRESS = (Compress("zstd", 9, "zstd"), Compress("lz4", 3, "lz4/*"))


INSIDE = Position(
    epochs=3,
    tasks=("main/load",),
    pipes={"main/train": PipeState(2, {"loss": ("mean", math.inf, 12)})},
    readers={"main/train": ReaderState(1, 12, 100, {"x": "<f4"})},
)
METRICS = {"loss": math.nan, "best": 0.1, "n": 3, "ok": True, "none": None}


def record(
    manifests: dict[str, str], root: str, size: int, files: int, *, inside: bool = True
) -> Record:
    """What ``_SUCCESS`` says, inside an epoch (then without metrics) or at its end; the time is
    fixed, so that the bytes are."""
    return Record(
        id=ID,
        time="2026-01-02T03:04:05.678901Z",
        position=INSIDE if inside else Position(INSIDE.epochs, readers=INSIDE.readers),
        run_seconds=12.5,
        metrics={} if inside else METRICS,
        stops=({"kind": "patience", "state": {"best": -math.inf, "wait": 1}},),
        decision={"outcome": "stop", "reason": "patience"},
        versions={"numpy": "2.0.0"},
        job="g\u00f6lden",
        digest="0123abcd",
        manifests=manifests,
        root=root,
        bytes=size,
        files=files,
        extra={"note": ["x", math.inf]},
    )


def make(folder: Path) -> Path:
    """Write the checkpoint into ``folder``; its path."""
    return _make(folder, PARTS, ())


def make_compressed(folder: Path) -> Path:
    """The same of the compressed one; its bytes depend on the versions of the compressors."""
    return _make(folder, {"main": compressed_blobs}, COMPRESS)


def _make(folder: Path, blobs_of: Any, compress: tuple[Compress, ...]) -> Path:
    import crc32c

    path = folder / f"checkpoint_{ID}"
    path.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        cut_into(patch, CHUNK_BYTES)
        parts = [
            write_part(path, node, blobs(), id=ID, compress=compress)
            for node, blobs in blobs_of.items()
        ]
    root = group_meta({"format": FORMAT, "job": "g\u00f6lden", "id": ID, "epoch": 3})
    DEFAULT.write(os.fspath(path / META), [root], sync=False)
    said = record(
        {part.node: part.digest for part in parts},
        f"{crc32c.crc32c(root):08x}",
        len(root) + sum(part.bytes for part in parts),
        1 + sum(part.files for part in parts),
        inside=not compress,
    )
    DEFAULT.write(os.fspath(path / SUCCESS), [encode_record(said)], sync=False)
    return path


if __name__ == "__main__":
    for target, write in (
        (f"format-{FORMAT}", make),
        (f"format-{FORMAT}-compressed", make_compressed),
    ):
        if (HERE / target).exists():
            print(f"{target} exists; it stays as it is once a version that reads it is out")
        else:
            print(write(HERE / target))
