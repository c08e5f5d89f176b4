from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from checkpoint_helpers import CountingFs, frozen, save

from jobrun.checkpoint.catalog import Catalog, listed, prove, span
from jobrun.checkpoint.loading import find, newest
from jobrun.checkpoint.record import Record
from jobrun.core.position import Position
from jobrun.errors import DamagedError, NotFoundError
from jobrun.values.boxes import Box


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for epoch in range(3):
        save(tmp_path, epoch=epoch)
    return tmp_path


def ids(run: Path) -> list[int]:
    return [record.id for record in listed(run)]


def reasons(run: Path) -> dict[str, str]:
    return {entry.name: entry.reason for entry in Catalog(run).ignored()}


def test_checkpoints_are_listed_by_rising_id(run: Path) -> None:
    assert ids(run) == [0, 1, 2]
    assert [record.epoch for record in listed(run)] == [0, 1, 2]
    assert reasons(run) == {}


def test_latest_is_the_highest_number_not_the_last_string_nor_the_newest_file(
    tmp_path: Path,
) -> None:
    for epoch in range(11):
        save(tmp_path, epoch=epoch)
    for k in range(11):
        os.utime(tmp_path / f"checkpoint_{k}", (k, 10_000 - k))
        os.utime(tmp_path / f"checkpoint_{k}/_SUCCESS", (k, 10_000 - k))
    latest = newest(Catalog(tmp_path))
    assert latest is not None
    assert latest.id == 10


def test_no_directory_holds_no_checkpoints(tmp_path: Path) -> None:
    assert listed(tmp_path / "none") == []
    assert newest(Catalog(tmp_path / "none")) is None
    assert Catalog(tmp_path / "none").next_id() == 0
    assert Catalog(tmp_path / "none").next_id(5) == 5


def test_stray_entries_are_never_taken_for_checkpoints(run: Path) -> None:
    (run / ".DS_Store").write_text("x")
    (run / "notes.txt").write_text("x")
    (run / "checkpoint_x").mkdir()
    (run / "checkpoint_").mkdir()
    (run / "checkpoint_01").mkdir()
    (run / "checkpoint_4").write_text("a file")
    (run / "checkpoint_5").mkdir()
    (run / "checkpoint_6").symlink_to(run / "checkpoint_2")
    shutil.copytree(run / "checkpoint_1", run / "checkpoint_7")
    shutil.copytree(run / "checkpoint_1", run / "checkpoint_1_old")
    shutil.copytree(run / "checkpoint_1", run / "checkpoint_1 (copy)")
    os.mkfifo(run / "checkpoint_8")
    assert ids(run) == [0, 1, 2]
    found = reasons(run)
    assert found == {
        "checkpoint_x": "the name is not checkpoint_<number>",
        "checkpoint_": "the name is not checkpoint_<number>",
        "checkpoint_01": "the name is not checkpoint_<number>",
        "checkpoint_1_old": "the name is not checkpoint_<number>",
        "checkpoint_1 (copy)": "the name is not checkpoint_<number>",
        "checkpoint_4": "it is not a directory",
        "checkpoint_5": "_SUCCESS: it is missing",
        "checkpoint_6": "it is not a directory",
        "checkpoint_7": "it is a copy of checkpoint 1",
        "checkpoint_8": "it is not a directory",
    }
    assert Catalog(run).next_id() == 9


def test_copying_the_run_changes_nothing(
    run: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copy = tmp_path_factory.mktemp("elsewhere") / "copy"
    subprocess.run(["cp", "-r", run, copy], check=True)
    assert listed(copy) == listed(run)


@pytest.mark.parametrize("name", ["checkpoint_12", "checkpoint_0012", "attempts/1/checkpoint_12"])
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_an_id_above_all_there_ever_were(run: Path, name: str, kind: str) -> None:
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).mkdir() if kind == "directory" else (run / name).touch()
    assert Catalog(run).next_id() == 13
    assert Catalog(run).next_id(20) == 20


def test_by_epoch_takes_the_newest_at_that_boundary(run: Path) -> None:
    save(run, epoch=1)
    save(run, position=Position(epochs=1, tasks=("main/a",)))
    assert find(Catalog(run), 1).id == 3
    with pytest.raises(NotFoundError, match=r"no checkpoint of epoch 5; there are 0\.\.2$"):
        find(Catalog(run), 5)


