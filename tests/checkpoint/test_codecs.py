"""Compressed blobs: the same bits through us and zarr, slices, links, and every bit proven."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import crc32c
import numpy as np
import pytest
import zarr
from checkpoint_helpers import CountingFs, array, arrays, frozen, same, same_bits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jobrun
from jobrun.checkpoint import codecs as codecs_module
from jobrun.checkpoint.catalog import prove
from jobrun.checkpoint.codecs import Compressor, choose
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.part_source import BlobSource
from jobrun.checkpoint.reading import read_part
from jobrun.checkpoint.record import RecordFields
from jobrun.checkpoint.save_result import Saved
from jobrun.checkpoint.save_rules import SaveRules
from jobrun.checkpoint.slices import read_slice
from jobrun.checkpoint.zarr_metadata import store
from jobrun.errors import DamagedError, NotFoundError
from jobrun.model.codecs import CODECS, codec_names
from jobrun.model.policy import Compress
from jobrun.values.boxes import Box, Tree, Value
from tests.support.chunks import cut_into

pytestmark = pytest.mark.usefixtures("small_chunks")
quick = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
ZSTD, LZ4 = Compress("zstd"), Compress("lz4")
RAMP = frozen(np.arange(100, dtype="f8"))


def save(run: Path | str, blobs: dict[str, Value], *rules: Compress) -> Saved:
    with CheckpointManager(run, compress=rules) as manager:
        return manager.save_snapshot(BlobSource({"main": blobs}), RecordFields())


def codecs_of(path: Path, blob: str) -> list[str]:
    meta = json.loads((path / "main" / blob / "zarr.json").read_text())
    return [codec["name"] for codec in meta["codecs"]]


rules = st.sampled_from(sorted(CODECS)).flatmap(
    lambda name: st.integers(1, CODECS[name].largest_level).map(lambda n: Compress(name, n))
)


@quick
@given(arrays(), rules, st.booleans())
def test_arrays_come_back_bit_for_bit(
    whole: np.ndarray[Any, Any], rule: Compress, alike: bool
) -> None:
    if alike and whole.size:
        whole = frozen(np.full_like(whole, whole.reshape(-1)[0]))
    with TemporaryDirectory() as run:
        path = save(run, {"x": Box(whole, "array")}, rule).path
        assert same(read_part(path, "main")["x"], Box(whole, "array"))
        prove(run, CheckpointManager(run).find())


@settings(quick, max_examples=25)
@given(arrays(), rules)
def test_zarr_reads_the_same_as_without(whole: np.ndarray[Any, Any], rule: Compress) -> None:
    with TemporaryDirectory() as run, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen = [
            np.asarray(zarr.open_group(save(run, {"x": Box(whole, "array")}, *r).path)["main/x"])
            for r in ((), (rule,))
        ]
    assert same_bits(*seen)


@quick
@given(arrays().filter(lambda a: a.ndim > 0), rules, st.data())
def test_a_slice_is_that_of_the_whole(
    whole: np.ndarray[Any, Any], rule: Compress, data: st.DataObject
) -> None:
    index = tuple(data.draw(st.slices(n)) for n in whole.shape)
    with TemporaryDirectory() as run:
        path = save(run, {"x": Box(whole, "array")}, rule).path
        assert same_bits(read_slice(path, "main", "x", index), whole[index])


def test_a_slice_reads_only_the_chunks_it_touches(tmp_path: Path) -> None:
    path, fs = save(tmp_path, {"x": Box(RAMP, "array")}, ZSTD).path, CountingFs()
    assert read_slice(path, "main", "x", slice(9, 12), fs=fs).tolist() == [9, 10, 11]
    assert [p for op, p in fs.done if op == "open" and "/x/" in p] == [
        f"{path}/main/x/zarr.json", f"{path}/main/x/1",
    ]  # fmt: skip


@pytest.mark.parametrize("rule", [ZSTD, LZ4], ids=lambda r: r.codec)
def test_it_is_smaller_and_sizes_are_those_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: Compress
) -> None:
    cut_into(monkeypatch, 1 << 20)
    zeros: dict[str, Value] = {"x": Box(frozen(np.zeros(1 << 18)), "array")}
    plain, packed = save(tmp_path, zeros), save(tmp_path / "2", zeros, rule)
    assert packed.bytes < plain.bytes / 20
    files = [p for p in packed.path.rglob("*") if p.is_file() and p.name != "_SUCCESS"]
    assert packed.bytes == sum(p.stat().st_size for p in files)
    manifest = json.loads((packed.path / "manifest.main.json").read_text())
    for name, length, crc in manifest["entries"][1]["files"][1:]:
        data = (packed.path / "main/x" / name).read_bytes()
        assert length == len(data) - 4
        assert int(crc, 16) == crc32c.crc32c(data[:-4]) == int.from_bytes(data[-4:], "little")


@pytest.mark.parametrize("rule", [ZSTD, LZ4], ids=lambda r: r.codec)
def test_every_flipped_bit_is_found(tmp_path: Path, rule: Compress) -> None:
    path = save(tmp_path, {"x": Box(RAMP, "array")}, rule).path
    chunk = path / "main/x/3"
    whole = chunk.read_bytes()
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        chunk.write_bytes(data)
        with pytest.raises(DamagedError, match="checksum"):
            read_part(path, "main")
        with pytest.raises(DamagedError, match="checksum"):
            read_slice(path, "main", "x", 25)
    chunk.write_bytes(whole)
    assert same(read_part(path, "main")["x"], Box(RAMP, "array"))


def test_the_first_pattern_that_matches_counts(tmp_path: Path) -> None:
    blobs: dict[str, Value] = {
        "model": Tree("dict", {"w": array(1, 2), "b": array(3), "n": Box(1, "int")}),
        "opt/m": array(4, 5),
        "rest": array(6),
    }
    given_rules = [
        Compress("none", blobs="*/b"), Compress("lz4", blobs="model"), Compress("zstd", blobs="*m"),
    ]  # fmt: skip
    path = save(tmp_path, blobs, *given_rules).path
    assert codecs_of(path, "model/w") == ["bytes", "blosc", "crc32c"]
    assert codecs_of(path, "model/b") == ["bytes", "crc32c"]
    assert codecs_of(path, "model/n") == ["bytes", "crc32c"]  # in the metadata: nothing to compress
    assert codecs_of(path, "opt/m") == ["bytes", "zstd", "crc32c"]
    assert codecs_of(path, "rest") == ["bytes", "crc32c"]


def test_patterns_match_with_and_without_the_node() -> None:
    rules = [Compress("zstd", blobs="a:w"), Compress("lz4", blobs="*:deep/*")]
    assert choose(rules, "a", "w") == rules[0]
    assert choose(rules, "b", "w") is None
    assert choose(rules, "b", "deep/x/y") == rules[1]
    assert choose([Compress("zstd", blobs="a:tree")], "a", "tree/leaf") is not None
    assert choose([], "a", "w") is None
    assert choose([Compress("zstd", blobs="W")], "a", "w") is None


@pytest.mark.parametrize("now", [(), (LZ4,), (Compress("zstd", 22),)], ids=str)
def test_unchanged_blobs_are_linked_whatever_the_compression_is_now(
    tmp_path: Path, now: tuple[Compress, ...]
) -> None:
    manager = CheckpointManager(tmp_path)
    blobs: dict[str, Value] = {"same": Box(RAMP, "array")}
    for rule in ((ZSTD,), now):
        rules = SaveRules(link="parent", compress=rule)
        blobs["new"] = Box(frozen(RAMP + 1), "array")
        source = BlobSource({"main": dict(blobs)})
        saved = manager.save_snapshot(source, RecordFields(), rules=rules)
    assert saved.linked > 0
    inodes = {manager.catalog.path(id).joinpath("main/same/0").stat().st_ino for id in (0, 1)}
    assert len(inodes) == 1
    assert codecs_of(saved.path, "same")[1] == "zstd"
    metadata = {
        manager.catalog.path(id).joinpath("main/new/zarr.json").read_text() for id in (0, 1)
    }
    assert len(metadata) == 2
    found = manager.load().parts["main"]
    assert all(same(found[name], value) for name, value in blobs.items())


def test_large_elements_are_not_shuffled(tmp_path: Path) -> None:
    for size in (1, 2, 255, 256, 1000):
        whole = frozen(np.frombuffer(bytes(range(20)) * size, f"V{size}"))
        path = save(tmp_path / str(size), {"x": Box(whole, "array")}, LZ4).path
        settings = json.loads((path / "main/x/zarr.json").read_text())["codecs"][1]["configuration"]
        assert settings["typesize"] == (size if size < 256 else 1)
        assert settings["shuffle"] == ("shuffle" if 1 < size < 256 else "noshuffle")
        assert same(read_part(path, "main")["x"], Box(whole, "array"))


def test_it_happens_on_the_writers_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[threading.Thread] = set()
    compress = Compressor.compress

    def watched(self: Compressor, data: Any) -> memoryview:
        threads.add(threading.current_thread())
        return compress(self, data)

    monkeypatch.setattr(Compressor, "compress", watched)
    save(tmp_path, {f"x{i}": Box(RAMP, "array") for i in range(50)}, ZSTD)
    assert threads
    assert threading.current_thread() not in threads


# What cannot be read.


def rewrite(path: Path, change: Any) -> None:
    """Change the metadata of blob x, and all checksums with it, as another program could."""
    meta_path = path / "main/x/zarr.json"
    meta = json.loads(meta_path.read_text())
    change(meta["codecs"])
    data = json.dumps(meta).encode()
    meta_path.write_bytes(data)
    manifest_path = path / "manifest.main.json"
    before = manifest_path.read_bytes()
    manifest = json.loads(before)
    manifest["entries"][1]["files"][0] = ["zarr.json", len(data), f"{crc32c.crc32c(data):08x}"]
    after = json.dumps(manifest).encode()
    manifest_path.write_bytes(after)
    success = path / "_SUCCESS"
    text = success.read_bytes().rpartition(b"crc32c: ")[0]
    text = text.replace(*(f"{crc32c.crc32c(d):08x}".encode() for d in (before, after)))
    success.write_bytes(text + f"crc32c: {crc32c.crc32c(text):08x}\n".encode())


@pytest.mark.parametrize(
    ("names", "shown"),
    [(["brotli"], "compressed with brotli"), (["zstd", "blosc"], "compressed with zstd and blosc")],
)
def test_an_unknown_codec_is_a_clear_error(tmp_path: Path, names: list[str], shown: str) -> None:
    path = save(tmp_path, {"x": Box(RAMP, "array")}).path
    rewrite(path, lambda codecs: codecs.__setitem__(slice(1, 1), [{"name": n} for n in names]))
    with pytest.raises(DamagedError, match=f"{shown}, which this jobrun does not know") as error:
        read_part(path, "main")
    assert str(error.value.where).endswith("main/x/zarr.json")


@pytest.mark.parametrize("codecs", [[], ["crc32c"], ["bytes"], ["crc32c", "zstd", "crc32c"]])
def test_another_order_of_codecs_is_refused(tmp_path: Path, codecs: list[str]) -> None:
    path = save(tmp_path, {"x": Box(RAMP, "array")}).path
    rewrite(path, lambda found: found.__setitem__(slice(None), [{"name": n} for n in codecs]))
    with pytest.raises(DamagedError):
        read_part(path, "main")


@pytest.mark.parametrize("name", ["zstd", "blosc"])
def test_what_is_no_compressed_data_is_a_clear_error(tmp_path: Path, name: str) -> None:
    path = save(tmp_path, {"x": Box(RAMP, "array")}).path
    rewrite(path, lambda codecs: codecs.insert(1, {"name": name}))
    with pytest.raises(DamagedError, match="cannot be decompressed") as error:
        read_part(path, "main")
    assert str(error.value.where).endswith("main/x/0")


def test_a_missing_package_is_not_taken_for_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, {"x": Box(RAMP, "array")})
    path = save(tmp_path, {"x": Box(RAMP, "array")}, LZ4).path
    monkeypatch.setitem(sys.modules, "numcodecs.blosc", None)
    with pytest.raises(NotFoundError, match="needs the package numcodecs"):
        read_part(path, "main")
    with pytest.raises(NotFoundError):  # and not the one before it
        CheckpointManager(tmp_path).load()


def test_nothing_is_imported_where_nothing_is_compressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    monkeypatch.setattr(codecs_module, "import_module", refuse)
    path = save(tmp_path, {"x": Box(RAMP, "array")}, Compress("zstd", blobs="y")).path
    read_part(path, "main")
    assert store(Box(1, "int"), ZSTD).form.codec is None


_TWO_CODECS = """
import sys
import numpy as np
from jobrun import CheckpointManager, load_blobs
from jobrun.model.codecs import CODECS, codec_names
from jobrun.model.policy import Compress
rules = [Compress("lz4", blobs="b*"), Compress("zstd")]
blobs = {f"{n}{i}": np.arange(1000.0) for i in range(4) for n in "ab"}
assert "numcodecs" not in sys.modules
if sys.argv[2] == "write":
    manager = CheckpointManager(sys.argv[1], compress=rules)
    manager.save(0, {"main": blobs}, wait=False)
    manager.close()
