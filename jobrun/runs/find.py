"""Finding runs and sweeps in a directory of runs: by name, path or spec.

The runs of a sweep are found like all others; their names are ``<sweep>/<combination>``.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from jobrun.checkpoint.catalog import CHECKPOINT_NAME, Catalog
from jobrun.checkpoint.loading import is_checkpoint, none_whole
from jobrun.core.paths import is_url, resolved
from jobrun.core.ranking import first_best
from jobrun.core.suggestions import did_you_mean, did_you_mean_or_all, listed
from jobrun.errors import DamagedError, JobrunError, NotFoundError, UsageError
from jobrun.runs.run_state import RunState
from jobrun.runs.rundir import RunDir
from jobrun.runs.series import directories, numbered, series
from jobrun.runs.sweepdir import SweepDir, SweepState, runs_at, sweep_of

__all__ = [
    "code_folder",
    "find_checkpoint",
    "find_run",
    "find_runs",
    "find_sweep",
    "is_of",
    "list_runs",
    "list_sweeps",
    "names_apart",
    "remembered_code",
    "run_of_spec",
    "runs_begun",
    "sweep_of_spec",
    "unfinished_after",
    "unreadable",
]


def list_runs(runs_dir: str | os.PathLike[str]) -> list[RunDir]:
    """Return the runs of a directory by name; those of a sweep stand at its place.

    One that may not be looked into is among them: its ``state`` says why.  Raises NotFoundError
    where the directory itself cannot be looked into.
    """
    found: list[RunDir] = []
    for path in directories(runs_dir):
        sweep = SweepDir(path)
        found += sweep.runs() if sweep.is_sweep() else runs_at([path])
    return found


def list_sweeps(runs_dir: str | os.PathLike[str]) -> list[SweepDir]:
    """Return the sweeps of a directory by name."""
    return [sweep for path in directories(runs_dir) if (sweep := SweepDir(path)).is_sweep()]


def unreadable(runs_dir: str | os.PathLike[str]) -> list[tuple[RunDir, str]]:
    """Return the runs of a directory that cannot be read, and why."""
    found = []
    for run in list_runs(runs_dir):
        try:
            run.state()
        except NotFoundError as error:
            found.append((run, error.message))
        except JobrunError:
            continue
    return found


def run_of_spec(
    runs_dir: str | os.PathLike[str], name: str, digest: str | None = None
) -> RunDir | None:
    """Return the run that ``train`` resumes: of the series of ``name``, the newest of the same job.

    Where no run is of this very job (``digest``), the newest of the series; None where there is
    none.
    """
    runs = series(runs_dir, name)
    same = [r for r in runs if (s := _state_of(r)) is not None and s.digest == digest]
    return next(iter([*same, *runs]), None)


def unfinished_after(runs_dir: str | os.PathLike[str], name: str, run: RunDir) -> RunDir | None:
    """Return the newest run of the series of ``name`` if it is newer than ``run`` and not over."""
    newest = next(iter(series(runs_dir, name)), None)
    if newest is None or newest.path == run.path:
        return None
    state = _state_of(newest)
    return newest if state is not None and not state.over else None


def sweep_of_spec(
    runs_dir: str | os.PathLike[str], name: str, digest: str | None = None
) -> SweepDir | None:
    """Return the same for sweeps; ``digest`` is that of the job without the matrix."""
    sweeps = [s for path in numbered(runs_dir, name) if (s := SweepDir(path)).is_sweep()]
    same = [s for s in sweeps if (state := _state(s)) is not None and state.digest == digest]
    return next(iter([*same, *sweeps]), None)


def _state(sweep: SweepDir) -> SweepState | None:
    try:
        return sweep.state()
    except DamagedError:
        return None


def remembered_code(runs_dir: str | os.PathLike[str], name: str, spec: Path) -> Path | None:
    """Return the folder of the code of the newest run or sweep, in the series of ``name``, of a
    spec file; None where there is none.
    """
    for path in numbered(runs_dir, name):
        sweep = SweepDir(path)
        state = _state(sweep) if sweep.is_sweep() else _state_of(RunDir(path))
        folder = code_folder(path, state, spec) if state is not None else None
        if folder is not None:
            return folder
    return None


def find_sweep(runs_dir: str | os.PathLike[str], argument: str | None = None) -> SweepDir | None:
    """Return the sweep that a user asks to resume, or None if it is a run or nothing.

    Without an argument: the current directory if it is a sweep, else that of the run that
    ``find_run`` gives.  A ``.yaml`` file: the newest sweep of that spec, if no run of its own is
    newer.  Else the name of a sweep in ``runs_dir``, or a path.
    """
    if argument is None:
        here = SweepDir(Path.cwd())
        if here.is_sweep() or RunDir(Path.cwd()).is_run():
            return here if here.is_sweep() else None
        if not list_runs(runs_dir):  # a sweep of which no run has begun
            return next(iter(list_sweeps(runs_dir)), None)
        return sweep_of(find_run(runs_dir, unfinished=True))
    if argument.endswith((".yaml", ".yml")):
        return _sweep_of_file(runs_dir, Path(argument))
    paths = [Path(argument)]
    if os.sep not in argument.rstrip(os.sep) and argument not in (".", ".."):
        paths.insert(0, Path(runs_dir) / argument)
    return next((s for path in paths if (s := SweepDir(path)).is_sweep()), None)


def _sweep_of_file(runs_dir: str | os.PathLike[str], spec: Path) -> SweepDir | None:
    states = [(s, state) for s in list_sweeps(runs_dir) if (state := _state(s)) is not None]
    sweeps = [(state.updated, s) for s, state in states if _is_from(s.path, state, spec)]
    if not sweeps:
        return None
    updated, newest = max(sweeps, key=lambda pair: pair[0])
    runs = [r for r in list_runs(runs_dir) if sweep_of(r) is None and is_of(r, spec)]
    newer = any(own.updated > updated for r in runs if (own := _state_of(r)) is not None)
    return None if newer else newest


def find_run(
    runs_dir: str | os.PathLike[str], argument: str | None = None, *, unfinished: bool = False
) -> RunDir:
    """Return the run that a user means.

    Without an argument: the current directory if it is a run, else the newest of those that are
    running, else the newest.  To resume, it is the newest ``unfinished`` one first, which no
    process holds, if there is such.  A ``.yaml`` file: the newest run of
    that spec.  ``@latest``: the one that was worked on last.  ``@best``, ``@best:loss``: see
    ``_best``.  Else the name of a run in ``runs_dir``, a path, or what only one name begins with.
    Raises NotFoundError, with the runs that may be meant, and UsageError for a sweep.
    """
    if argument is None:
        here = RunDir(Path.cwd())
        if here.is_run():
            return here
        first = _resumable if unfinished else _running
        return _newest(list_runs(runs_dir), f"no run in {runs_dir}", first)
    if argument.endswith((".yaml", ".yml")):
        spec = Path(argument)
        every = list_runs(runs_dir)
        runs = [run for run in every if is_of(run, spec)]
        known = [s.spec for run in every if (s := _state_of(run)) is not None and s.spec]
        hint = did_you_mean(spec.name, known) if not runs and not os.path.exists(spec) else ""
        missing = f"no run of {argument} in {runs_dir}"
        return _newest(runs, missing, hint=hint)
    if argument.startswith("@"):
        return _by_word(runs_dir, argument)
    named, path = RunDir(Path(runs_dir) / argument), RunDir(argument)
    is_name = os.sep not in argument.rstrip(os.sep) and argument not in ("", ".", "..")
    for run in (named, path) if is_name else (path, named):
        if argument and run.is_run():
            return run
    return _by_prefix(runs_dir, argument)


def find_runs(runs_dir: str | os.PathLike[str], arguments: Sequence[str | None]) -> list[RunDir]:
    """Return the runs that a user means, each as ``find_run``; a sweep stands for all its runs."""
    found: list[RunDir] = []
    for argument in arguments:
        sweep = find_sweep(runs_dir, argument) if argument is not None else None
        found += runs_begun(sweep) if sweep is not None else [find_run(runs_dir, argument)]
    return found


def runs_begun(sweep: SweepDir) -> list[RunDir]:
    """Return the runs of a sweep that have begun; raises NotFoundError if there is none."""
    runs = sweep.runs()
    if not runs:
        raise NotFoundError("no run of the sweep has begun", where=sweep.shown())
    return runs


def _by_prefix(runs_dir: str | os.PathLike[str], argument: str) -> RunDir:
    """Return the only run whose name begins with ``argument``; raises NotFoundError."""
    _refuse_path(runs_dir, argument)
    runs = {run.name: run for run in list_runs(runs_dir)}
    found = [name for name in runs if argument and name.startswith(argument)]
    if len(found) == 1:
        return runs[found[0]]
    if found:
        text = f"{argument!r} is ambiguous: {len(found)} runs begin with it"
        raise NotFoundError(text, hint=listed(found, "name one:"))
    hint = did_you_mean_or_all(argument, list(runs)) or f"there is no run in {runs_dir}"
    raise NotFoundError(f"no run {argument!r}", hint=hint)


def _by_word(runs_dir: str | os.PathLike[str], word: str) -> RunDir:
    """Return the run of ``@latest``, ``@best`` or ``@best:METRIC``; raises NotFoundError."""
    name, _, metric = word[1:].partition(":")
    if name not in ("latest", "best") or (name == "latest" and metric):
        raise NotFoundError(f"no run {word!r}", hint="there are @latest, @best and @best:METRIC")
    runs = list_runs(runs_dir)
    if name == "latest":
        return _newest(runs, f"no run in {runs_dir}")
    return _best(runs, metric, f"no run in {runs_dir}")


def _best(runs: Sequence[RunDir], metric: str, missing: str) -> RunDir:
    """Return the run with the best value of a metric in any epoch; of equals the first begun.

    The newest run that has the metric says which job's runs are compared, and which direction is
    better.  Without ``metric`` it is the one of that run's ``checkpoint.keep.best``, else its first
    that has a direction.
    """
    from jobrun.runs.overview import overview

    if not runs:
        raise NotFoundError(missing, hint=_START)
    views = sorted(((overview(run), run) for run in runs), key=lambda pair: pair[0].updated)
    first = next((v for v, _ in reversed(views) if (metric or v.best_by) in v.best), None)
    if first is None:
        known = sorted({name for view, _ in views for name in view.best})
        what = f"a best value of {metric!r}" if metric else "a metric with a direction"
        raise NotFoundError(f"no run has {what}", hint=did_you_mean_or_all(metric, known))
    name = metric or first.best_by or ""
    same = [(v, run) for v, run in views if v.job == first.job and name in v.best]
    same.sort(key=lambda pair: pair[0].created)
    direction = first.directions[name] or ""
    best = first_best(same, lambda pair: pair[0].best[name][0], direction)
    assert best is not None  # what an overview calls the best is finite
    return best[1]


def find_checkpoint(
    runs_dir: str | os.PathLike[str],
    argument: str | None = None,
    *,
    epoch: int | None = None,
    id: int | None = None,
) -> Path:
    """Return the directory of the checkpoint that a user means: one of a run, or its own path.

    Without ``epoch`` and ``id`` it is the newest of the run.  Raises NotFoundError.
    """
    if argument is not None and is_checkpoint(argument):
        if epoch is not None or id is not None:
            raise UsageError(f"{argument} is one checkpoint: no epoch or id can be chosen in it")
        return Path(argument)
    run = find_run(runs_dir, argument)
    record = run.checkpoint(epoch=epoch, id=id)
    if record is None:
        if lost := run.damaged():
            raise none_whole(((i.id, i.reason) for i in lost), run.shown())
        raise NotFoundError("the run has no checkpoint", where=run.shown())
    return run.catalog.path(record.id)


_START = "jobrun train SPEC starts one; --runs-dir names another directory of runs"


def _refuse_path(runs_dir: str | os.PathLike[str], argument: str) -> None:
    """Raise an error that says what ``argument`` is, if it is something other than a run."""
    path = Path(argument)
    if is_url(argument):
        hint = "without --best, load-blobs, resume, checkpoints inspect and checkpoints verify do"
        raise UsageError(f"this command does not read a run at a URL: {argument}", hint=hint)
    if argument and (sweep := find_sweep(runs_dir, argument)) is not None:
        runs = sweep.runs()
        hint = f"'jobrun sweep {argument}' lists them"
        if runs:
            hint = f"name one of them: {shlex.quote(runs[0].shown())}; {hint}"
        raise UsageError(f"{argument} is a sweep of {len(runs)} runs", hint=hint)
    if argument and is_checkpoint(argument):
        way = f"name the run, and the checkpoint by --id: {path.parent} --id {path.name[11:]}"
        raise UsageError(f"{argument} is a checkpoint, not a run", hint=way)
    if argument and CHECKPOINT_NAME.fullmatch(path.name) and os.path.isdir(path.parent):
        hint = f"those of the run: jobrun checkpoints list {shlex.quote(str(path.parent))}"
        if not os.path.isdir(path):
            raise NotFoundError(f"no checkpoint {argument!r}", hint=hint)
        ignored = {i.name: i.reason for i in Catalog(path.absolute().parent).ignored()}
        why = ignored.get(path.name, "it holds no _SUCCESS")
        raise DamagedError(f"not a whole checkpoint: {why}", where=argument, hint=hint)
    if argument and (runs := list_runs(path)):
        way = f"--runs-dir {argument}, or one of {', '.join(r.name for r in runs[:5])}"
        raise NotFoundError(f"{argument} is not a run but holds runs", hint=way)


def names_apart(runs: Sequence[RunDir]) -> list[str]:
    """Return names that tell runs apart: their own, or their paths if two have one name."""
    alike = len({run.name for run in runs}) < len({run.path for run in runs})
    return [run.shown() if alike else run.name for run in runs]


def _newest(
    runs: Sequence[RunDir],
    missing: str,
    first: Callable[[RunState], int] = lambda state: 0,
    hint: str = "",
) -> RunDir:
    """Return the run updated last, of those with the highest value of ``first``."""
    states = [(state, run) for run in runs if (state := _state_of(run)) is not None]
    if not states:
        unread = ", ".join(run.shown() for run in runs)
        text = f"{missing} that can be read" if unread else missing
        raise NotFoundError(text, hint=hint or (f"there are {unread}" if unread else _START))
    return max(states, key=lambda pair: (first(pair[0]), pair[0].updated))[1]


def _resumable(state: RunState) -> int:
    return 0 if state.over else 1 if state.state == "running" else 2


def _running(state: RunState) -> int:
    return int(state.state == "running")


def _state_of(run: RunDir) -> RunState | None:
    """Return the state of a run, or None if it cannot be read."""
    try:
        return run.state()
    except JobrunError:
        return None


def is_of(run: RunDir, spec: str | os.PathLike[str]) -> bool:
    """Return whether a run was made from this spec file, even if both have moved together."""
    state = _state_of(run)
    return state is not None and _is_from(run.path, state, Path(spec))


def _is_from(path: Path, state: RunState | SweepState, spec: Path) -> bool:
    return code_folder(path, state, spec) is not None


def code_folder(path: Path, state: RunState | SweepState, spec: Path) -> Path | None:
    """Return the folder of the code of a run at ``path``; None if it is of another spec."""
    if state.spec is None or os.path.basename(state.spec) not in (spec.name, resolved(spec).name):
        return None
    folders = [Path(state.folder)] if state.folder else []
    if state.folder_relative:
        folders.append(resolved(path) / state.folder_relative)
    here = resolved(spec)
    return next((f for f in folders if resolved(f / state.spec) == here), None)
