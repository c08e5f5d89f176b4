"""Whole-file output: a file that a user requested is complete, or absent.

The file is written beside its target and renamed once it is durable.  The earlier file stays until
then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jobrun.core.paths import resolved
from jobrun.errors import UsageError
from jobrun.storage.fs import DEFAULT, Fs

__all__ = ["whole_file", "write_text"]


@contextmanager
def whole_file(target: Path, *, fs: Fs = DEFAULT) -> Iterator[Path]:
    """Give a path to write to, which is renamed to ``target`` at the end of the context.

    A link is followed; what is not a regular file, such as /dev/stdout, is written directly.
    Raises UsageError, naming the target, if the system refuses.
    """
    real = resolved(target)
    part = real.with_name(f".{real.name}.{os.urandom(4).hex()}")
    try:
        if os.path.exists(real) and not os.path.isfile(real):
            yield real
            return
        try:
            yield part
            fs.sync_file(str(part))
            fs.replace(str(part), str(real))
        except BaseException:
            with suppress(OSError):
                fs.unlink(str(part))
            raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UsageError(f"it cannot be written: {reason}", where=str(target)) from error


def write_text(target: Path, text: str) -> None:
    """Write a text file, UTF-8."""
    with whole_file(target) as path:
        path.write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
