"""jobrun: a runner for iterative numerical jobs that can be killed at any instant and resumed.

The public names are loaded on first use: ``import jobrun`` does not import numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jobrun._version import __version__

if TYPE_CHECKING:
    from jobrun.checkpoint.manager import CheckpointManager
    from jobrun.checkpoint.zarr_view import open_checkpoint
    from jobrun.engine.registry_hook import Catalogue
    from jobrun.engine.runner import JobRunner
    from jobrun.errors import JobrunError
    from jobrun.model.job import Job, Node, Pipe, Task, TaskGroup
    from jobrun.model.options import Load, Retries
    from jobrun.model.policy import Best, CheckpointPolicy, Compress, Every, Keep, Upload
    from jobrun.model.shell import FileForm, Shell
    from jobrun.report.python import progress_report
    from jobrun.session.local import LocalSession
    from jobrun.session.progress import progress
    from jobrun.session.step_log import log
    from jobrun.tools.load import load_blobs, load_state
    from jobrun.tools.past_runs import Metrics, PastRun, list_runs, read_metrics
    from jobrun.values.adapters.base import LiveAdapter, ValueAdapter
    from jobrun.values.adapters.registry import register

__all__ = [
    "Best",
    "Catalogue",
    "CheckpointManager",
    "CheckpointPolicy",
    "Compress",
    "Every",
    "FileForm",
    "Job",
    "JobRunner",
    "JobrunError",
    "Keep",
    "LiveAdapter",
    "Load",
    "LocalSession",
    "Metrics",
    "Node",
    "PastRun",
    "Pipe",
    "Retries",
    "Shell",
    "Task",
    "TaskGroup",
    "Upload",
    "ValueAdapter",
    "__version__",
    "list_runs",
    "load_blobs",
    "load_state",
    "log",
    "open_checkpoint",
    "progress",
    "progress_report",
    "read_metrics",
    "register",
]

_HOMES = {
    "Best": "jobrun.model.policy",
    "Catalogue": "jobrun.engine.registry_hook",
    "CheckpointManager": "jobrun.checkpoint.manager",
    "CheckpointPolicy": "jobrun.model.policy",
    "Compress": "jobrun.model.policy",
    "Every": "jobrun.model.policy",
    "FileForm": "jobrun.model.shell",
    "Job": "jobrun.model.job",
    "JobRunner": "jobrun.engine.runner",
    "JobrunError": "jobrun.errors",
    "Keep": "jobrun.model.policy",
    "LiveAdapter": "jobrun.values.adapters.base",
    "Load": "jobrun.model.options",
    "LocalSession": "jobrun.session.local",
    "Metrics": "jobrun.tools.past_runs",
    "Node": "jobrun.model.job",
    "PastRun": "jobrun.tools.past_runs",
    "Pipe": "jobrun.model.job",
    "Retries": "jobrun.model.options",
    "Shell": "jobrun.model.shell",
    "Task": "jobrun.model.job",
    "TaskGroup": "jobrun.model.job",
    "Upload": "jobrun.model.policy",
    "ValueAdapter": "jobrun.values.adapters.base",
    "list_runs": "jobrun.tools.past_runs",
    "load_blobs": "jobrun.tools.load",
    "load_state": "jobrun.tools.load",
    "log": "jobrun.session.step_log",
    "open_checkpoint": "jobrun.checkpoint.zarr_view",
    "progress": "jobrun.session.progress",
    "progress_report": "jobrun.report.python",
    "read_metrics": "jobrun.tools.past_runs",
    "register": "jobrun.values.adapters.registry",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names only."""
    return sorted(__all__)
