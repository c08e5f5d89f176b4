from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pytest
from checkpoint_helpers import (
    SAMPLE,
    CountingFs,
    MeetingFs,
    array,
    frozen,
    same_blobs,
    save,
)

from jobrun.checkpoint import integrity
from jobrun.checkpoint.manifest import decode_manifest
from jobrun.checkpoint.part import check_part, mark_saved, write_part
from jobrun.checkpoint.reading import read_part
from jobrun.errors import ValueRefusedError
from jobrun.storage.fs import Fs
from jobrun.storage.threads import THREADS
from jobrun.values.boxes import Box, Tree, Value


def manifest(path: Path) -> Any:
    return json.loads((path / "manifest.main.json").read_text())


@pytest.mark.parametrize(
    ("blobs", "message"),
    [
        ({"../x": array(1)}, "cannot name a blob"),
        ({".x": array(1)}, "cannot name a blob"),
        ({"": array(1)}, "cannot name a blob"),
        ({"a//b": array(1)}, "cannot name a blob"),
        ({"zarr.json": array(1)}, "zarr.json"),
        ({"t": Tree("dict", {"a b": array(1)})}, "cannot name a blob"),
        ({"t": Tree("dict", {"a/b": array(1)})}, "holds a slash"),
        ({"a": array(1), "A": array(2)}, "differ in case only"),
        (
            {"t": Tree("dict", {"x": array(1), "X": array(2)})},
            "'t/x' and 't/X' differ in case only",
        ),
        ({"a": array(1), "a/b": array(2)}, "'a/b' lies under the blob 'a'"),
        ({"a/b": array(1), "a": array(2)}, "under 'a', which is a blob itself"),
        ({"a": Tree("dict", {}), "a/b": array(2)}, "lies under"),
        ({"o": Box(object(), "opaque")}, "'o'.*cannot be saved"),
        ({"t": Tree("dict", {"o": Box(np.array([None]), "opaque")})}, "'t/o'.*cannot be saved"),
        ({"o": Box(np.array([None]), "array")}, "'o'.*cannot be saved"),
    ],
)
def test_names_and_values_are_refused_before_anything_is_written(
    tmp_path: Path, blobs: dict[str, Value], message: str
) -> None:
    with pytest.raises(ValueRefusedError, match=message):
        write_part(tmp_path, "main", blobs, id=0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "node", ["", ".", "..", "a/b", "a:b", "_SUCCESS", "manifest.x.json", "zarr.json"]
)
def test_names_of_nodes_are_refused(node: str) -> None:
    with pytest.raises(ValueRefusedError):
        check_part(node, {})


def test_longdouble_is_refused_naming_the_blob(tmp_path: Path) -> None:
    blobs: dict[str, Value] = {"x": Box(np.zeros(2, "longdouble"), "array")}
    with pytest.raises(ValueRefusedError, match="'x'"):
        write_part(tmp_path, "main", blobs, id=0)
    assert list(tmp_path.iterdir()) == []


def test_the_manifest_lists_all_files_in_the_order_of_keys(tmp_path: Path) -> None:
    path = save(tmp_path)
    entries = manifest(path)["entries"]
    assert [e["path"] for e in entries] == [
        "", "model", "model/w", "model/b", "model/steps", "model/steps/0", "model/steps/1", "total",
    ]  # fmt: skip
    listed = {f"main/{e['path']}/{f[0]}".replace("//", "/") for e in entries for f in e["files"]}
    on_disk = {p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()}
    assert on_disk - listed == {"_SUCCESS", "manifest.main.json", "zarr.json"}
    assert listed - on_disk == set()


def test_an_entry_is_one_line_of_json(tmp_path: Path) -> None:
    lines = (save(tmp_path) / "manifest.main.json").read_text().splitlines()
    entries = [json.loads(line.rstrip(",")) for line in lines[1:-1]]
    assert entries == manifest(tmp_path / "checkpoint_0")["entries"]


def test_scalars_have_no_chunk_and_all_else_has_each_of_its_chunks(tmp_path: Path) -> None:
    blobs: dict[str, Value] = {
        "zero": Box(frozen(np.zeros(3)), "array"),
        "point": Box(frozen(np.array(1.5)), "array"),
        "empty": Box(frozen(np.zeros((0, 3))), "array"),
        "text": Box("x", "str"),
        "odd": Box(np.array(0xFFF8000000000000, "u8").view("f8")[()], "scalar"),
    }
    path = save(tmp_path, blobs)
    chunks = {name: sorted(p.name for p in (path / "main" / name).iterdir()) for name in blobs}
    assert chunks == {
        "zero": ["0", "zarr.json"],
        "point": ["zarr.json"],
        "empty": ["zarr.json"],
        "text": ["zarr.json"],
        "odd": ["0", "zarr.json"],
    }


def test_the_manifest_has_the_checksum_of_the_payload(tmp_path: Path) -> None:
    path = save(tmp_path, {"x": array(1, 2, 3)})
    data = (path / "main/x/0").read_bytes()
    (_, (_, length, crc)) = manifest(path)["entries"][1]["files"]
    assert length == 24 == len(data) - 4
    assert int(crc, 16) == crc32c.crc32c(data[:-4]) == int.from_bytes(data[-4:], "little")