assert load_blobs(sys.argv[1]).keys() == blobs.keys()
"""


@pytest.mark.parametrize("what", ["write", "read"])
def test_threads_of_a_new_process_need_several_codecs_at_once(tmp_path: Path, what: str) -> None:
    """The modules of numcodecs import each other in a circle, in which two threads fail."""
    for each in range(3):
        run = tmp_path / (str(each) if what == "write" else "run")
        for kind in dict.fromkeys(["write" if not run.exists() else what, what]):
            command = [sys.executable, "-c", _TWO_CODECS, str(run), kind]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr


def test_a_package_that_is_there_and_broken_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(name: str) -> None:
        raise ImportError("libzstd.so.1: cannot open shared object file")

    monkeypatch.setattr(codecs_module, "import_module", broken)
    with pytest.raises(NotFoundError, match=r"cannot be imported: libzstd\.so\.1"):
        save(tmp_path, {"x": Box(RAMP, "array")}, ZSTD)


def test_the_page_of_the_spec_names_each_codec() -> None:
    page = Path(jobrun.__file__).parent / "docs" / "spec.md"
    (row,) = (line for line in page.read_text("utf-8").splitlines() if "| `compress` |" in line)
    assert all(f"`{name}`" in row for name in codec_names())


@pytest.mark.parametrize("name", sorted(CODECS))
@pytest.mark.parametrize("size", [1, 255, 256, 300, 65_791, 65_792, 200_000])
def test_compressed_bytes_say_what_they_become(name: str, size: int) -> None:
    compressor = Compressor.of(Compress(name), 1)
    for data in (bytes(size), np.random.default_rng(size).bytes(size)):
        assert compressor.codec.content(compressor.compress(data)) == size


@pytest.mark.parametrize("name", sorted(CODECS))
@pytest.mark.parametrize("size", [0, 1, 99, 101, 1 << 20])
def test_a_chunk_of_another_size_is_damaged(name: str, size: int) -> None:
    """Of fewer bytes than the chunk has, the rest was memory that nobody had written."""
    compressor = Compressor.of(Compress(name), 1)
    packed = compressor.compress(bytes(size)) if size else memoryview(b"")
    with pytest.raises(DamagedError, match="but its chunk has 100"):
        compressor.decompress(packed, memoryview(bytearray(b"x" * 100)))


def test_a_chunk_of_unknown_size_is_damaged() -> None:
    """A frame of zstd may leave out its size; ours never do."""
    one_block = bytes([0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x58]) + (100 << 3 | 3).to_bytes(3, "little")
    with pytest.raises(DamagedError, match="an unknown number of bytes"):
        Compressor.of(ZSTD, 1).decompress(memoryview(one_block + b"x"), memoryview(bytearray(100)))
