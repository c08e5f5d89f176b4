"""Specs as the command line names them: a file, or ``-`` for stdin."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobrun.jobspec.resolve import Spec

__all__ = ["STDIN", "load_spec", "shown_spec"]

STDIN = "<stdin>"


def shown_spec(argument: str) -> str:
    """Return the name of a spec in messages."""
    return STDIN if argument == "-" else argument


def load_spec(
    argument: str,
    sets: Iterable[str] = (),
    *,
    epochs: int | None = None,
    code: str | None = None,
) -> Spec:
    """Return the spec of a file or of stdin, whose code is in the current directory.

    ``code`` is the folder of the code, if it is another one.  Raises UsageError and SpecError as
    ``jobrun.jobspec.resolve.load`` does.
    """
    from jobrun.jobspec.parsing import MAX_BYTES
    from jobrun.jobspec.resolve import load

    data = sys.stdin.buffer.read(MAX_BYTES + 1) if argument == "-" else None
    return load(shown_spec(argument), sets, epochs=epochs, folder=code, data=data)
