"""Forged data: what is no file, what fills the memory, what no library expects."""

from __future__ import annotations

import gzip
import os
import socket
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from jobrun.data import text_files
from jobrun.data.formats import FORMATS
from jobrun.data.opening import open_files
from jobrun.data.weights import read_weights
from jobrun.errors import DataError


def zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(path.parent)  # the paths of sockets are short
        server.bind(path.name)


SPECIAL: list[tuple[Callable[[Path], None], str]] = [
    (zero, "a device"), (os.mkfifo, "a fifo"), (listening, "a socket"),
]  # fmt: skip


@pytest.mark.parametrize("ending", [e for f in FORMATS for e in f.endings] + [".csv.gz"])
@pytest.mark.parametrize(("make", "what"), SPECIAL, ids=lambda x: x if isinstance(x, str) else "")
def test_what_is_no_file_is_not_opened(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], None],
    what: str,
    ending: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"x{ending}"
    make(path)
    with pytest.raises(DataError, match=f"cannot be read: it is {what}, not a file"):
        open_files(path, {})


@pytest.mark.parametrize("ending", [".npz", ".pt", ".safetensors"])
def test_weights_are_read_from_files_only(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"x{ending}"
    os.mkfifo(path)
    with pytest.raises(DataError, match=r"is a fifo, not a file|not installed"):
        read_weights(path, lambda _: True)


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("a\n1\n")
    (tmp_path / "x.csv").symlink_to("there.csv")
    assert open_files(tmp_path / "x.csv", {}).columns == ("a",)


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.txt", "x.txt.gz", "x.csv.gz"])
def test_a_line_without_end_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(text_files, "_LONGEST_LINE", 1000)
    path = tmp_path / name
    data = b'{"a": 1}\n' + b" " * 5000
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    with pytest.raises(DataError, match="a line is longer than 1000 bytes"):
        open_files(path, {})
    path.write_bytes(gzip.compress(b"a\n" * 5000) if name.endswith(".gz") else b'{"a":1}\n' * 500)
    assert open_files(path, {}).columns


def test_thousands_of_columns_of_text(tmp_path: Path) -> None:
    """Each was searched for in all of them, row by row: 30,000 took minutes."""
    names = [f"c{i}" for i in range(30_000)]
    (tmp_path / "x.csv").write_text(f"{','.join(names)}\n" + (",1" * 30_000)[1:] + "\n")
    assert len(open_files(tmp_path / "x.csv", {"x": "c*"}).columns) == 1
    assert len(open_files(tmp_path / "x.csv", {n: n for n in names}).columns) == 30_000


HEAD = "{{'descr': '<f8', 'fortran_order': False, 'shape': ({},)}}\n"


def npz(path: Path, rows: int, data: bytes) -> bytearray:
    head = HEAD.format(rows).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data
        archive.writestr("a.npy", content)
    return bytearray(path.read_bytes())


def encrypted(whole: bytearray) -> None:
    whole[6] |= 1
    whole[whole.rfind(b"PK\1\2") + 8] |= 1


def unknown_method(whole: bytearray) -> None:
    whole[8] = whole[whole.rfind(b"PK\1\2") + 10] = 99


def torn(whole: bytearray) -> None:
    whole[35:60] = bytes(25)


@pytest.mark.parametrize("forge", [encrypted, unknown_method, torn])
def test_a_forged_archive(tmp_path: Path, forge: Callable[[bytearray], None]) -> None:
    whole = npz(tmp_path / "x.npz", 100, np.random.default_rng(1).bytes(800))
    forge(whole)
    (tmp_path / "x.npz").write_bytes(whole)
    with pytest.raises(DataError, match=r"x.npz cannot be read"):
        open_files(tmp_path / "x.npz", {})
    with pytest.raises(DataError, match="not a file of arrays"):
        read_weights(tmp_path / "x.npz", lambda _: True)


def test_an_array_that_claims_more_than_fits_into_memory(tmp_path: Path) -> None:
    npz(tmp_path / "x.npz", 1 << 50, b"1" * 80)
    with pytest.raises(DataError, match=r"cannot be read: Unable to allocate 8.00 PiB"):
        open_files(tmp_path / "x.npz", {})
    with pytest.raises(DataError, match=r"Unable to allocate 8.00 PiB"):
        read_weights(tmp_path / "x.npz", lambda _: True)
