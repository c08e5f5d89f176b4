"""An S3 server on the loopback interface: a process of its own, which ends with the block."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

BUCKET = "checkpoints"
_START = """
import sys, threading
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
print(port, flush=True)
sys.stdin.read()  # until whoever started it goes
server.stop()
"""


@contextmanager
def s3_server() -> Iterator[tuple[str, str]]:
    """The endpoint of a server and an empty bucket of it; skipped where moto or s3fs is missing."""
    pytest.importorskip("moto")
    pytest.importorskip("s3fs")
    server = subprocess.Popen(
        [sys.executable, "-c", _START],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # a line for each request
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
        _make_bucket(endpoint)
        yield endpoint, BUCKET
    finally:
        server.stdin.close()
        try:
            server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _make_bucket(endpoint: str) -> None:
    request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
    for _ in range(100):
        try:
            with urllib.request.urlopen(request, timeout=10):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the S3 server does not answer")
