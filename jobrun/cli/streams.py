"""stdin, stdout and stderr, in any state in which the shell leaves them."""

from __future__ import annotations

import codecs
import io
import os
import sys

__all__ = ["flush_stdout", "prepare_streams"]

_HANDLER = "jobrun.literal"


def prepare_streams() -> None:
    """Open closed streams, and make stdout accept every string.

    A closed one is replaced by /dev/null: else the next file that is opened, such as
    one of a checkpoint, would get its number, and all output.  A byte of a path that is not
    text is written as it is; a character that the encoding lacks, as an escape.
    """
    names = ("stdin", "stdout", "stderr")
    for number, name in enumerate(names):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one
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
    """Write the buffered output; return the error that prevents it, if any.

    A closed pipe is not an error: its reader has read all it needs.  The rest is dropped, so
    that nothing is reported at exit.  If a task has closed stdout, there is no rest.
    """
    if sys.stdout.closed:
        return None
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return None if isinstance(error, BrokenPipeError) else error
    return None
