"""A proxy on the loopback interface that injures the HTTP requests to a server behind it.

It faults by a rule: a function of the method, the path and how often that pair was asked for, which
says what to do with the request.  So the faults do not depend on the order in which threads ask,
and each test can state what it meets.  The proxy ends with its block, a request after ten seconds.
"""

from __future__ import annotations

import hashlib
import http.client
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import urlsplit

__all__ = ["FaultyNetwork", "Rule", "faulty_network", "rates"]

_SECONDS = 10.0
"""The longest that a request may take."""

_ERRORS = {
    "throttle": (503, "SlowDown", "Please reduce your request rate."),
    "expired": (403, "ExpiredToken", "The provided token has expired."),
}
Rule = Callable[[str, str, int], str]
"""``rule(method, path, number)`` returns what happens: empty (nothing), ``throttle``, ``expired``,
``reset``, ``delay``, ``flip``, ``cut`` (less than was announced) or ``short`` (less, undetectably).
"""


def rates(seed: int, **shares: float) -> Rule:
    """Return a rule of faults at random: ``rates(1, throttle=0.1, flip=0.05)``."""

    def rule(method: str, path: str, number: int) -> str:
        key = f"{seed} {method} {path} {number}".encode()
        draw = int.from_bytes(hashlib.blake2b(key, digest_size=6).digest()) / 2**48
        for fault, share in shares.items():
            draw -= share
            if draw < 0:
                return fault
        return ""

    return rule


class FaultyNetwork:
    """The proxy: ``rule`` may be replaced at any time; ``met`` counts what happened."""

    def __init__(self, target: str) -> None:
        self.host = urlsplit(target).netloc
        self.rule: Rule = lambda method, path, number: ""
        self.met: Counter[str] = Counter()
        self._asked: Counter[tuple[str, str]] = Counter()
        self._mutex = Lock()

    def fault(self, method: str, path: str) -> str:
        """Return what happens to the next request for this path."""
        with self._mutex:
            number = self._asked[method, path]
            self._asked[method, path] += 1
            fault = self.rule(method, path.partition("?")[0], number)
            self.met[fault or "whole"] += 1
            return fault

    def forget(self) -> None:
        """Count from 0 again."""
        with self._mutex:
            self.met.clear()
            self._asked.clear()


@contextmanager
def faulty_network(target: str) -> Iterator[tuple[FaultyNetwork, str]]:
    """The proxy in front of the server at a URL, and its own URL."""
    network = FaultyNetwork(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = _SECONDS

        def log_message(self, *_: object) -> None: ...

        def do_any(self) -> None:
            _handle(self, network)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = do_any  # noqa: N815

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield network, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _handle(request: BaseHTTPRequestHandler, network: FaultyNetwork) -> None:
    body = _body(request)
    fault = network.fault(request.command, request.path)
    if fault == "reset":
        _reset(request)
        return
    if fault in _ERRORS:
        _refuse(request, *_ERRORS[fault])
        return
    if fault == "delay":
        time.sleep(0.3)
    upwards = request.command == "PUT"
    if upwards and body and fault == "flip":
        body = _flipped(body, len(body) // 3)
    status, headers, answer = _forward(request, network.host, body)
    if not upwards and answer and fault == "flip":
        answer = _flipped(answer, len(answer) // 2)
    length = len(answer)
    if not upwards and fault in ("cut", "short"):
        answer = answer[: length // 2]
    if fault == "short":
        length = len(answer)
    _answer(request, status, headers, answer, length)


def _body(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("Expect", "").lower() == "100-continue":
        request.send_response_only(100)
        request.end_headers()
    if "chunked" not in request.headers.get("Transfer-Encoding", ""):
        return request.rfile.read(int(request.headers.get("Content-Length", 0)))
    found = b""
    while size := int(request.rfile.readline().split(b";")[0], 16):
        found += request.rfile.read(size)
        request.rfile.readline()
    request.rfile.readline()
    return found


def _forward(
    request: BaseHTTPRequestHandler, host: str, body: bytes
) -> tuple[int, list[tuple[str, str]], bytes]:
    left_out = ("transfer-encoding", "expect", "connection", "content-length")
    headers = {k: v for k, v in request.headers.items() if k.lower() not in left_out}
    server = http.client.HTTPConnection(host, timeout=_SECONDS)
    try:
        server.request(request.command, request.path, body, headers | {"Connection": "close"})
        answer = server.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        server.close()


def _answer(
    request: BaseHTTPRequestHandler,
    status: int,
    headers: list[tuple[str, str]],
    answer: bytes,
    length: int,
) -> None:
    announced = next((v for k, v in headers if k.lower() == "content-length"), "0")
    head = request.command == "HEAD"
    request.send_response_only(status)
    for name, value in headers:
        if name.lower() not in ("transfer-encoding", "connection", "content-length"):
            request.send_header(name, value)
    request.send_header("Content-Length", announced if head else str(length))
    request.end_headers()
    with suppress(OSError):
        request.wfile.write(b"" if head else answer)
    if length > len(answer):
        request.close_connection = True


def _refuse(request: BaseHTTPRequestHandler, status: int, code: str, text: str) -> None:
    """Answer as S3 does: without a body if only the head was asked for."""
    answer = f"<Error><Code>{code}</Code><Message>{text}</Message></Error>".encode()
    request.send_response_only(status)
    request.send_header("Content-Type", "application/xml")
    request.send_header("Content-Length", str(len(answer)))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(answer)


def _reset(request: BaseHTTPRequestHandler) -> None:
    """End the connection with a reset, as a router or a crashing server does."""
    linger = struct.pack("ii", 1, 0)
    request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    request.close_connection = True
    request.connection.close()


def _flipped(data: bytes, place: int) -> bytes:
    """Return bytes of which one bit differs; not at one place for both directions, or both heal."""
    harmed = bytearray(data)
    harmed[place] ^= 0x10
    return bytes(harmed)