def test_a_missing_epoch_says_what_was_ignored(run: Path) -> None:
    (run / "checkpoint_2/_SUCCESS").unlink()
    with pytest.raises(NotFoundError, match="no checkpoint of epoch 2; there are 0, 1") as error:
        find(Catalog(run), 2)
    assert error.value.hint == "checkpoint_2 is ignored: _SUCCESS: it is missing"


def test_a_damaged_one_is_listed_but_not_whole_and_not_exchanged_for_another(run: Path) -> None:
    (run / "checkpoint_2/main/model/w/0.0").unlink()
    assert ids(run) == [0, 1, 2]
    assert [Catalog(run).is_whole(id) for id in (1, 2)] == [True, False]
    (damaged,) = Catalog(run).damaged()
    assert (damaged.id, damaged.reason) == (2, "main/model/w/0.0: it is missing")
    latest = newest(Catalog(run))
    assert latest is not None
    assert latest.id == 1
    for call in (lambda: find(Catalog(run), 2), lambda: find(Catalog(run), id=2)):
        with pytest.raises(DamagedError, match=r"checkpoint_2/main/model/w/0\.0: it is missing"):
            call()
    with pytest.raises(NotFoundError, match=r"no checkpoint of id 9; there are 0\.\.2"):
        find(Catalog(run), id=9)


def test_what_is_chosen_of_records_is_whole(run: Path) -> None:
    catalog = Catalog(run)
    asked: list[list[int]] = []

    def newest_of(records: Sequence[Record]) -> Record | None:
        asked.append([record.id for record in records])
        return records[-1] if records else None

    (run / "checkpoint_2/manifest.main.json").unlink()
    (run / "checkpoint_0/zarr.json").unlink()
    chosen = catalog.whole(catalog.listed(), newest_of)
    assert chosen is not None
    assert chosen.id == 1
    assert asked == [[0, 1, 2], [0, 1]]
    (run / "checkpoint_1/main/model/w/0.0").write_bytes(b"")
    assert catalog.whole(catalog.listed(), newest_of) is None


def test_only_success_is_read_to_list(run: Path) -> None:
    fs = CountingFs()
    Catalog(run, fs).listed()
    read = [path for op, path in fs.done if op == "read"]
    assert [path.removeprefix(f"{run}/") for path in read] == [
        f"checkpoint_{id}/_SUCCESS" for id in range(3)
    ]


def test_a_flipped_bit_is_listed_but_not_proven(run: Path) -> None:
    chunk = run / "checkpoint_1/main/model/w/0.0"
    data = bytearray(chunk.read_bytes())
    data[17] ^= 4
    chunk.write_bytes(data)
    assert ids(run) == [0, 1, 2]
    first, second, _ = listed(run)
    prove(run, first)
    with pytest.raises(DamagedError, match="checksum"):
        prove(run, second)


def test_proving_reads_files_of_several_blocks(tmp_path: Path) -> None:
    big = Box(frozen(np.arange(300_000, dtype="f8")), "array")
    chunk = save(tmp_path, {"x": big}) / "main/x/0"
    prove(tmp_path, listed(tmp_path)[0])
    data = bytearray(chunk.read_bytes())
    data[-1] ^= 1  # the checksum itself
    chunk.write_bytes(data)
    with pytest.raises(DamagedError, match="checksum"):
        prove(tmp_path, listed(tmp_path)[0])


def test_listing_imports_neither_numpy_nor_zarr(run: Path) -> None:
    code = (
        "import sys; from jobrun.checkpoint import catalog;"
        f"assert len(catalog.listed({str(run)!r})) == 3;"
        "print([m for m in ('numpy', 'zarr', 'rich', 'pydantic') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], "none"), ([3], "3"), ([0, 1], "0, 1"), ([4, 0, 1, 2, 3], "0..4"),
        ([0, 1, 2, 5, 7, 8, 9, 9], "0..2, 5, 7..9"),
    ],
)  # fmt: skip
def test_span(numbers: list[int], text: str) -> None:
    assert span(numbers) == text
