"""Places to upload to: a directory, fsspec's memory, and a bucket of a real S3 server."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_server import s3_server


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The URL of a bucket on a server of this machine, until the tests are over."""
    with s3_server() as (endpoint, bucket):
        settings = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        yield f"s3://{bucket}"
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


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
