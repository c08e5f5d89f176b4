"""Of a blob that changed in part only the changed chunks are written; no wrong one is linked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_helpers import CountingFs, same
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.checkpoint import chunk_digest, hardlinks, writing
from jobrun.checkpoint.block_checksums import BlockChecksums
from jobrun.checkpoint.chunk_links import FINE
from jobrun.checkpoint.chunk_sums import ChunkSums
from jobrun.checkpoint.codecs import Compressor
from jobrun.checkpoint.contents import contents, disk_use
from jobrun.checkpoint.diff import compare
from jobrun.checkpoint.integrity import read_manifest, read_record
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.manifest import Entry
from jobrun.checkpoint.reading import read_part
from jobrun.checkpoint.scrub import Survey
from jobrun.model.policy import Compress
from jobrun.storage.fs import DEFAULT, Fs
from jobrun.values.boxes import Box

MIB = 1 << 20
ZSTD = (Compress("zstd", 3),)


@pytest.fixture(autouse=True)
def _forget() -> None:
    hardlinks._fine.clear()


def ramp(mib: float, seed: int = 0) -> Any:
    return np.random.default_rng(seed).random(int(mib * MIB) // 8)


def save(run: Path, array: Any, link: str = "parent", **options: Any) -> Path:
    with CheckpointManager(run, link=link, **options) as manager:
        epoch = len(manager.catalog.ids())
        manager.save(epoch, {"main": {"x": array}})
        return manager.path(epoch)


def entry(path: Path) -> Entry:
    entries = read_manifest(DEFAULT, str(path), read_record(DEFAULT, str(path)), "main").entries
    return next(e for e in entries if e.path == "x")


def written(path: Path) -> int:
    """Bytes of the chunk files that no other checkpoint has."""
    return sum(
        f.stat().st_size for f in (path / "main/x").iterdir()
        if f.stat().st_nlink == 1 and f.name != "zarr.json"
    )  # fmt: skip


def load(path: Path) -> Any:
    box = read_part(path, "main")["x"]
    assert isinstance(box, Box)
    return box.value


def test_what_grows_is_written_once(tmp_path: Path) -> None:
    arrays = [ramp(8 + k / 4) for k in range(5)]
    paths = [save(tmp_path, array) for array in arrays]
    assert len(entry(paths[0]).files) == 2
    for path, array in zip(paths, arrays, strict=True):
        assert same(Box(load(path), "array"), Box(array, "array"))
    for path in paths[2:]:  # the second was cut anew
        assert 0 < written(path) <= FINE + 4
        assert entry(path).version == int(path.name.rpartition("_")[2])
    assert disk_use(paths) < 2 * 9 * MIB + 3 * FINE + MIB


def test_what_grows_by_more_than_a_chunk_keeps_its_grid(tmp_path: Path) -> None:
    array, paths, new = ramp(36), [], []
    for mib in (16, 26, 36, 36):
        paths.append(save(tmp_path, array[: mib * MIB // 8].copy()))
        new.append(written(paths[-1]) >> 20)
        if mib == 36:  # as in a process that resumes
            hardlinks._fine.clear()
            hardlinks._remembered.clear()
    assert {f.length for path in paths for f in entry(path).files[1:]} == {8 * MIB}
    assert new == [16, 16, 16, 0]
    assert entry(paths[3]).version == entry(paths[2]).version
    assert load(paths[3]).tobytes() == array.tobytes()


@pytest.mark.parametrize("link", ["parent", "alternate"])
def test_a_change_in_one_place_is_found_at_the_second_time(tmp_path: Path, link: str) -> None:
    array = ramp(24)
    paths = []
    for k in range(8):
        array = array.copy()
        array[100 + k] = k
        paths.append(save(tmp_path, array, link))
    assert load(paths[-1]).tobytes() == array.tobytes()
    for path in paths[5:]:
        assert 0 < written(path) <= FINE + 4


def test_a_change_at_the_start_of_a_chunk_is_found_too(tmp_path: Path) -> None:
    array, paths = ramp(24), []
    for k in range(4):
        array = array.copy()
        array[k] += 1
        paths.append(save(tmp_path, array))
    assert written(paths[1]) == 8 * MIB + 4
    assert written(paths[3]) <= FINE + 4
    assert same(Box(load(paths[3]), "array"), Box(array, "array"))


def test_a_chunk_that_changed_all_over_is_passed_over_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checksums are those of the bytes on their way to the disk, however it is linked."""
    seen: list[int] = []
    real = ChunkSums.see

    def see(self: ChunkSums, start: int, data: Any) -> None:
        seen.append(len(data))
        real(self, start, data)

    monkeypatch.setattr(ChunkSums, "see", see)
    monkeypatch.setattr(writing, "described", None)
    for k in range(3):
        path = save(tmp_path, ramp(24, k))
    assert sum(seen) == 3 * 24 * MIB
    assert same(Box(load(path), "array"), Box(ramp(24, 2), "array"))


