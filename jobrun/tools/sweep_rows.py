"""The state of a run of a sweep: from its report at its end, or from disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jobrun.core.json_floats import SPECIAL
from jobrun.core.process import Ended
from jobrun.errors import EXIT_FAILED_BY_CONDITION, LockedError
from jobrun.model.job import Job
from jobrun.runs.overview import overview
from jobrun.runs.rundir import RunDir
from jobrun.runs.sweepdir import Member, SweepDir

__all__ = ["STATES", "SweepRow", "row_from_end", "row_of_crash", "row_on_disk", "rows_on_disk"]

STATES = ("finished", "failed", "error", "interrupted", "running", "waiting")


@dataclass(frozen=True, slots=True)
class SweepRow:
    """A run of a sweep.

    ``member`` is its number among the runs of the matrix, from 0.  ``state`` is one of ``STATES``;
    ``waiting`` has not started.  ``exit_code`` is that of the run,
    None until it has ended.  ``metrics`` are those of its last epoch, ``best`` maps a metric to
    its best ``(value, epoch)``, ``elapsed`` is in seconds, over all attempts.
    """

    directory: str
    run_dir: str
    values: Mapping[str, Any]
    member: int = 0
    state: str = "waiting"
    reason: str = ""
    exit_code: int | None = None
    epoch: int = 0
    elapsed: float | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    best: Mapping[str, tuple[Any, int]] = field(default_factory=dict)
    checkpoint: str | None = None


def rows_on_disk(home: SweepDir, members: Sequence[Member], job: Job) -> list[SweepRow]:
    """Return the rows of all members; ``job`` is one of them."""
    rows = []
    for number, member in enumerate(members):
        run = home.run(member)
        row = SweepRow(member.directory, str(run.path.absolute()), member.values, number)
        rows.append(row_on_disk(row, job, run) if run.is_run() else row)
    return rows


def row_on_disk(row: SweepRow, job: Job, run: RunDir) -> SweepRow:
    """Return the row of a run from run.json, its newest checkpoint and ``metrics.csv``."""
    state = run.state()
    if state is None:
        return row
    row = replace(
        row,
        state=state.state,
        reason=state.reason,
        exit_code={"finished": 0, "failed": EXIT_FAILED_BY_CONDITION}.get(state.state),
        epoch=state.epoch,
        elapsed=state.elapsed,
    )
    record = run.head()
    if record is None:
        return row
    view = overview(run, job.metrics)
    return replace(
        row,
        epoch=view.epoch,
        elapsed=view.elapsed,
        metrics=view.metrics,
        best=view.best,
        checkpoint=str(run.catalog.path(record.id).absolute()),
    )


def row_from_end(row: SweepRow, report: Mapping[str, Any]) -> SweepRow:
    """Return the row with the run's report at its end: ``RunEnded`` as JSON values, or an error.

    The state on disk counts, except for a run without checkpoints and one that has not started.
    """
    if "error" in report:
        if report["exit_code"] == LockedError.exit_code and row.state == "running":
            return replace(row, exit_code=LockedError.exit_code)  # another process is at it
        reason = str(report["error"]["message"])
        return replace(row, state="error", reason=reason, exit_code=report["exit_code"])
    row = replace(row, exit_code=report["exit_code"])
    if report["outcome"] != "nothing":
        row = replace(row, state=report["outcome"], reason=report["reason"])
    if row.checkpoint is not None:
        return row
    return replace(
        row,
        metrics={m: _number(value) for m, value in report["metrics"].items()},
        best={m: (_number(value), epoch) for m, (value, epoch) in report["best"].items()},
    )


def row_of_crash(row: SweepRow, code: int) -> SweepRow:
    """Return the row of a run whose process ended with ``code`` without a report."""
    if code >= 0:
        return row
    return replace(row, state="error", reason=f"its process {Ended(code)}", exit_code=1)


def _number(value: Any) -> Any:
    """Return a metric as it was before its conversion to JSON."""
    return SPECIAL.get(value, value) if isinstance(value, str) else value
