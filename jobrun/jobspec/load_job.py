"""``Job.load``: the job of a spec for Python and notebooks."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobrun.errors import UsageError
from jobrun.jobspec.resolve import Spec, dump_resolved, load, with_values
from jobrun.jobspec.validate import job_of
from jobrun.model.job import Job, SpecOrigin

__all__ = ["load_job"]


def load_job(
    path: str | os.PathLike[str],
    settings: Mapping[str, Any],
    code: str | os.PathLike[str] | None = None,
) -> Job:
    """Return the job of a spec with ``settings`` applied; see ``Job.load``."""
    sets = [f"{name}={_text(name, value)}" for name, value in settings.items()]
    spec = load(path, sets, folder=code)
    job = job_of(spec)
    if spec.matrix is not None:
        spec = _one_of_sweep(spec)
        job = job_of(spec)
    here = Path(path).absolute()
    job.origin = SpecOrigin(Path(spec.folder), here, spec.text, dump_resolved(spec))
    return job


def _text(name: str, value: Any) -> str:
    """Return a value as ``--set`` takes it: one scalar of YAML."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return value
    number = value.item() if hasattr(value, "item") else value  # a scalar of numpy
    if isinstance(number, float) and not math.isfinite(number):
        return ".nan" if math.isnan(number) else ".inf" if number > 0 else "-.inf"
    if isinstance(number, int | float):
        return repr(number)
    text = f"set: expected a number, a string, a bool or None for {name!r}, got {value!r:.80}"
    raise UsageError(text, hint="lists and mappings are changed in the spec")


def _one_of_sweep(spec: Spec) -> Spec:
    """Return the spec of the only run; raises UsageError for several."""
    assert spec.matrix is not None
    wanted = spec.matrix.wanted()
    if len(wanted) != 1:
        values = ", ".join(f"{name!r}: …" for name in spec.matrix.lists)
        raise UsageError(
            f"{spec.path} is a sweep of {len(wanted)} runs, and a job is one of them",
            hint=f"choose it: set={{{values}}}; or run all of them: jobrun train {spec.path}",
        )
    return with_values(spec, wanted[0])
