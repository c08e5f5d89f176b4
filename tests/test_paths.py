"""Paths as people read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobrun.paths import shown


def test_relative_below_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown(tmp_path / "runs/é x") == "runs/é x"
    assert shown("runs/../runs/x") == "runs/x"
    assert shown(tmp_path) == "."
    assert shown(tmp_path.parent / "other") == str(tmp_path.parent.resolve() / "other")


def test_links_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path / "link")
    assert shown("x") == "x"
    assert shown(tmp_path / "real/x") == "x"