def test_where_all_rows_change_nothing_is_cut_finely(tmp_path: Path) -> None:
    paths = [save(tmp_path, ramp(8, seed)) for seed in range(4)]
    assert [len(entry(path).files) for path in paths] == [2, 2, 2, 2]
    assert not any(hardlinks._fine.values())


def test_equal_content_in_new_memory_keeps_its_version_and_files(tmp_path: Path) -> None:
    paths = [save(tmp_path, ramp(20)) for _ in range(3)]
    assert [entry(path).version for path in paths] == [0, 0, 0]
    assert written(paths[2]) == 0
    small = np.arange(5)
    one, two = save(tmp_path / "s", small), save(tmp_path / "s", small.copy())
    assert (one / "main/x/0").samefile(two / "main/x/0")


def test_bytes_decide_and_not_the_checksum(tmp_path: Path) -> None:
    array = ramp(1)
    first = save(tmp_path, array)
    chunk = first / "main/x/0"
    data = bytearray(chunk.read_bytes())
    data[5] ^= 1  # a flipped bit: the checksum in the manifest is that of the array
    chunk.write_bytes(bytes(data))
    second = save(tmp_path, array.copy())
    assert not (second / "main/x/0").samefile(chunk)
    assert load(second).tobytes() == array.tobytes()
    assert entry(second).version == 1


def test_a_chunk_that_was_cut_off_is_not_linked(tmp_path: Path) -> None:
    array = ramp(1)
    chunk = save(tmp_path, array) / "main/x/0"
    chunk.write_bytes(chunk.read_bytes()[:-7])
    assert load(save(tmp_path, array.copy())).tobytes() == array.tobytes()


def test_another_dtype_or_row_shape_shares_nothing(tmp_path: Path) -> None:
    zeros = np.zeros((4, 6))
    save(tmp_path, zeros)
    for other in (zeros.astype("i8"), zeros.reshape(6, 4), zeros.astype(">f8")):
        path = save(tmp_path, other)
        assert same(Box(load(path), "array"), Box(other, "array"))
        assert entry(path).version == int(path.name.rpartition("_")[2])


def test_a_linked_chunk_that_is_damaged_is_reported_for_each_checkpoint(tmp_path: Path) -> None:
    array = ramp(8)
    paths = []
    for k in range(4):
        array = array.copy()
        array[-1] = k
        paths.append(save(tmp_path, array))
    chunks = [f for f in (paths[3] / "main/x").iterdir() if f.name != "zarr.json"]
    shared = next(f for f in chunks if f.stat().st_nlink > 1)
    with open(shared, "r+b") as file:
        first = file.read(1)[0]
        file.seek(0)
        file.write(bytes([first ^ 1]))
    twins = [(k, path / "main/x" / shared.name) for k, path in enumerate(paths)]
    holders = {k for k, twin in twins if twin.exists() and twin.samefile(shared)}
    damaged = {k for k, verdict in enumerate(Survey().verify(paths)) if not verdict.whole}
    assert len(holders) > 1
    assert damaged == holders


