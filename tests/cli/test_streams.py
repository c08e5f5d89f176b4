"""stdin, stdout and stderr in whatever state the shell has left them."""

from __future__ import annotations

import io
import os
import sys

import pytest

from jobrun.cli.streams import flush_stdout, prepare_streams


class Refusing(io.RawIOBase):
    """A stream that every write to fails."""

    def __init__(self, error: OSError, number: int) -> None:
        self._error = error
        self._number = number

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def write(self, data: object) -> int:
        raise self._error


@pytest.fixture
def number() -> int:
    """A file descriptor of nobody's."""
    return os.open(os.devnull, os.O_WRONLY)


@pytest.mark.parametrize(
    ("error", "told"),
    [(OSError(28, "full"), True), (OSError(5, "torn"), True), (BrokenPipeError(32, "gone"), False)],
)
def test_what_keeps_stdout_from_being_written(
    error: OSError, told: bool, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.TextIOWrapper(io.BufferedWriter(Refusing(error, number)))
    monkeypatch.setattr("sys.stdout", stream)
    stream.write("text")
    assert flush_stdout() is (error if told else None)
    os.close(number)
    with pytest.raises(OSError, match=str(error.errno)):
        stream.detach().detach().write(b"")


@pytest.mark.parametrize(
    ("encoding", "text", "expected"),
    [
        ("utf-8", "é \udcff \udce9", b"\xc3\xa9 \xff \xe9"),
        ("ascii", "é \udcff ●", b"\\xe9 \xff \\u25cf"),
        ("latin-1", "é ●", b"\xe9 \\u25cf"),
        ("utf-8", "\ud800", b"\\ud800"),
    ],
)
def test_every_text_can_be_written(
    encoding: str, text: str, expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding))
    prepare_streams()
    sys.stdout.write(text)
    sys.stdout.flush()
    assert raw.getvalue() == expected


def test_a_handler_that_the_user_has_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), "ascii", "replace"))
    prepare_streams()
    assert sys.stdout.errors == "replace"
