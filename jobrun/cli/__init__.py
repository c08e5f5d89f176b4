"""The command line: one file per command, no logic, nothing imported before it is needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from jobrun import collecting

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run a command and end the process with its exit code."""
    if os.name == "nt":
        sys.exit("jobrun needs Linux or macOS (on Windows: the Linux subsystem, WSL)")
    collecting.rare()
    try:
        from jobrun.cli.app import run
        from jobrun.cli.streams import prepare_streams

        prepare_streams()
        code = run(sys.argv[1:] if args is None else args)
    except KeyboardInterrupt:  # before the command had begun, or after its end
        code = 130
    sys.exit(code)
