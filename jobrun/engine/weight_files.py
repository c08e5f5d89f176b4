"""The files of weights that a job reads: their content is watched as its code is."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from jobrun.core.template import render
from jobrun.engine.resume_policy import Request
from jobrun.errors import TaskError
from jobrun.model.job import Job
from jobrun.model.options import Load
from jobrun.session.base import Places

__all__ = ["weight_files"]


def weight_files(job: Job, request: Request, run: Path, group: str | None = None) -> list[Path]:
    """Return the files that tasks with ``load: {file: …}`` read: of a group, or of all."""
    places = Places(request.spec_dir, run, code_dir=request.folder)
    found: dict[Path, None] = {}
    for name, tasks in job.groups.items():
        for task in tasks.tasks if group in (None, name) else ():
            if isinstance(task.fn, Load) and task.fn.file is not None:
                for node in job.nodes:
                    with suppress(TaskError):  # of the task itself, when it runs
                        found[places.folder / str(render(task.fn.file, places.texts(node)))] = None
    return list(found)
