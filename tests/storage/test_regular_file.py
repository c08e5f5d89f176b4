from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from jobrun.errors import DamagedError
from jobrun.storage.regular_file import (
    open_regular,
    open_run_file,
    read_run_file,
    refuse_not_regular,
    whole_lines,
)


def link(path: Path) -> None:
    path.with_name("target").write_text("x")
    path.symlink_to("target")


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


KINDS: list[tuple[Callable[[Path], object], str]] = [
    (link, "a symbolic link"), (dangling, "a symbolic link"), (loop, "a symbolic link"),
    (os.mkfifo, "a fifo"), (Path.mkdir, "a directory"), (listening, "a socket"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "kind"), KINDS, ids=lambda value: getattr(value, "__name__", ""))
def test_anything_but_a_regular_file_is_named_and_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object], kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x"
    make(path)
    for call in (open_run_file, refuse_not_regular, lambda path: read_run_file(path, 10)):
        with pytest.raises(DamagedError, match=r"it is a .*, not a file") as caught:
            call(path)
        assert caught.value.where == str(path)
    with pytest.raises(DamagedError, match=f"it is {kind}, not a file"):
        refuse_not_regular(path)
    for flags in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT):
        with pytest.raises(OSError, match=r"not a file|Is a directory") as refused:
            open_regular(path, flags)
        assert refused.value.filename == str(path)


def test_what_is_missing_is_missing(tmp_path: Path) -> None:
    refuse_not_regular(tmp_path / "x")
    with pytest.raises(FileNotFoundError):
        open_run_file(tmp_path / "x")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        read_run_file(tmp_path / "file/x", 10)


def test_no_more_than_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    assert read_run_file(path, 5) == b"12345"
    with pytest.raises(DamagedError, match="longer than 4 bytes, the limit"):
        read_run_file(path, 4)
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DamagedError, match="longer than 2 MiB"):
        read_run_file(path, 2 << 20)


def test_a_line_has_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"1\n12\n123")
    with open_run_file(path) as file:
        assert list(whole_lines(file, path, 3)) == [b"1\n", b"12\n", b"123"]
    path.write_bytes(b"1\n1234\n")
    with open_run_file(path) as file, pytest.raises(DamagedError, match="longer than 3 bytes"):
        list(whole_lines(file, path, 3))
