"""The picture of a job in a notebook."""

from __future__ import annotations

from jobrun.analysis.checks import check
from jobrun.drawing.picture import picture
from jobrun.drawing.svg import svg
from jobrun.model.job import Job

__all__ = ["job_svg"]


def job_svg(job: Job) -> str | None:
    """Return the graph of a job as SVG, None if it has problems, as one that is still built."""
    return None if check(job) else svg(picture(job))
