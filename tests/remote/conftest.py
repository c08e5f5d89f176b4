"""Places to upload to: a directory, fsspec's memory, and a bucket of a real S3 server."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest


@pytest.fixture(params=["directory", "file", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place of each kind."""
    name = secrets.token_hex(8)
    if request.param == "directory":
        return str(tmp_path / "elsewhere")
    if request.param == "file":
        return f"file://{tmp_path}/elsewhere"
    if request.param == "memory":
        pytest.importorskip("fsspec")
        return f"memory://{name}"
    return f"{request.getfixturevalue('s3')}/{name}"
