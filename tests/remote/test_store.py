"""What every store must obey, whatever is behind it."""

from __future__ import annotations

import errno
import gzip
import os
import socket
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from jobrun.errors import NotFoundError, StoreError, UsageError
from jobrun.remote.failures import refuses_range
from jobrun.remote.store import TooLongError, _Directory, join, open_store, split
from jobrun.storage.fs import Fs


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


def test_a_name_that_holds_the_number_of_an_answer_is_a_name(place: str) -> None:
    """416 is the answer to a range of an empty file; a missing file is none, whatever its name."""
    store = open_store(f"{place}/run-7416a 416")
    for name in ("_SUCCESS", "416", "a 416 b/416"):
        with pytest.raises(NotFoundError):
            store.read(name)
        store.write(name, b"")
        assert store.read(name) == b""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.EINVAL, "The requested range is not satisfiable"), True),
        (RuntimeError("416, message='Range Not Satisfiable'"), True),
        (RuntimeError("HTTP error: 416 for a range"), True),
        (PermissionError(errno.EACCES, "denied", "/bucket/x416/416-y"), False),
        (FileNotFoundError("a 416 b"), False),
        (OSError(errno.EIO, "no answer"), False),
    ],
)
def test_what_refuses_a_range(error: Exception, expected: bool) -> None:
    assert refuses_range(error) is expected


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
    looks: list[Callable[[], object]] = [
        lambda: store.read("f"),
        lambda: store.sizes(""),
        store.folders,
    ]
    for look in looks:
        with pytest.raises(StoreError, match="there is no such bucket") as caught:
            look()
        assert str(caught.value.where).startswith("s3://no-such-bucket-here/run")


@pytest.mark.usefixtures("s3")
def test_an_endpoint_where_nobody_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    fsspec = pytest.importorskip("fsspec")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    with pytest.raises(StoreError, match="read failed: EndpointConnectionError"):
        open_store("s3://bucket/run").read("f")
    fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.mark.usefixtures("s3")
def test_an_endpoint_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up after the time of six attempts: with the usual 15 seconds a minute and a half.

    The limits of its libraries are 25 attempts.
    """
    fsspec = pytest.importorskip("fsspec")
    settings = {"config_kwargs": {"read_timeout": 0.1}}
    monkeypatch.setitem(fsspec.config.conf, "s3", settings)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        with pytest.raises(StoreError, match=r"read failed: TimeoutError: no answer within 0\.6 s"):
            open_store("s3://bucket/run").read("f")
        silent.setblocking(False)
        assert 1 <= connections(silent) <= 6
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def test_a_store_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other than S3, which has limits of its own: each call ends after a time."""
    fsspec = pytest.importorskip("fsspec")
    enough, asked = Event(), []

    class Silent(fsspec.AbstractFileSystem):  # type: ignore[misc]
        protocol = "silent"

        def _never(self, *args: object, **options: object) -> None:
            asked.append(args[0])
            enough.wait(30)

        makedirs = pipe_file = cat_file = find = ls = _never

    fsspec.register_implementation("silent", Silent, clobber=True)
    monkeypatch.setattr("jobrun.remote.store._LIMIT", 0.05)
    store = open_store("silent://there/run")
    calls: list[tuple[str, Callable[[], object]]] = [
        ("write", lambda: store.write("f", b"12")),
        ("read", lambda: store.read("f")),
        ("list", lambda: store.sizes("")),
        ("list", store.folders),
    ]
    try:
        for op, call in calls:
            with pytest.raises(StoreError, match=f"{op} failed: TimeoutError: no answer") as caught:
                call()
            assert str(caught.value.where).startswith("silent://there/run")
    finally:
        enough.set()
    assert len(asked) == len(calls)


def test_a_store_whose_server_does_not_greet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some connect as soon as they are opened."""
    pytest.importorskip("fsspec")
    monkeypatch.setattr("jobrun.remote.store._LIMIT", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"ftp://127.0.0.1:{silent.getsockname()[1]}/run"
        with pytest.raises(StoreError, match="open failed: TimeoutError: no answer within"):
            open_store(place)


def connections(server: socket.socket) -> int:
    """How many wait at a server."""
    count = 0
    with suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            count += 1
    return count


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


def test_join_and_split() -> None:
    assert join("s3://b/x/", "y", "z") == "s3://b/x/y/z"
    assert split("s3://b/x/checkpoint_3/") == ("s3://b/x", "checkpoint_3")


class Full(Fs):
    """A disk without room."""

    def at(self, op: str, path: str) -> None:
        if op == "fsync":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_place_is_not_filled_with_parts_of_files(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(StoreError, match="fsync failed: No space left"):
            _Directory(tmp_path, Full()).write("f", b"x" * 100)
    assert os.listdir(tmp_path) == []


def test_a_place_that_cannot_be_looked_into(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    store = open_store(str(tmp_path / "loop"))
    looks: list[Callable[[], object]] = [store.folders, lambda: store.sizes("")]
    for look in looks:
        with pytest.raises(StoreError, match="list failed: Too many levels") as caught:
            look()
        assert caught.value.where == str(tmp_path / "loop")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The URL of a web server that shows ``tmp_path``."""
    pytest.importorskip("aiohttp")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_web_server_whose_lists_tell_no_lengths(served: str, tmp_path: Path) -> None:
    open_store(str(tmp_path)).write("a/b/c.bin", b"second")
    store = open_store(served)
    assert store.folders() == ["a"]
    assert store.read("a/b/c.bin") == b"second"
    assert store.sizes("a") == {"b/c.bin": 6}


@pytest.fixture
def hostile() -> Iterator[str]:
    """The URL of a web server whose files never end, or are small and decompress to gigabytes."""
    pytest.importorskip("aiohttp")
    bomb = gzip.compress(bytes(64 << 20))

    class Hostile(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            self.send_response(200)
            if self.path.endswith("endless"):
                self.end_headers()
                with suppress(OSError):
                    while True:
                        self.wfile.write(bytes(1 << 16))
            else:
                self.send_header("Content-Encoding", "gzip")
                self.end_headers()
                with suppress(OSError):
                    for _ in range(64):
                        self.wfile.write(bomb)

    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("name", ["endless", "bomb"])
def test_no_more_of_a_file_is_held_than_it_may_have(hostile: str, name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(TooLongError, match="longer than 1 MiB"):
            open_store(hostile).read(name, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_a_length_is_a_limit_everywhere(place: str) -> None:
    store = open_store(place)
    store.write("f", b"12345")
    assert store.read("f", 5) == b"12345"
    with pytest.raises(TooLongError, match="longer than 4 bytes"):
        store.read("f", 4)


def test_a_connection_that_is_refused_is_no_bug() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(StoreError, match="open failed: ConnectionRefusedError"):
        open_store("ftp://127.0.0.1:9/run")
