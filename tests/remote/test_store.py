"""What every store must obey, whatever is behind it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from jobrun.errors import NotFoundError, StoreError, UsageError
from jobrun.remote.store import is_url, join, open_store, split


def test_what_is_written_is_read_back(place: str) -> None:
    store = open_store(place)
    store.write("a/b/c.bin", b"first")
    store.write("a/b/c.bin", memoryview(b"second"))
    store.write("a/empty", b"")
    assert store.read("a/b/c.bin") == b"second"
    assert store.read("a/empty") == b""
    assert store.sizes("a") == {"b/c.bin": 6, "empty": 0}
    assert store.sizes("a/b") == {"c.bin": 6}
    assert store.folders() == ["a"]
    assert open_store(join(place, "a")).read("b/c.bin") == b"second"


def test_what_is_not_there(place: str) -> None:
    store = open_store(place)
    assert store.sizes("x") == {}
    assert store.folders() == []
    with pytest.raises(NotFoundError, match="there is no such file") as caught:
        store.read("x/y")
    assert str(caught.value).startswith(join(store.place, "x/y"))


def test_names_that_begin_alike_are_apart(place: str) -> None:
    store = open_store(place)
    store.write("checkpoint_1/f", b"1")
    store.write("checkpoint_10/f", b"10")
    assert store.sizes("checkpoint_1") == {"f": 1}
    assert store.folders() == ["checkpoint_1", "checkpoint_10"]


def test_a_local_file_is_never_half_there(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.write("f", b"x" * 100)
    assert os.listdir(tmp_path) == ["f"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(StoreError, match=r"mkdir failed|list failed|open failed") as caught:
        open_store(str(tmp_path / "file" / "below")).write("f", b"")
    assert caught.value.exit_code == 1


def test_a_bucket_that_is_not_there(s3: str) -> None:
    store = open_store("s3://no-such-bucket-here/run")
    with pytest.raises(StoreError, match="write failed"):
        store.write("f", b"")


def test_a_missing_extra_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(UsageError, match=r"needs fsspec") as caught:
        open_store("s3://bucket/run")
    assert caught.value.hint == "pip install 'jobrun[s3]'"
    with pytest.raises(UsageError) as caught:
        open_store("memory://run")
    assert caught.value.hint == "pip install 'jobrun[remote]'"


def test_an_unknown_kind_of_url() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(UsageError, match="cannot be opened"):
        open_store("nothing-of-that-kind://x/y")


@pytest.mark.parametrize(
    ("text", "url"),
    [("s3://b/x", True), ("memory://x", True), ("runs/x", False), ("C:/x", False), ("a:b", False)],
)
def test_is_url(text: str, url: bool) -> None:
    assert is_url(text) is url


def test_join_and_split() -> None:
    assert join("s3://b/x/", "y", "z") == "s3://b/x/y/z"
    assert split("s3://b/x/checkpoint_3/") == ("s3://b/x", "checkpoint_3")
