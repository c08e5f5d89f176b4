"""Events: frozen values, the contract between the engine and ``report/``.

The engine calls a ``Report`` with each event; it never prints.  Every field is plain (numbers,
strings, tuples, dictionaries of those), so that an event is one JSON line.  Seconds are wall time,
sizes are bytes.  ``place`` is a place in the run in words (``Position.place``).
"""

from __future__ import annotations

from jobrun.core.events.base import Event
from jobrun.core.events.checkpoints import (
    CheckpointFailed,
    CheckpointLoaded,
    CheckpointSaved,
    CheckpointSkipped,
    CheckpointsMoved,
    CheckpointsRemoved,
    SaveAsked,
    SaveStarted,
    Uploaded,
)
from jobrun.core.events.messages import Printed, Warned
from jobrun.core.events.receivers import JobrunWarning, Report, ignore, warn
from jobrun.core.events.run import (
    EpochFinished,
    LeftoversCleaned,
    RunEnded,
    RunStarted,
    RunWentBack,
    SlowestNode,
    Stopping,
)
from jobrun.core.events.tasks import (
    BatchesDone,
    GroupFinished,
    GroupStarted,
    StepLogged,
    TaskFailed,
    TaskFinished,
    TaskProgress,
    TasksRunning,
)

__all__ = [
    "PASSING",
    "BatchesDone",
    "CheckpointFailed",
    "CheckpointLoaded",
    "CheckpointSaved",
    "CheckpointSkipped",
    "CheckpointsMoved",
    "CheckpointsRemoved",
    "EpochFinished",
    "Event",
    "GroupFinished",
    "GroupStarted",
    "JobrunWarning",
    "LeftoversCleaned",
    "Printed",
    "Report",
    "RunEnded",
    "RunStarted",
    "RunWentBack",
    "SaveAsked",
    "SaveStarted",
    "SlowestNode",
    "StepLogged",
    "Stopping",
    "TaskFailed",
    "TaskFinished",
    "TaskProgress",
    "TasksRunning",
    "Uploaded",
    "Warned",
    "ignore",
    "warn",
]

PASSING = (BatchesDone, SaveStarted, TaskProgress, TasksRunning)
"""Events of progress, which no reporter keeps."""
