"""The picture of a job, with the states and times that its tasks had in a run."""

from __future__ import annotations

from jobrun.analysis.graph import make_plan
from jobrun.drawing.picture import Picture, picture
from jobrun.drawing.run_states import RunStates
from jobrun.model.job import Job
from jobrun.report.events_file import tell_events
from jobrun.runs.rundir import RunDir

__all__ = ["run_picture", "states_picture"]


def run_picture(job: Job, run: RunDir | None = None) -> Picture:
    """Return the picture of a job; with a run, coloured by how its tasks went.

    Raises DamagedError if the events of the run cannot be read.
    """
    if run is None:
        return picture(job)
    states = RunStates(alive=run.held())
    tell_events(run.path / "events.jsonl", [states])
    return states_picture(job, states)


def states_picture(job: Job, states: RunStates) -> Picture:
    """Return the picture of a job, coloured by the states of its tasks."""
    units = [(g, u.key) for g in job.groups for u in make_plan(job, job.groups[g]).units]
    return picture(job, states.states(units), states.notes(list(job.groups)))
