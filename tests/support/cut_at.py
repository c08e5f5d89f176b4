"""``PLACE ARG...``: run ``jobrun ARG...`` here, with SIGTERM at a place inside an epoch.

The place is the number, from 0, of the look of the session for a cut, over all epochs: it looks
between tasks and between batches.  Run it as ``python -m cut_at``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from itertools import count

from jobrun import LocalSession
from jobrun.analysis.graph import Plan
from jobrun.cli import main
from jobrun.core.position import Position
from jobrun.session.base import Control


def cut_at(place: int) -> None:
    """Let every local session interrupt this process at its look number ``place``."""
    looks, run = count(), LocalSession.run

    def run_and_cut(
        self: LocalSession, plan: Plan, position: Position, control: Control
    ) -> Position:
        def cut() -> bool:
            if next(looks) == place:
                os.kill(os.getpid(), signal.SIGTERM)
                while not control.cut():  # the main thread has yet to take the signal
                    time.sleep(0.001)
            return control.cut()

        return run(
            self, plan, position, replace(control, cut=cut) if plan.group == "epoch" else control
        )

    LocalSession.run = run_and_cut  # type: ignore[method-assign]


if __name__ == "__main__":
    cut_at(int(sys.argv.pop(1)))
    main()
