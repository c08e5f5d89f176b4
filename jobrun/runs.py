"""Finding runs in a directory of runs, by name, path or spec, and naming new ones."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from jobrun.checkpoint.fs import DEFAULT, Fs
from jobrun.checkpoint.record import SUCCESS
from jobrun.errors import LockedError, NotFoundError, UsageError, did_you_mean
from jobrun.rundir import RunDir, RunState, none_whole

__all__ = [
    "claim",
    "find_checkpoint",
    "find_run",
    "fresh_name",
    "list_runs",
    "run_of_spec",
    "series",
]


def list_runs(runs_dir: str | os.PathLike[str]) -> list[RunDir]:
    """The runs of a directory, in order of their names."""
    try:
        names = sorted(e.name for e in os.scandir(runs_dir) if e.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    runs = (RunDir(Path(runs_dir) / n) for n in names if not n.startswith("."))
    return [run for run in runs if run.is_run()]


def series(runs_dir: str | os.PathLike[str], name: str) -> list[RunDir]:
    """The runs ``<name>``, ``<name>-2``, …, newest first."""
    numbered = [(n, run) for run in list_runs(runs_dir) if (n := _number(run.path.name, name))]
    return [run for _, run in sorted(numbered, key=lambda pair: -pair[0])]


def fresh_name(runs_dir: str | os.PathLike[str], name: str) -> Path:
    """Where the next fresh run of ``name`` goes: ``<name>``, else ``<name>-2``, ….

    The number is above all that are there, so that the highest is always the newest.
    """
    try:
        taken = [n for entry in os.listdir(runs_dir) if (n := _number(entry, name))]
    except (FileNotFoundError, NotADirectoryError):
        taken = []
    number = max(taken, default=0) + 1
    return Path(runs_dir) / (name if number == 1 else f"{name}-{number}")


def claim(runs_dir: str | os.PathLike[str], name: str, *, fs: Fs = DEFAULT) -> RunDir:
    """Make the directory of the next fresh run, and hold it: two processes never get the same one.

    One in which a process died before it had begun is taken again.  Raises SaveError where no
    directory can be made.
    """
    while True:
        run = RunDir(_unborn(runs_dir, name) or fresh_name(runs_dir, name), fs=fs)
        try:
            run.lock()
        except LockedError:  # another process is about to begin there
            continue
        if not run.is_run():
            return run
        run.unlock()


def _unborn(runs_dir: str | os.PathLike[str], name: str) -> Path | None:
    """The newest directory of a series, if all that ever came into it was claimed and given up."""
    path = fresh_name(runs_dir, name)
    number = _number(path.name, name) - 1
    last = path.with_name(name if number == 1 else f"{name}-{number}")
    if number < 1 or not last.is_dir() or not RunDir(last).is_empty() or RunDir(last).held():
        return None
    return last


def _number(entry: str, name: str) -> int:
    """The number of a run in the series of ``name``; 0 for other entries."""
    if entry == name:
        return 1
    found = re.fullmatch(re.escape(name) + r"-([1-9][0-9]*)", entry)
    return int(found[1]) if found and int(found[1]) > 1 else 0


def run_of_spec(
    runs_dir: str | os.PathLike[str], name: str, digest: str | None = None
) -> RunDir | None:
    """The run that ``train`` goes on with: of the series of ``name``, the newest of the same job.

    Where no run is of this very job (``digest``), the newest of the series; None where there is
    none.
    """
    runs = series(runs_dir, name)
    same = [r for r in runs if (s := r.state()) is not None and s.digest == digest]
    return next(iter([*same, *runs]), None)


def find_run(runs_dir: str | os.PathLike[str], argument: str | None = None) -> RunDir:
    """The run that a user means.

    Without an argument: the current directory if it is a run, else the newest unfinished run (one
    that no process holds, if there is such), else the newest.  A ``.yaml`` file: the newest run of
    that spec.  Else the name of a run in ``runs_dir``, or a path.  Raises NotFoundError.
    """
    if argument is None:
        here = RunDir(Path.cwd())
        return here if here.is_run() else _newest(list_runs(runs_dir), f"no run in {runs_dir}")
    if argument.endswith((".yaml", ".yml")):
        spec = Path(argument).resolve()
        runs = [run for run in list_runs(runs_dir) if _is_of(run, spec)]
        return _newest(runs, f"no run of {argument} in {runs_dir}", by_state=False)
    named = RunDir(Path(runs_dir) / argument)
    if os.sep not in argument.rstrip(os.sep) and argument not in (".", "..") and named.is_run():
        return named
    run = RunDir(argument)
    if run.is_run():
        return run
    raise _no_run(runs_dir, argument)


def find_checkpoint(
    runs_dir: str | os.PathLike[str],
    argument: str | None = None,
    *,
    epoch: int | None = None,
    id: int | None = None,
) -> Path:
    """The directory of the checkpoint that a user means: one of a run, or its own path.

    Without ``epoch`` and ``id`` it is the newest of the run.  Raises NotFoundError.
    """
    if argument is not None and (Path(argument) / SUCCESS).is_file():
        if epoch is not None or id is not None:
            raise UsageError(f"{argument} is one checkpoint: no epoch or id can be chosen in it")
        return Path(argument)
    run = find_run(runs_dir, argument)
    record = run.checkpoint(epoch=epoch, id=id)
    if record is None:
        if lost := run.damaged():
            raise none_whole(lost, run.shown())
        raise NotFoundError("the run has no checkpoint", where=run.shown())
    return run.catalog.path(record.id)


def _no_run(runs_dir: str | os.PathLike[str], argument: str) -> NotFoundError | UsageError:
    path = Path(argument)
    if (path / SUCCESS).is_file():
        way = f"name the run, and the checkpoint by --id: {path.parent} --id {path.name[11:]}"
        return UsageError(f"{argument} is a checkpoint, not a run", hint=way)
    if path.is_dir() and (runs := list_runs(path)):
        way = f"--runs-dir {argument}, or one of {', '.join(r.path.name for r in runs[:5])}"
        return NotFoundError(f"{argument} is not a run but holds runs", hint=way)
    names = [run.path.name for run in list_runs(runs_dir)]
    known = f"there are {', '.join(names[:8])}" if names else f"there is no run in {runs_dir}"
    return NotFoundError(f"no run {argument!r}", hint=did_you_mean(argument, names) or known)


def _newest(runs: Sequence[RunDir], missing: str, *, by_state: bool = True) -> RunDir:
    """The newest run, unfinished ones first, and of these such that nobody holds."""
    states = [(state, run) for run in runs if (state := run.state()) is not None]
    if not states:
        hint = "jobrun train SPEC starts one; --runs-dir names another directory of runs"
        raise NotFoundError(missing, hint=hint)

    def rank(pair: tuple[RunState, RunDir]) -> tuple[int, str]:
        state = pair[0]
        rank = 0 if state.over else 1 if state.state == "running" else 2
        return (rank if by_state else 0, state.updated)

    return max(states, key=rank)[1]


def _is_of(run: RunDir, spec: Path) -> bool:
    """Whether a run was made from this spec file, wherever both have moved together."""
    state = run.state()
    if state is None or state.spec != spec.name:
        return False
    folders = [Path(state.folder)] if state.folder else []
    if state.folder_relative:
        folders.append(run.path.resolve() / state.folder_relative)
    return any((folder / spec.name).resolve() == spec for folder in folders)
