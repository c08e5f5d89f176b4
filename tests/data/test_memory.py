"""Sources larger than memory is meant to hold are streamed in little of it.

200 MiB by default; 4 GiB with JOBRUN_LONG.  The memory is that of a process of its own: what is
resident between two batches, and the peak.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
LONG = bool(os.environ.get("JOBRUN_LONG"))
SIZE = (4 << 30) if LONG else (200 << 20)
GROWTH_MIB = 200 if LONG else 60
"""Of 300 MiB for the process, about 60 are the interpreter with numpy."""

STREAM = """
import json, re, resource, sys
from itertools import count
from pathlib import Path
import numpy as np
from jobrun.data.opening import open_files
from jobrun.data.order import pass_order
from jobrun.data.reader import BatchReader, Limits
from jobrun.data.source import Table, TableStream, ignore_slow
from jobrun.data.stream_reader import StreamReader
from jobrun.data.tables import ArrayTable
from jobrun.core.position import ReaderState

def peak():
    # Not ru_maxrss: it keeps the peak of the process that started this one.
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * (resource.getpagesize() // 1024)

path, how = Path(sys.argv[1]), json.loads(sys.argv[2])
if how.get("blob"):
    source = ArrayTable({"x": np.load(path, mmap_mode="r")})
else:
    source = open_files(path, how.get("columns", {}))
limits = Limits(how.get("batch", 256), bool(how.get("shuffle")), passes=1, buffer=how.get("buffer"))
start, state, most = resident(), ReaderState(), 0
if isinstance(source, Table) and limits.buffer is None:
    order = lambda pass_: pass_order(source.rows, np.random.default_rng(pass_))
    read = BatchReader("p", source, limits, state, order)
else:
    stream = TableStream(source) if isinstance(source, Table) else source
    draw = lambda pass_, block: np.random.default_rng(9 + block)
    read = StreamReader("p", stream, limits, state, draw, ignore_slow)
rows = total = 0
for number in count():
    if read.finished or number == how.get("batches"):
        break
    batch = read.next()
    rows += batch.rows
    total += int(next(iter(batch.columns.values())).reshape(batch.rows, -1)[:, 0].sum())
    read.applied()
    most = max(most, resident())
print(rows, total, (most - start) // 1024, peak() // 1024)
"""


def streamed(path: Path, **how: Any) -> tuple[int, int]:
    """Read a file in a process of its own: its rows, and the sum of its first column."""
    done = subprocess.run(
        [sys.executable, "-c", STREAM, str(path), json.dumps(how)],
        capture_output=True,
        text=True,
        check=True,
        timeout=3600,
    )
    rows, total, growth, peak = map(int, done.stdout.split())
    assert growth < GROWTH_MIB, f"{growth} MiB"
    assert peak < 300, f"{peak} MiB"
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


@pytest.fixture(scope="module")
def npy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int, int]]:
    """A file with rows of 4 KiB, its rows, and the sum of their numbers."""
    path, rows = tmp_path_factory.mktemp("npy") / "d.npy", SIZE // 4096
    total = write_npy(path, rows, 512)
    with path.open("rb") as file:
        while file.read(1 << 20):
            pass  # so that the kernel has it cached, in large pieces
    yield path, rows, total
    path.unlink()


@pytest.mark.parametrize(
    "how",
    [{}, {"shuffle": True}, {"shuffle": True, "batch": 4096}, {"shuffle": True, "buffer": 1000}],
    ids=str,
)
def test_an_npy_in_order_and_shuffled(npy: tuple[Path, int, int], how: dict[str, Any]) -> None:
    path, rows, total = npy
    assert streamed(path, **how) == (rows, total)


@pytest.mark.parametrize("shuffle", [False, True])
def test_an_array_that_somebody_has_mapped(npy: tuple[Path, int, int], shuffle: bool) -> None:
    path, rows, total = npy
    batches = 200 if LONG else None
    found = streamed(path, blob=True, shuffle=shuffle, batch=1024, batches=batches)
    assert found == (rows, total) if batches is None else found[0] == batches * 1024


def test_rows_so_small_that_their_order_would_fill_the_memory(tmp_path: Path) -> None:
    rows = SIZE // 8
    write_npy(tmp_path / "d.npy", rows, 1)
    found, total = streamed(tmp_path / "d.npy", shuffle=True, batch=4096, batches=20)
    assert found == 20 * 4096
    mean, sigma = rows / 2, rows / 12**0.5 / found**0.5
    assert abs(total / found - mean) < 6 * sigma


def test_many_files_of_which_each_is_small(tmp_path: Path) -> None:
    rows = (SIZE >> 12) // 20
    total = sum(write_npy(tmp_path / f"{n:02}.npy", rows, 512) for n in range(20))
    assert streamed(tmp_path / "*.npy", columns={"x": "x"}) == (20 * rows, total)


def test_a_zarr_array_is_decoded_chunk_by_chunk(tmp_path: Path) -> None:
    import numpy as np
    import zarr

    rows = SIZE // 4096 // (1 if LONG else 2)
    array = zarr.create_array(str(tmp_path / "d.zarr"), shape=(rows, 512), chunks=(500, 512),
                              dtype="i8")  # fmt: skip
    for low in range(0, rows, 10_000):
        block = np.zeros((min(10_000, rows - low), 512), np.int64)
        block[:, 0] = np.arange(low, low + len(block))
        array[low : low + len(block)] = block
    assert streamed(tmp_path / "d.zarr") == (rows, rows * (rows - 1) // 2)
    shuffled = streamed(tmp_path / "d.zarr", shuffle=True, buffer=700)
    assert shuffled == (rows, rows * (rows - 1) // 2)


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