edits = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), st.integers(1, 900_000)),
        st.tuples(st.just("shrink"), st.integers(1, 900_000)),
        st.tuples(st.just("set"), st.integers(0, 2_000_000)),
        st.tuples(st.just("same"), st.just(0)),
        st.tuples(st.just("all"), st.integers(0, 100)),
        st.tuples(st.just("dtype"), st.just(0)),
    ),
    min_size=2,
    max_size=7,
)


@settings(deadline=None, max_examples=8)
@given(edits, st.sampled_from(["parent", "alternate", "never"]), st.booleans())
def test_every_checkpoint_is_what_was_saved(
    tmp_path_factory: Any, steps: Any, link: str, packed: bool
) -> None:
    hardlinks._fine.clear()
    run = tmp_path_factory.mktemp("run")
    array = np.zeros(600_000, "f8")
    arrays, paths = [], []
    for number, (what, n) in enumerate(steps):
        if what == "grow":
            array = np.concatenate([array, np.full(n, number, array.dtype)])
        elif what == "shrink":
            array = array[: max(1, len(array) - n)].copy()
        elif what == "set":
            array = array.copy()
            array[n % len(array)] += 1
        elif what == "all":
            array = array + n
        elif what == "dtype":
            array = array.astype("f4" if array.dtype == "f8" else "f8")
        else:
            array = array.copy()
        arrays.append(array)
        paths.append(save(run, array, link, compress=ZSTD if packed else ()))
    for path, wanted in zip(paths, arrays, strict=True):
        assert same(Box(load(path), "array"), Box(wanted, "array"))


def test_the_bytes_that_are_linked_and_written_are_shown(tmp_path: Path) -> None:
    array = ramp(8)
    paths = []
    for k in range(4):
        array = array.copy()
        array[k] = k + 2
        paths.append(save(tmp_path, array))
    (item,) = contents(paths[3])[1]
    assert item.bytes - item.linked == FINE + 4 + item.entry.files[0].length
    assert item.stored == "in part"
    assert [contents(path)[1][0].linked for path in paths[:2]] == [0, 0], "these were written"
    (change,) = compare(paths[2], paths[3]).changed
    assert (change.count, change.bytes, change.linked) == (1, item.bytes, item.linked)


def grown(run: Path, fs: Fs = DEFAULT) -> list[Path]:
    """Four checkpoints of an array that grows: it is cut finely from the second on."""
    array, paths = ramp(12), []
    for k in range(4):
        with CheckpointManager(run, link="parent", fs=fs) as manager:
            manager.save(k, {"main": {"x": array[: len(array) - (3 - k) * 1000]}})
            paths.append(manager.path(k))
    return paths


def test_digests_prove_equality_without_reading_the_earlier_file(tmp_path: Path) -> None:
    pytest.importorskip("xxhash")
    fs = CountingFs()
    paths = grown(tmp_path, fs)
    digests = [file.digest for file in entry(paths[3]).files[1:]]
    assert {*map(len, digests)} == {32}
    assert digests[:-1] == [file.digest for file in entry(paths[2]).files[1:-1]]
    opened = {Path(path) for op, path in fs.done if op == "open"}
    assert not {p.parent for p in opened} & {path / "main/x" for path in paths[1:]}
    assert written(paths[3]) <= 2 * (FINE + 4)


def test_without_xxhash_bytes_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_digest, "_xxhash", lambda: None)
    fs = CountingFs()
    paths = grown(tmp_path, fs)
    assert {file.digest for file in entry(paths[3]).files} == {""}
    opened = {Path(path) for op, path in fs.done if op == "open"}
    assert paths[2] / "main/x/0" in opened
    assert written(paths[3]) <= 2 * (FINE + 4)


