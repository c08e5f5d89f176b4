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
    from jobrun.remote.blobs import load_blobs
    from jobrun.report.python import progress_report
    from jobrun.session.local import LocalSession
    from jobrun.session.progress import progress
    from jobrun.session.step_log import log
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
    "Node",
    "Pipe",
    "Retries",
    "Shell",
    "Task",
    "TaskGroup",
    "Upload",
    "ValueAdapter",
    "__version__",
    "load_blobs",
    "log",
    "open_checkpoint",
    "progress",
    "progress_report",
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
    "Node": "jobrun.model.job",
    "Pipe": "jobrun.model.job",
    "Retries": "jobrun.model.options",
    "Shell": "jobrun.model.shell",
    "Task": "jobrun.model.job",
    "TaskGroup": "jobrun.model.job",
    "Upload": "jobrun.model.policy",
    "ValueAdapter": "jobrun.values.adapters.base",
    "load_blobs": "jobrun.remote.blobs",
    "log": "jobrun.session.step_log",
    "open_checkpoint": "jobrun.checkpoint.zarr_view",
    "progress": "jobrun.session.progress",
    "progress_report": "jobrun.report.python",
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
    return sorted({*globals(), *__all__})
