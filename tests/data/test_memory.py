"""Sources larger than memory is meant to hold are streamed in little of it.

200 MiB by default; 4 GiB with JOBRUN_LONG.  The memory is that of a process of its own: what is
resident between two batches, and for what is read from front to back also the peak.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
LONG = bool(os.environ.get("JOBRUN_LONG"))
SIZE = (4 << 30) if LONG else (200 << 20)
GROWTH_MIB = 200 if LONG else 60
"""Of 300 MiB for the process, about 60 are the interpreter with numpy."""

STREAM = """
import re, resource, sys
from pathlib import Path
import numpy as np
from jobrun.data.opening import open_files
from jobrun.data.reader import BatchReader, Limits
from jobrun.data.source import Table, ignore_slow
from jobrun.data.stream_reader import StreamReader
from jobrun.position import ReaderState

def peak():
    # Not ru_maxrss: it keeps the peak of the process that started this one.
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * (resource.getpagesize() // 1024)

path, shuffle = Path(sys.argv[1]), sys.argv[2] == "shuffled"
source = open_files(path, {})
start, state, most = resident(), ReaderState(), 0
if isinstance(source, Table):
    order = lambda pass_: np.random.default_rng(pass_).permutation(source.rows)
    read = BatchReader("p", source, Limits(256, shuffle, passes=1), state, order)
else:
    read = StreamReader("p", source, Limits(256, passes=1), state, None, ignore_slow)
rows = total = 0
while not read.finished:
    batch = read.next()
    rows += batch.rows
    total += int(next(iter(batch.columns.values())).reshape(batch.rows, -1)[:, 0].sum())
    read.applied()
    most = max(most, resident())
print(rows, total, (most - start) // 1024, peak() // 1024)
"""


def streamed(path: Path, how: str = "") -> tuple[int, int]:
    """Read a file in a process of its own: its rows, and the sum of its first column."""
    done = subprocess.run(
        [sys.executable, "-c", STREAM, str(path), how],
        capture_output=True,
        text=True,
        check=True,
        timeout=3600,
    )
    rows, total, growth, peak = map(int, done.stdout.split())
    assert growth < GROWTH_MIB, f"{growth} MiB"
    assert peak < 300 or how, f"{peak} MiB"
    return rows, total


def write_npy(path: Path, rows: int, columns: int) -> int:
    """A ``.npy`` of int64 whose first column is 0, 1, …; gives the sum of it."""
    import numpy as np

    with path.open("wb") as file:
        header = {"descr": "<i8", "fortran_order": False, "shape": (rows, columns)}
        np.lib.format.write_array_header_1_0(file, header)
        for low in range(0, rows, 8192):
            block = np.zeros((min(8192, rows - low), columns), np.int64)
            block[:, 0] = np.arange(low, low + len(block))
            file.write(block.tobytes())
    return rows * (rows - 1) // 2


@pytest.mark.parametrize("how", ["", "shuffled"])
def test_an_npy_is_mapped_and_its_pages_are_given_back(tmp_path: Path, how: str) -> None:
    columns = 512
    rows = SIZE // (8 * columns)
    total = write_npy(tmp_path / "d.npy", rows, columns)
    assert streamed(tmp_path / "d.npy", how) == (rows, total)


def test_a_large_npz_is_mapped_too(tmp_path: Path) -> None:
    import zipfile

    columns = 512
    rows = SIZE // (8 * columns)
    total = write_npy(tmp_path / "x.npy", rows, columns)
    with zipfile.ZipFile(tmp_path / "d.npz", "w", zipfile.ZIP_STORED) as archive:
        archive.write(tmp_path / "x.npy", "x.npy")
    assert streamed(tmp_path / "d.npz") == (rows, total)


def test_a_csv_is_read_row_by_row(tmp_path: Path) -> None:
    text = "x" * 1000
    rows = SIZE // 1010 // (1 if LONG else 4)
    with (tmp_path / "d.csv").open("w") as file:
        file.write("n,text\n")
        file.writelines(f"{n},{text}\n" for n in range(rows))
    assert streamed(tmp_path / "d.csv") == (rows, rows * (rows - 1) // 2)