def test_a_value_keeps_the_version_of_its_first_checkpoint(tmp_path: Path) -> None:
    blobs: dict[str, Value] = {"old": array(1), "new": array(2)}
    path = tmp_path / "part"
    path.mkdir()
    write_part(path, "main", {"old": blobs["old"]}, id=3)
    assert isinstance(blobs["old"], Box)
    assert blobs["old"].version == -1  # not before the checkpoint is durable
    mark_saved({"old": blobs["old"]}, 3)
    other = tmp_path / "other"
    other.mkdir()
    write_part(other, "main", blobs, id=4)
    data = (other / "manifest.main.json").read_bytes()
    versions = {e.path: e.version for e in decode_manifest(data, "").entries}
    assert versions == {"": None, "old": 3, "new": 4}
    mark_saved(blobs, 4)
    assert [b.version for b in blobs.values() if isinstance(b, Box)] == [3, 4]


def test_one_box_under_two_names_is_saved_under_both(tmp_path: Path) -> None:
    box = array(1, 2)
    found = read_part(save(tmp_path, {"a": box, "t": Tree("list", {"0": box})}), "main")
    assert isinstance(found["a"], Box)
    assert isinstance(found["t"], Tree)
    assert found["a"].value.tolist() == [1, 2] == found["t"].items["0"].value.tolist()  # type: ignore[union-attr]


def test_many_files_are_synced_at_once_and_few_one_by_one(tmp_path: Path) -> None:
    few, many = CountingFs(), CountingFs()
    save(tmp_path / "few", {"x": array(1)}, fs=few)
    save(tmp_path / "many", {f"x{i}": array(i) for i in range(40)}, fs=many)
    written = {path for op, path in few.done if op in ("open", "mkdir") and ".partial-" in path}
    assert written <= {path for op, path in few.done if op == "fsync"}
    assert (
        "syncfs" in {op for op, _ in many.done}
        or len([op for op, _ in many.done if op == "fsync"]) > 2 * 40
    )


def test_of_very_many_files_some_are_synced_while_others_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobrun.checkpoint.part.FLUSH_EACH", 10)
    fs = CountingFs()
    if not fs.sync_all(str(tmp_path)):
        pytest.skip("this file system cannot sync all at once")
    path = save(tmp_path, {f"x{i}": array(i) for i in range(40)}, fs=fs)
    ops = [op for op, _ in fs.done]
    syncs = [i for i, op in enumerate(ops) if op == "syncfs"]
    assert 2 <= len(syncs) <= 5
    success = next(i for i, (_, name) in enumerate(fs.done) if "_SUCCESS" in name)
    written = max(i for i, (op, name) in enumerate(fs.done) if op == "close" and "/main" in name)
    assert written < syncs[-1] < success
    assert len(read_part(path, "main")) == 40


# Threads.


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("others", [0, 40])
def test_large_chunks_are_written_by_all_threads_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """And synced by them, where there are few files."""
    monkeypatch.setattr("jobrun.checkpoint.writing.LARGE", 64)
    blobs: dict[str, Value] = {"x": Box(frozen(np.arange(16.0 * THREADS)), "array")}
    blobs |= {f"y{i}": array(i) for i in range(others)}
    fs = MeetingFs("write" if others else "fsync")
    if others and not fs.sync_all(str(tmp_path)):
        fs = MeetingFs("fsync")
    found = read_part(save(tmp_path, blobs, fs=fs), "main")
    assert len(fs.met) == THREADS
    assert threading.get_ident() not in fs.met
    assert same_blobs(found, blobs)


@pytest.mark.usefixtures("small_chunks")
def test_large_chunks_are_read_by_all_threads_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each proves what it has read."""
    monkeypatch.setattr("jobrun.checkpoint.leaf_reading.LARGE", 64)
    blobs: dict[str, Value] = {"x": Box(frozen(np.arange(16.0 * THREADS)), "array"), "y": array(1)}
    path, fs = save(tmp_path, blobs), MeetingFs("open")
    proofs: set[int] = set()
    prove = integrity._prove

    def proving(*how: Any) -> None:
        prove(*how)
        proofs.add(threading.get_ident())

    monkeypatch.setattr(integrity, "_prove", proving)
    assert same_blobs(read_part(path, "main", fs=fs), blobs)
    assert len(fs.met) == THREADS
    assert proofs - {threading.get_ident()} == fs.met


@pytest.fixture
def never_switching() -> Iterator[None]:
    """A thread that runs goes on until it lets go of the interpreter's lock by itself."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(100)
    yield
    sys.setswitchinterval(before)


def lets_others_run(call: Callable[[], object], most: int) -> bool:
    """Whether a thread that wants to run comes to it while ``call`` is made, ``most`` times.

    Once is enough where it is let: only on a busy machine the thread takes longer to wake up.
    """
    go, ran = threading.Event(), list[bool]()

    def run() -> None:
        go.wait(60)
        ran.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    go.set()
    for _ in range(most):
        call()
        if ran:
            break
    found = bool(ran)
    thread.join(60)
    return found


@pytest.mark.usefixtures("never_switching")
def test_checksums_and_writes_let_other_threads_run(tmp_path: Path) -> None:
    data = memoryview(bytes(8 << 20))
    assert lets_others_run(lambda: crc32c.crc32c(data), 1000)
    with (tmp_path / "file").open("wb") as file:
        assert lets_others_run(lambda: Fs().writev(file.fileno(), [data]), 60)
    assert not lets_others_run(lambda: bytes(data).count(1), 3), "what does not is told apart"


def test_sample_is_what_it_says() -> None:
    model = SAMPLE["model"]
    assert isinstance(model, Tree)
    assert [box.value.nbytes for box in list(model.items.values())[:2]] == [192, 192]  # type: ignore[union-attr]
