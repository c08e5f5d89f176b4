"""``EPOCH ARG...``: run ``jobrun ARG...`` here, killed as soon as a checkpoint is said to be saved.

Run it as ``python -m killed_at``.
"""

from __future__ import annotations

import os
import signal
import sys

from jobrun.cli import main
from jobrun.core.events import CheckpointSaved, Event
from jobrun.report import Broadcast


def kill_after(epoch: int) -> None:
    """Let every fan of reporters end this process when it has told of an epoch's checkpoint."""
    tell = Broadcast.__call__

    def tell_and_die(fan: Broadcast, event: Event) -> None:
        tell(fan, event)
        if isinstance(event, CheckpointSaved) and event.epoch == epoch:
            os.kill(os.getpid(), signal.SIGKILL)

    Broadcast.__call__ = tell_and_die  # type: ignore[method-assign]


if __name__ == "__main__":
    kill_after(int(sys.argv.pop(1)))
    main()
