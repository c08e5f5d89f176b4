"""The runs ``<name>``, ``<name>-2``, … of one name: listing them, naming and claiming the next."""

from __future__ import annotations

import os
import re
from pathlib import Path

from jobrun.errors import LockedError, NotFoundError
from jobrun.runs.rundir import RunDir
from jobrun.runs.sweepdir import folders_in

__all__ = [
    "claim",
    "claim_after",
    "directories",
    "fresh_name",
    "newest_begun",
    "numbered",
    "series",
]


def series(runs_dir: str | os.PathLike[str], name: str) -> list[RunDir]:
    """Return the runs ``<name>``, ``<name>-2``, …, newest first; no sweeps."""
    runs = [RunDir(path) for path in numbered(runs_dir, name)]
    return [run for run in runs if run.is_run()]


def directories(runs_dir: str | os.PathLike[str]) -> list[Path]:
    """Return the directories in a directory of runs in order of their names, no hidden ones."""
    names = folders_in(Path(runs_dir))
    return [Path(runs_dir) / name for name in names if not name.startswith(".")]


def numbered(runs_dir: str | os.PathLike[str], name: str) -> list[Path]:
    """Return the directories ``<name>``, ``<name>-2``, …, newest first."""
    paths = [path for path in directories(runs_dir) if _number(path.name, name)]
    return sorted(paths, key=lambda path: -_number(path.name, name))


def fresh_name(runs_dir: str | os.PathLike[str], name: str) -> Path:
    """Return the path of the next fresh run of ``name``: ``<name>``, else ``<name>-2``, ….

    The number is above all that are there, so that the highest is always the newest.
    """
    try:
        taken = [n for entry in os.listdir(runs_dir) if (n := _number(entry, name))]
    except (FileNotFoundError, NotADirectoryError):
        taken = []
    except OSError as error:
        text = f"it cannot be read: {error.strerror}"
        raise NotFoundError(text, where=str(runs_dir)) from error
    number = max(taken, default=0) + 1
    return Path(runs_dir) / (name if number == 1 else f"{name}-{number}")


def claim(runs_dir: str | os.PathLike[str], name: str) -> RunDir:
    """Make the directory of the next fresh run, and hold it: two processes never get the same one.

    One in which a process died before it had begun is taken again.  Raises SaveError where no
    directory can be made.
    """
    refused: Path | None = None
    while True:
        unborn = _unborn(runs_dir, name)
        run = RunDir(unborn if unborn not in (None, refused) else fresh_name(runs_dir, name))
        try:
            run.lock()
        except LockedError:  # another process is about to begin there
            refused = run.path
            continue
        if run.is_empty():
            return run
        run.unlock()


def newest_begun(runs_dir: str | os.PathLike[str], name: str) -> Path | None:
    """Return the newest directory of a series in which a run or sweep has begun.

    One that was just made for a run is none: what will come into it is not known yet.
    """
    series = numbered(runs_dir, name)
    return next((path for path in series if not RunDir(path).is_empty()), None)


def claim_after(
    runs_dir: str | os.PathLike[str],
    name: str,
    seen: Path | None,
    *,
    beside: bool = False,
) -> RunDir | None:
    """Make the run directory that follows ``seen``, and hold it.

    ``seen`` was the newest in which a run had begun when it was decided that a new one is made.

    Of processes that have decided on the same, one gets it.  The lock of that one directory is what
    they meet at.  ``beside``: make one whatever others do.

    Return None if another one was made since and is over already: what is to be done has to be
    decided again.  Raises LockedError where another process is at it, and SaveError
    where no directory can be made.
    """
    if beside:
        return claim(runs_dir, name)
    path = next(iter(numbered(runs_dir, name)), None)
    if path is None or (seen is not None and path.name == seen.name):
        path = fresh_name(runs_dir, name)
    run = RunDir(path)
    run.lock()
    if run.is_empty():
        return run
    run.unlock()
    return None


def _unborn(runs_dir: str | os.PathLike[str], name: str) -> Path | None:
    """Return the newest directory of a series if it was claimed, and given up before its run."""
    path = fresh_name(runs_dir, name)
    number = _number(path.name, name) - 1
    last = path.with_name(name if number == 1 else f"{name}-{number}")
    if number < 1 or not os.path.isdir(last) or not RunDir(last).is_empty() or RunDir(last).held():
        return None
    return last


def _number(entry: str, name: str) -> int:
    """Return the number of a run in the series of ``name``; 0 for other entries."""
    if entry == name:
        return 1
    found = re.fullmatch(re.escape(name) + r"-([1-9][0-9]*)", entry)
    return int(found[1]) if found and int(found[1]) > 1 else 0
