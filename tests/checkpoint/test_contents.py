"""What lies in a checkpoint, and what checkpoints take of the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from checkpoint_helpers import SAMPLE, array, save

from jobrun.checkpoint.catalog import Catalog
from jobrun.checkpoint.contents import (
    contents,
    disk_use,
    disk_use_text,
    freed_by,
    small_disk_use,
)
from jobrun.core.text import size


def test_leaves_in_order_with_bytes_and_versions(tmp_path: Path) -> None:
    path = save(tmp_path, SAMPLE)
    record, items = contents(path)
    assert record.id == 0
    assert [i.name for i in items] == [
        *("model/w", "model/b", "model/steps/0", "model/steps/1"),
        "total",
    ]
    for item in items:
        files = list((path / "main" / item.name).iterdir())
        assert item.bytes == sum(f.stat().st_size for f in files)
        assert (item.version, item.links) == (0, 1)
        assert item.stored == "written"


def test_linked_values(tmp_path: Path) -> None:
    blobs = {"a": array(1, 2, 3), "b": array(4)}
    first = save(tmp_path, blobs)
    second = save(tmp_path, {**blobs, "b": array(5)}, epoch=1)
    items = contents(second)[1]
    a, b = items
    assert a.version == 0
    assert b.version == 1
    for name in os.listdir(first / "main/a"):
        (second / "main/a" / name).unlink()
        os.link(first / "main/a" / name, second / "main/a" / name)
    a, b = contents(second)[1]
    assert (a.links, a.stored) == (2, "linked")
    assert (b.stored) == "written"
    assert contents(first)[1][0].stored == "written"


def test_an_inode_counts_once(tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    for folder in (one, two, three):
        (folder / "deep").mkdir(parents=True)
    (one / "deep/a").write_bytes(b"x" * 100)
    os.link(one / "deep/a", two / "deep/a")
    (two / "b").write_bytes(b"y" * 10)
    os.link(two / "b", three / "b")

    def blocks(*paths: Path) -> int:
        return sum(512 * path.stat().st_blocks for path in paths)

    deep = [folder / "deep" for folder in (one, two, three)]
    a, b = one / "deep/a", two / "b"
    assert blocks(a) > 0
    assert disk_use([one, two]) == blocks(a, b, one, two, *deep[:2])
    assert disk_use([one, two, three]) == blocks(a, b, one, two, three, *deep)
    assert freed_by([one]) == blocks(one, deep[0])
    assert freed_by([one, two]) == blocks(a, one, two, *deep[:2])
    assert freed_by([one, two, three]) == blocks(a, b, one, two, three, *deep)
    assert (disk_use([]), freed_by([])) == (0, 0)
    assert disk_use([tmp_path / "gone"]) == 0


def test_the_room_of_many_files_is_their_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in range(2):
        save(tmp_path, epoch=epoch)
    catalog = Catalog(tmp_path)
    records = catalog.listed()
    files = sum(record.files for record in records)
    use = disk_use(tmp_path / f"checkpoint_{id}" for id in range(2))
    monkeypatch.setattr("jobrun.checkpoint.contents.MOST_FILES", files)
    assert small_disk_use(catalog, records) == use
    assert disk_use_text(catalog, records) == f"{size(use)} on disk"
    monkeypatch.setattr("jobrun.checkpoint.contents.MOST_FILES", files - 1)
    assert small_disk_use(catalog, records) is None
    written = size(sum(record.bytes for record in records))
    assert disk_use_text(catalog, records) == f"{written} in {files} files"
