"""Makes the helpers of ``tests/support`` importable."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))
from s3_server import s3_server

pytest.register_assert_rewrite("engine", "examples", "golden", "oracle")


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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test marked ``sampled(n)`` every n-th case is run; all of them under JOBRUN_LONG."""
    if os.environ.get("JOBRUN_LONG"):
        return
    seen: dict[str, int] = {}
    kept, left_out = [], []
    for item in items:
        marker = item.get_closest_marker("sampled")
        name = item.nodeid.partition("[")[0]
        number = seen[name] = seen.get(name, -1) + 1
        (left_out if marker and number % marker.args[0] else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
