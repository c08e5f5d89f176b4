"""From the parts of a spec, as pydantic has read them, to the plain values of ``jobrun.model``."""

from __future__ import annotations

from typing import Any

from jobrun.jobspec.checkpoints import CheckpointModel
from jobrun.jobspec.model import TaskModel
from jobrun.jobspec.tasks import RetriesModel, ShellModel
from jobrun.jobspec.uploads import UploadModel
from jobrun.model.options import Load, Retries
from jobrun.model.policy import Best, CheckpointPolicy, Every, Keep, Upload
from jobrun.model.shell import FileForm, Shell

__all__ = [
    "callee_of",
    "policy_of",
    "renamed",
    "retries_of",
    "upload_of",
]


def policy_of(model: CheckpointModel | None) -> CheckpointPolicy | None:
    if model is None:
        return None
    every, keep = model.every, model.keep
    best = None if keep.best is None else Best(keep.best.metric, keep.best.count)
    return CheckpointPolicy(
        every=Every(every.epochs, every.batches, every.seconds, every.min_gap or 0.0),
        keep=Keep(keep.last, keep.every, best),
        include=tuple(model.include or ()),
        on_error=model.on_error,
        on_success=model.on_success,
        background=model.background,
        link=model.link,
        compress=tuple(model.compress),
        catalogue=model.catalogue,
    )


def upload_of(model: UploadModel | None) -> Upload | None:
    if model is None:
        return None
    return Upload(model.to, model.call, model.with_ or {}, model.what)


def callee_of(model: TaskModel) -> str | Shell | Load:
    """Return what a task that is not a pipe calls."""
    if model.shell is not None:
        return _shell(model.shell)
    if model.load is not None:
        given = model.load
        return Load(given.run, given.epoch, given.id, given.file, given.strict is not False)
    return str(model.call)


def renamed(blobs: Any) -> dict[str, str | None]:
    """Return ``blobs`` of ``load`` as a mapping."""
    if isinstance(blobs, dict):
        return blobs
    return dict.fromkeys([blobs] if isinstance(blobs, str) else blobs)


def retries_of(model: RetriesModel | None) -> Retries | None:
    return None if model is None else Retries(model.times, model.delay or 0.0, model.backoff)


def _shell(model: ShellModel) -> Shell:
    files = {
        name: FileForm(form.dtype, None if form.shape is None else tuple(form.shape))
        for name, form in (model.files or {}).items()
    }
    return Shell(model.command or "", model.script or "", files)
