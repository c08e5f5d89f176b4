"""The command line: one file per command, no logic, nothing imported before it is needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from jobrun.cli.leaving import report_waiting
from jobrun.cli.signals import leave_until_there_is_a_run
from jobrun.core import gc_tuning

__all__ = ["main"]

_WITH_RUN = ("train", "resume")
"""The commands that handle signals by ending a run; the signals end others."""


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run a command and end the process with its exit code."""
    if os.name == "nt":
        sys.exit("jobrun needs Linux or macOS (on Windows: the Linux subsystem, WSL)")
    words = list(sys.argv[1:] if args is None else args)
    runs = next((word for word in words if not word.startswith("-")), "") in _WITH_RUN
    if runs:
        leave_until_there_is_a_run()
    gc_tuning.rare()
    try:
        from jobrun.cli.app import run
        from jobrun.cli.streams import prepare_streams

        prepare_streams()
        code = run(words)
    except KeyboardInterrupt:  # before the command started, or after its end
        code = 130
    if runs:
        report_waiting()
    sys.exit(code)
