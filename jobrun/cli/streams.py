"""stdin, stdout and stderr, in whatever state the shell has left them."""

from __future__ import annotations

import codecs
import io
import os
import sys

__all__ = ["flush_stdout", "prepare_streams"]

_HANDLER = "jobrun.literal"


def prepare_streams() -> None:
    """Open what is closed, and let stdout take every text.

    In place of one that is closed there is /dev/null: else the next file that is opened, such as
    one of a checkpoint, would get its number, and all that is printed.  A byte of a path that is no
    text is written as it is; a character that the encoding does not have, as an escape.
    """
    names = ("stdin", "stdout", "stderr")
    for number, name in enumerate(names):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))
    codecs.register_error(_HANDLER, _literal)
    stdout = sys.stdout
    if isinstance(stdout, io.TextIOWrapper) and stdout.errors in ("strict", "surrogateescape"):
        stdout.reconfigure(errors=_HANDLER)


def _literal(error: UnicodeError) -> tuple[bytes | str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    parts = (bytes([ord(c) - 0xDC00]) if "\udc80" <= c <= "\udcff" else _escape(c) for c in text)
    return b"".join(parts), error.end


def _escape(character: str) -> bytes:
    return character.encode("ascii", "backslashreplace")


def flush_stdout() -> OSError | None:
    """Write what waits to be written; gives what keeps it from being written.

    A reader that has gone keeps nothing: it has read all it wanted.  What is left is dropped, so
    that nothing is said of it at exit.  Where a task has closed stdout, nothing is left.
    """
    if sys.stdout.closed:
        return None
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return None if isinstance(error, BrokenPipeError) else error
    return None
