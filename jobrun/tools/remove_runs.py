"""The removal of whole runs and sweeps that no process holds."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jobrun.checkpoint.contents import freed_by
from jobrun.errors import JobrunError
from jobrun.runs.rundir import RunDir
from jobrun.runs.sweepdir import SweepDir
from jobrun.storage.fs import DEFAULT, FsError

__all__ = ["remove", "space_of"]


def space_of(path: Path) -> int:
    """Return the bytes that removing a directory frees: files that others link stay."""
    return freed_by([path])


def remove(target: RunDir | SweepDir) -> int:
    """Remove a run, or a sweep with all its runs; return the bytes that this frees.

    It takes another, hidden name first: a crash leaves no half of a run.  Raises LockedError while
    a process holds it or one of its runs, and JobrunError, naming it, if it cannot be removed.
    """
    freed = space_of(target.path)
    hidden = target.path.with_name(f".removed-{secrets.token_hex(4)}")
    try:
        with _held(target):
            DEFAULT.rename(str(target.path), str(hidden))
            DEFAULT.sync_dir(str(target.path.parent))
            DEFAULT.remove_tree(str(hidden))
    except FsError as error:
        raise JobrunError(f"it cannot be removed: {error}", where=target.shown()) from error
    return freed


@contextmanager
def _held(target: RunDir | SweepDir) -> Iterator[None]:
    """Hold the locks of a run, or of a sweep and all its runs, while the context lasts."""
    locked = [target] if isinstance(target, RunDir) else [target.home, *target.runs()]
    with ExitStack() as stack:
        for run in locked:
            run.lock()
            stack.callback(run.unlock)
        yield
