"""Paths as people write and read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobrun.core.paths import absolute, is_url, shown


def test_an_absolute_path_does_not_go_through_directories_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a/b")
    assert absolute("../../shared/x") == tmp_path.resolve() / "shared/x"
    assert absolute("x") == tmp_path / "a/b/x"


def test_relative_below_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown(tmp_path / "runs/é x") == "runs/é x"
    assert shown("runs/../runs/x") == "runs/x"
    assert shown("s3://bucket/runs/x") == "s3://bucket/runs/x"
    assert shown(tmp_path) == "."
    assert shown(tmp_path.parent / "other") == str(tmp_path.parent.resolve() / "other")


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("s3://b/x", True),
        ("memory://x", True),
        ("runs/x", False),
        ("C:/x", False),
        ("a:b", False),
        (Path("s3://b"), False),
        (None, False),
    ],
)
def test_is_url(text: object, url: bool) -> None:
    assert is_url(text) is url


def test_links_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path / "link")
    assert shown("x") == "x"
    assert shown(tmp_path / "real/x") == "x"
