"""The page itself: the template with its texts, the numbers, and the library that draws them."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

from jobrun._version import __version__
from jobrun.core.late_imports import importing
from jobrun.errors import UsageError
from jobrun.html_report.about_run import AboutRun, about_run
from jobrun.html_report.curves import curves
from jobrun.html_report.runs_table import runs_table
from jobrun.report.formatting import plural
from jobrun.runs.find import names_apart
from jobrun.runs.overview import rows_of
from jobrun.runs.rundir import RunDir
from jobrun.tools.compare_runs import RunComparison, compare_runs

__all__ = ["check_packages", "page"]

LOG_LINES = 4000
"""The most lines of logs in a report, over all runs."""
_LEAST_LINES = 200


def page(runs: Sequence[RunDir], *, sweep: str = "", refresh: float = 0) -> str:
    """Return the report of one run or more as one HTML document.

    ``sweep``: the name of the sweep whose runs these are.  ``refresh``: the page loads itself again
    after so many seconds (0: never).  Raises UsageError, naming the extra, if a package is missing,
    and the error of a run that cannot be read.
    """
    check_packages()
    lines = max(_LEAST_LINES, LOG_LINES // len(runs))
    names = names_apart(runs)
    found = [about_run(name, run, lines) for name, run in zip(names, runs, strict=True)]
    summaries = [about.summary for about in found]
    text = _template().render(
        title=_title(names, sweep),
        runs=found,
        differences=_differences(found),
        refresh=refresh,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
        version=__version__,
        css=_text("page.css"),
        script=_text("page.js"),
        plotly=_plotly(),
        data=_packed(
            json.dumps(
                {
                    "runs": [_numbers(about) for about in found],
                    "table": runs_table(names, summaries),
                },
                ensure_ascii=False,
                allow_nan=False,
                separators=(",", ":"),
            )
        ),
    )
    return str(text)


def _title(names: Sequence[str], sweep: str) -> str:
    if sweep:
        return f"{sweep}: {plural(len(names), 'run')}"
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def check_packages() -> None:
    """Raise UsageError, naming the extra, if a package that a report needs is missing."""
    try:
        with importing():
            import jinja2  # noqa: F401
        resources.files("plotly")
    except ImportError as error:
        hint = "pip install 'jobrun[report]'"
        raise UsageError(f"a report needs the package {error.name}", hint=hint) from error


def _template() -> Any:
    with importing():
        import jinja2
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_text("page.html"))


def _text(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


_LEVEL = 4
"""Level 6 takes 0.13 s longer for 100,000 epochs, of 2.4 s, for a page 3 % smaller."""


@cache
def _plotly() -> str:
    """Return the library, packed once per process."""
    source = resources.files("plotly") / "package_data" / "plotly.min.js"
    return _packed(source.read_text(encoding="utf-8"))


def _packed(text: str) -> str:
    """Return a string as base64 of gzip, which no text can break out of."""
    data = gzip.compress(text.encode("utf-8", "replace"), _LEVEL, mtime=0)
    return base64.b64encode(data).decode("ascii")


def _numbers(about: AboutRun) -> dict[str, Any]:
    """Return what the charts show of a run."""
    return {
        "name": about.name,
        "state": about.summary.view.state,
        **curves(rows_of(about.summary.run)),
        "timeline": about.timeline,
        "log": about.log,
    }


def _differences(found: Sequence[AboutRun]) -> RunComparison | None:
    """Return how the runs differ from the first; None if there is but one."""
    if len(found) < 2:
        return None
    states = [about.summary.run.state() for about in found]
    known = [state for state in states if state is not None]
    return compare_runs([about.summary.view for about in found], known)