def all_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the bytes of all chunks one checksum."""
    monkeypatch.setattr(BlockChecksums, "whole", lambda self: 7)
    monkeypatch.setattr(BlockChecksums, "digits", lambda self: "")


def test_a_checksum_alone_links_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    all_alike(monkeypatch)
    with CheckpointManager(tmp_path, link="parent") as manager:
        for k, array in enumerate((ramp(9), ramp(10), ramp(11, 1), ramp(11, 2))):
            manager.save(k, {"main": {"x": array}})
        for k in range(1, 4):
            names = [file.name for file in entry(manager.path(k)).files[1:]]
            files = [manager.path(k) / "main/x" / name for name in names]
            before = [manager.path(k - 1) / "main/x" / name for name in names]
            if k != 1:
                pairs = zip(files, before, strict=True)
                assert not any(a.exists() and b.exists() and a.samefile(b) for a, b in pairs)


# Compressed arrays.


@pytest.fixture
def compressed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the chunks that were compressed, in the order of time."""
    lengths: list[int] = []
    real = Compressor.compress

    def compress(self: Compressor, data: Any) -> Any:
        lengths.append(len(data))
        return real(self, data)

    monkeypatch.setattr(Compressor, "compress", compress)
    return lengths


def shares(one: Path, other: Path) -> set[str]:
    """The names of the chunks of ``x`` that two checkpoints share."""
    chunks = [f for f in (one / "main/x").iterdir() if f.name != "zarr.json"]
    twins = [(f, other / "main/x" / f.name) for f in chunks]
    return {f.name for f, twin in twins if twin.exists() and twin.samefile(f)}


def test_equal_chunks_of_a_compressed_array_are_linked_and_not_compressed(
    tmp_path: Path, compressed: list[int]
) -> None:
    pytest.importorskip("xxhash")
    array, paths = ramp(24), []
    for k in range(3):
        array = array.copy()
        array[0] = k
        compressed.clear()
        paths.append(save(tmp_path, array, compress=ZSTD))
    assert len(entry(paths[0]).files) == 1 + 3
    assert len(compressed) == 12  # cut finely, as an array that changes in part
    array = array.copy()
    array[0] = 7
    compressed.clear()
    paths.append(save(tmp_path, array, compress=ZSTD))
    assert compressed == [FINE]
    assert shares(paths[3], paths[2]) == {str(n) for n in range(1, 12)}
    assert load(paths[3]).tobytes() == array.tobytes()
    assert all(verdict.whole for verdict in Survey().verify(paths))


def test_a_compressed_array_that_grows_keeps_its_grid_and_chunks(
    tmp_path: Path, compressed: list[int]
) -> None:
    array = ramp(48)
    paths = [save(tmp_path, array[: (16 + 10 * k) * MIB // 8], compress=ZSTD) for k in range(3)]
    for path in paths[1:]:
        assert {f.content.length for f in entry(path).files[1:]} == {8 * MIB}
    assert shares(paths[1], paths[0]) == {"0", "1"}
    assert shares(paths[2], paths[1]) == {"0", "1", "2"}
    assert load(paths[2]).tobytes() == array[: 36 * MIB // 8].tobytes()


def test_without_xxhash_compressed_chunks_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compressed: list[int]
) -> None:
    monkeypatch.setattr(chunk_digest, "_xxhash", lambda: None)
    array = ramp(16)
    one = save(tmp_path, array, compress=ZSTD)
    two = save(tmp_path, array.copy(), compress=ZSTD)
    assert shares(two, one) == {"0", "1"}
    assert len(compressed) == 4
    assert entry(two).version == 0


@pytest.mark.parametrize("other", [(Compress("zstd", 4),), (Compress("lz4", 3),), ()], ids=str)
def test_another_codec_or_level_shares_no_chunk(tmp_path: Path, other: Any) -> None:
    array = ramp(10)
    one = save(tmp_path, array, compress=ZSTD)
    two = save(tmp_path, array.copy(), compress=other)
    assert not shares(two, one)
    assert load(two).tobytes() == array.tobytes()


def test_a_compressed_chunk_is_not_linked_by_its_checksum_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xxhash")
    all_alike(monkeypatch)
    one = save(tmp_path, ramp(10), compress=ZSTD)
    two = save(tmp_path, ramp(10, 1), compress=ZSTD)
    assert not shares(two, one)
