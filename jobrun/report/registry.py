"""Reporters by name: those of jobrun, and those installed in the group ``jobrun.reporters``.

An entry point of that group is a function (or class) that is called with the options of the spec
when a run starts, and returns a reporter::

    [project.entry-points."jobrun.reporters"]
    slack = "my_package:SlackReporter"
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from jobrun.core.events import Report, RunStarted
from jobrun.core.invocation import program
from jobrun.core.late_imports import importing
from jobrun.core.suggestions import ALL, did_you_mean_or_all
from jobrun.core.template import render
from jobrun.errors import BindError, UsageError
from jobrun.model.reporter import Reporter
from jobrun.report.background import Aside

__all__ = ["GROUP", "find_reporters", "open_reporters", "parse_reporter"]

GROUP = "jobrun.reporters"
_OWN = {
    "events": "jobrun.report.to_file:events",
    "lines": "jobrun.report.to_file:lines",
    "mlflow": "jobrun.report.mlflow:MLflow",
    "tensorboard": "jobrun.report.tensorboard:TensorBoard",
}
_NEEDS = {"mlflow": "mlflow", "tensorboard": "tensorboardX"}
Make = Callable[..., Report]


def parse_reporter(text: str) -> Reporter:
    """Parse ``NAME`` or ``NAME:VALUE``, as on the command line; raises UsageError."""
    name, colon, value = text.partition(":")
    if not name or (colon and not value):
        raise UsageError(f"--reporter {text}: expected NAME or NAME:VALUE, as in tensorboard:logs")
    return Reporter(name, value or None)


def open_reporters(
    wanted: Sequence[Reporter],
    warn: Report,
    folder: Path | None = None,
    function: Callable[[str], Any] | None = None,
) -> list[Aside]:
    """Return the reporters, each on a thread of its own, which opens it when the run starts.

    ``function`` resolves ``module:function``.  Raises BindError, before anything runs, for a
    reporter that does not exist, whose package is missing, or that does not accept its options.
    """
    made = find_reporters(wanted, function)
    return [
        Aside(reporter.name, _Opening(reporter, make, folder), warn)
        for reporter, make in zip(wanted, made, strict=True)
    ]


def find_reporters(
    wanted: Sequence[Reporter], function: Callable[[str], Any] | None = None
) -> list[Make]:
    """Return the factories of the reporters, opening none.  Raises as ``open_reporters``."""
    found = []
    for reporter in wanted:
        make = _function(reporter, function) if reporter.is_call else _named(reporter)
        _check_options(reporter, make)
        found.append(make)
    return found


class _Opening:
    """Opens a reporter when a run starts, when its directories are known."""

    def __init__(self, reporter: Reporter, make: Make, folder: Path | None) -> None:
        self._reporter = reporter
        self._make = make
        self._folder = folder

    def __call__(self, started: RunStarted) -> Report:
        places = {}
        if self._folder is not None:
            places["spec.dir"] = str(self._folder)
        if started.run_dir is not None:
            places["run.dir"] = started.run_dir
        arguments, options = _arguments(self._reporter)
        return self._make(*render(arguments, places), **render(dict(options), places))


def _arguments(reporter: Reporter) -> tuple[list[Any], Mapping[str, Any]]:
    return ([] if reporter.value is None else [reporter.value]), reporter.options


def _function(reporter: Reporter, function: Callable[[str], Any] | None) -> Make:
    if function is None:
        raise BindError(f"reporter {reporter.name!r} cannot be found here", where=reporter.where)
    make: Make = function(reporter.name)
    return make


def _named(reporter: Reporter) -> Make:
    """Return the factory of the reporter of this name."""
    name = reporter.name
    if name in _OWN:
        if name in _NEEDS:
            _import(_NEEDS[name], reporter)
        module, _, attribute = _OWN[name].partition(":")
        with importing():
            make: Make = getattr(import_module(module), attribute)
        return make
    from importlib.metadata import entry_points  # 19 ms

    installed = {point.name: point for point in entry_points(group=GROUP)}
    if name not in installed:
        known = sorted({*_OWN, *installed})
        hint = did_you_mean_or_all(name, known, most=ALL)
        raise BindError(f"there is no reporter {name!r}", where=reporter.where, hint=hint)
    try:
        loaded: Make = installed[name].load()
    except Exception as error:
        text = f"the reporter {name!r} cannot be imported: {type(error).__name__}: {error}"
        raise BindError(text, where=reporter.where) from error
    return loaded


def _import(package: str, reporter: Reporter) -> None:
    """Import what a reporter needs now, so that the import delays no epoch later."""
    try:
        with importing():
            import_module(package)
    except ImportError as error:
        raise BindError(
            f"the reporter {reporter.name!r} needs the package {package}: {error}",
            where=reporter.where,
            hint=f"pip install 'jobrun[{reporter.name}]'",
        ) from None


def _check_options(reporter: Reporter, make: Make) -> None:
    """Raise BindError for options that ``make`` does not accept."""
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):  # one without a visible signature is not checked
        return
    arguments, options = _arguments(reporter)
    try:
        signature.bind(*arguments, **options)
    except TypeError as error:
        text = f"the reporter {reporter.name!r} does not take these options: {error}"
        hint = f"it is {reporter.name}{signature}; see {program()} docs progress"
        raise BindError(text, where=reporter.where, hint=hint) from None
