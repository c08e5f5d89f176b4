from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest
from checkpoint_helpers import CountingFs, FailingFs, save

from jobrun.checkpoint.catalog import listed
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.publish import clean_leftovers, discard, publish, staged
from jobrun.errors import SaveError
from jobrun.storage.fs import FsError


def names(run: Path) -> list[str]:
    return sorted(p.name for p in run.iterdir() if p.name != "lock")


def test_a_partial_directory_goes_when_the_save_fails(tmp_path: Path) -> None:
    def interrupted() -> None:
        with staged(tmp_path, 3) as partial:
            (Path(partial) / "x").touch()
            assert names(tmp_path) == [Path(partial).name]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names(tmp_path) == []


def test_the_error_names_operation_file_and_reason(tmp_path: Path) -> None:
    with pytest.raises(SaveError) as error:
        save(tmp_path, fs=FailingFs(0, errno.ENOSPC, ops=frozenset({"write"})))
    text = str(error.value)
    assert text.startswith("checkpoint 0 was not saved: write of ")
    assert "No space left on device (ENOSPC)" in text
    assert "checkpoint.keep.last" in error.value.hint
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", ["directory", "file", "link"])
def test_nothing_is_overwritten(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "checkpoint_3"
    if kind == "directory":
        target.mkdir()
    elif kind == "file":
        target.write_text("mine")
    else:
        target.symlink_to("nowhere")
    with pytest.raises(SaveError, match="EEXIST"), staged(tmp_path, 3) as partial:
        publish(partial, 3)
    assert names(tmp_path) == ["checkpoint_3"]
    assert target.is_symlink() == (kind == "link")


def test_a_checkpoint_whose_rename_is_not_durable_is_not_left_there(tmp_path: Path) -> None:
    saved = CountingFs()
    save(tmp_path / "a", fs=saved)
    fsyncs = [path for op, path in saved.done if op == "fsync"]
    assert fsyncs[-1] == str(tmp_path / "a")
    (tmp_path / "b").mkdir()
    fs = FailingFs(len(fsyncs) - 2, errno.EIO, ops=frozenset({"fsync"}))  # b exists: one fsync less
    with pytest.raises(SaveError, match="EIO"):
        save(tmp_path / "b", fs=fs)
    assert fs.failures == [("fsync", str(tmp_path / "b"))]
    assert names(tmp_path / "b") == []


def test_everything_is_durable_before_the_rename_and_the_rename_after(tmp_path: Path) -> None:
    fs = CountingFs()
    save(tmp_path, fs=fs)
    ops = [(op, path.replace(str(tmp_path), "")) for op, path in fs.done]
    rename = ops.index(("rename", "/checkpoint_0"))
    assert ops[rename + 1] == ("fsync", "")
    made = {path for op, path in ops[:rename] if op in ("open", "mkdir") and ".partial-" in path}
    synced = {path for op, path in ops[:rename] if op == "fsync"}
    assert made <= synced
    success = next(i for i, (op, path) in enumerate(ops) if op == "open" and "_SUCCESS" in path)
    assert all("/main/" not in path for _, path in ops[success:])


@pytest.mark.parametrize("nodes", [3, 30])
def test_the_parts_of_all_nodes_are_durable_before_the_record(tmp_path: Path, nodes: int) -> None:
    """Few files each by itself; the many of many nodes by one syncfs, where that can be."""
    fs = CountingFs()
    blobs = {f"n{i}": {"x": np.arange(3.0), "n": i} for i in range(nodes)}
    with CheckpointManager(tmp_path / "run", fs=fs) as manager:
        manager.save(1, blobs)
        assert manager.load().record.manifests.keys() == blobs.keys()
    record = fs.done.index(next(d for d in fs.done if d[0] == "open" and "_SUCCESS" in d[1]))
    before = [(op, path) for op, path in fs.done[:record] if "/n" in path or "manifest" in path]
    made = {path for op, path in before if op in ("open", "mkdir")}
    assert len(made) == nodes * 8  # three folders with four files, and the manifest
    if nodes == 30 and fs.sync_all(str(tmp_path)):
        whole = [i for i, (op, _) in enumerate(fs.done) if op == "syncfs"]
        assert [fs.done.index(before[-1]) + 1] == whole
    else:
        assert made <= {path for op, path in before if op == "fsync"}


def test_discard_takes_the_name_away_first(tmp_path: Path) -> None:
    save(tmp_path)
    fs = CountingFs()
    discard(tmp_path, 0, fs)
    assert [op for op, _ in fs.done] == ["rename", "fsync", "rmtree"]
    assert names(tmp_path) == []
    with pytest.raises(FsError, match="ENOENT"):
        discard(tmp_path, 0)


def test_only_leftovers_of_our_own_are_cleaned(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    run = tmp_path / "run"
    save(run)
    ours = [".checkpoint_7.partial-0123456789abcdef", ".checkpoint_0.trash-0123456789abcdef"]
    for name in ours:
        (run / name / "main").mkdir(parents=True)
        (run / name / "main" / "x").touch()
        (run / name / "link").symlink_to(outside)
    foreign = [
        ".checkpoint_7.partial-xyz",
        ".checkpoint_7.partial",
        ".checkpoint_x.trash-0123456789abcdef",
        "x.checkpoint_7.partial-0123456789abcdef",
        ".hidden",
    ]
    for name in foreign:
        (run / name).mkdir()
    (run / ".checkpoint_8.partial-0123456789abcdef").symlink_to(outside)
    (run / ".checkpoint_9.partial-0123456789abcdef").write_text("a file")
    assert sorted(clean_leftovers(run)) == sorted(ours)
    assert (outside / "precious").exists()
    assert set(foreign) <= set(names(run))
    assert (run / ".checkpoint_8.partial-0123456789abcdef").is_symlink()
    assert (run / ".checkpoint_9.partial-0123456789abcdef").is_file()
    assert [r.id for r in listed(run)] == [0]
