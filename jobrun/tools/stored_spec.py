"""The spec with which a run resumes: the one kept in the run, or the file as it is now."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from jobrun.core.paths import file_from, resolved
from jobrun.errors import JobrunError, NotFoundError, UsageError
from jobrun.jobspec.parsing import MAX_BYTES
from jobrun.jobspec.resolve import Spec, load
from jobrun.report.events_file import read_events
from jobrun.runs.find import code_folder
from jobrun.runs.run_state import RunState
from jobrun.runs.rundir import RunDir
from jobrun.runs.sweepdir import SweepState
from jobrun.storage.regular_file import read_run_file

__all__ = ["StoredSpec", "stored_spec"]


@dataclass(frozen=True, slots=True)
class StoredSpec:
    """A spec, the folder of its code, the path of its file (which may be gone), and its text."""

    spec: Spec
    folder: Path
    spec_path: Path
    text: str

    @property
    def edited(self) -> bool:
        """Whether the file exists and its text has changed since."""
        try:
            return _text(read_run_file(resolved(self.spec_path), MAX_BYTES)) != self.text
        except (JobrunError, OSError, UnicodeError):
            return False


def stored_spec(
    run: RunDir,
    argument: str | None = None,
    sets: Iterable[str] = (),
    *,
    epochs: int | None = None,
    code: str | os.PathLike[str] | None = None,
    sweep: SweepState | None = None,
    scheduler: str | None = None,
) -> StoredSpec:
    """Return the spec with which ``run`` resumes, or the sweep whose directory it is.

    If ``argument``, the user's name for the run, is a spec, the file as it is now; else the one
    that was run, ``sets``, ``epochs`` and ``scheduler`` applied.  ``code`` is the folder of the
    code, if it has moved.  Raises NotFoundError if the code or the kept spec is gone, UsageError
    for a run that a Python script has started.
    """
    state = sweep or run.state()
    if state is None:
        raise NotFoundError("there is no run", where=run.shown())
    if argument is not None and argument.endswith((".yaml", ".yml")):
        code = code if code is not None else code_folder(run.path, state, Path(argument))
        spec = load(argument, sets, epochs=epochs, folder=code, scheduler=scheduler)
        return StoredSpec(spec, Path(spec.folder), Path(argument).absolute(), spec.text)
    if isinstance(state, RunState) and state.built_in_python:
        raise UsageError(
            f"the run {run.shown()} was started by a Python script",
            hint="run your script again: it resumes from the last checkpoint",
        )
    if not os.path.lexists(run.resolved_path):
        hint = "name the spec instead of the run: jobrun resume SPEC"
        raise NotFoundError("the spec of the run is gone", where=str(run.resolved_path), hint=hint)
    if isinstance(state, RunState) and state.rebuilt:
        state = _with_places(run, state)
    folder = _folder(run, state, code)
    data = read_run_file(run.resolved_path, MAX_BYTES)
    spec = load(
        run.resolved_path, sets, epochs=epochs, folder=folder, scheduler=scheduler, data=data
    )
    text = spec.text
    if os.path.lexists(run.spec_path):
        text = _text(read_run_file(run.spec_path, MAX_BYTES), "surrogateescape")
    return StoredSpec(spec, folder, folder / (state.spec or "spec.yaml"), text)


def _text(data: bytes, errors: str = "strict") -> str:
    """Return the text of a spec, with line feeds alone."""
    return data.decode("utf-8-sig", errors).replace("\r\n", "\n").replace("\r", "\n")


def _with_places(run: RunDir, state: RunState) -> RunState:
    """Return the state of a run whose run.json was lost, with the places that its events name."""
    for event in read_events(run.path / "events.jsonl", ("RunStarted",)):
        spec, code = event.get("spec"), event.get("code")
        if spec and code:
            state = replace(state, folder=code, spec=file_from(Path(code), Path(spec)))
    return state


def _folder(run: RunDir, state: RunState | SweepState, code: str | os.PathLike[str] | None) -> Path:
    """Return the folder of the code: as given, else relative to the run, else where it was."""
    if code is not None:
        return Path(code).absolute()
    relative = resolved(run.path) / (state.folder_relative or "")
    if state.folder_relative and os.path.isfile(relative / (state.spec or "")):
        return resolved(relative)
    if state.folder and os.path.isdir(state.folder):
        return Path(state.folder)
    if isinstance(state, RunState) and state.rebuilt:
        raise NotFoundError(
            "run.json was lost, and with it where the code is",
            where=run.shown(),
            hint=f"jobrun train SPEC resumes it; or: jobrun resume {run.shown()} --code DIR",
        )
    where = f" ({state.folder})" if state.folder else ""
    raise NotFoundError(
        f"the folder of the code is gone{where}",
        where=run.shown(),
        hint=f"--code names where it is now: jobrun resume {run.shown()} --code DIR",
    )
