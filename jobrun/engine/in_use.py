"""The parts that only one ``train`` may use at a time: its runner, its manager and its session.

Two at once, from two threads or from a task, would write into one run, or wait for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from jobrun.checkpoint.manager import CheckpointManager
from jobrun.core.paths import shown
from jobrun.errors import LockedError, UsageError
from jobrun.session.base import Session

__all__ = ["in_use"]

_guard = threading.Lock()
_used: set[int] = set()
"""The ids of objects that are in use; its user holds it."""


@contextmanager
def in_use(runner: object, manager: CheckpointManager | None, session: Session) -> Iterator[None]:
    """Use these alone; raises LockedError or UsageError if another ``train`` uses one of them."""
    objects = [o for o in (runner, manager, session) if o is not None]
    with _guard:
        if manager is not None and id(manager) in _used:
            raise LockedError(
                "the run is held by this CheckpointManager already, in another train()",
                where=shown(manager.run_dir),
                hint="wait for it to end, or use another directory",
            )
        if id(runner) in _used:
            raise UsageError(
                "this JobRunner is in train() already", hint="make a JobRunner for each train()"
            )
        if id(session) in _used:
            raise UsageError(
                "this session runs another job", hint="make a session for each train()"
            )
        _used.update(map(id, objects))
    try:
        yield
    finally:
        with _guard:
            _used.difference_update(map(id, objects))
