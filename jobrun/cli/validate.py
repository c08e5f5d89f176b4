"""``jobrun validate``: check specs; nothing is run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from jobrun.cli.json_stdout import stdout_for_json
from jobrun.cli.options import code_option, common, option, sets_option, settings, specs_argument

if TYPE_CHECKING:
    from jobrun.errors import JobrunError, Problem
    from jobrun.jobspec.resolve import Spec
    from jobrun.model.job import Job

__all__ = ["command"]

_WORST_FIRST = (3, 4)


@dataclass
class _Checked:
    """A checked spec: its job, or the error; and warnings of what is valid but seldom meant.

    ``runs`` is the number of runs of a sweep.
    """

    spec: str
    job: Job | None = None
    runs: int | None = None
    error: JobrunError | None = None
    warnings: Sequence[Problem] = field(default=())

    @property
    def code(self) -> int:
        """The exit code for this spec alone."""
        return self.error.exit_code if self.error is not None else 0

    def found(self) -> list[tuple[str, Problem]]:
        """Return all findings, with their severity."""
        from jobrun.cli.failure import where_and_what

        errors = where_and_what(self.error) if self.error is not None else []
        return [*(("error", p) for p in errors), *(("warning", p) for p in self.warnings)]


@click.command("validate", short_help="Check specs without running anything.")
@specs_argument
@sets_option
@option(
    "--import",
    "import_",
    is_flag=True,
    help="Also import functions and reporters, and check calls.",
)
@code_option("The folder of the code, if not the spec's.")
@common
def command(specs: tuple[str, ...], sets: tuple[str, ...], import_: bool, code: str | None) -> int:
    """Check specs and show everything that is wrong with them; - reads one from stdin.

    Nothing is run.  Without --import no code of yours is imported either.  With --json stdout is a
    list of {file, line, column, severity, message, hint, code}, empty if all is well; code is the
    exit code: 3 for what is invalid, 4 for code that cannot be bound, 2 for a file that is not
    there.  In GitHub Actions the lines are annotated.  With -q valid specs
    are not listed.
    """
    with stdout_for_json(import_ and settings().json):
        checked = [_check(spec, sets, import_, code) for spec in specs]
    for one in checked:
        _show(one)
    if settings().json:
        click.echo(json.dumps([entry for one in checked for entry in _entries(one)]))
    elif len(checked) > 1 and not settings().quiet:
        click.echo(_summary(checked))
    codes = {one.code for one in checked}
    return next((code for code in _WORST_FIRST if code in codes), max(codes))


def _check(spec: str, sets: tuple[str, ...], import_: bool, code: str | None) -> _Checked:
    from jobrun.analysis.analysis import JobAnalysis
    from jobrun.analysis.checks import warnings
    from jobrun.cli.specs import load_spec, shown_spec
    from jobrun.errors import JobrunError
    from jobrun.jobspec.unused import unsaved_outputs, unused_vars

    shown = shown_spec(spec)
    try:
        loaded = load_spec(spec, sets, code=code)
        job = _job_of(loaded, import_)
        analysis = JobAnalysis(job)
        found = [*unused_vars(loaded), *unsaved_outputs(loaded, analysis), *warnings(analysis)]
        if import_:
            found += _import(job, loaded)
    except JobrunError as error:
        return _Checked(shown, error=error)
    runs = loaded.matrix.count if loaded.matrix is not None else None
    return _Checked(shown, job, runs, warnings=found)


def _job_of(spec: Spec, import_: bool) -> Job:
    """Return the job of a spec; errors in its code are reported with those in the spec."""
    from jobrun.jobspec.validate import job_of, with_code_problems

    return with_code_problems(spec, lambda: job_of(spec)) if import_ else job_of(spec)


def _import(job: Job, spec: Spec) -> list[Problem]:
    """Bind the functions and reporters of a job; return warnings of its calls."""
    from jobrun.usercode.bind import bind_job, order_warnings

    functions = bind_job(job, spec.folder, spec.spec_dir)
    _find_reporters(job, spec.folder)
    return [*order_warnings(job, functions)]


def _find_reporters(job: Job, folder: str) -> None:
    from jobrun.report.registry import find_reporters
    from jobrun.usercode.bind import bind

    find_reporters(job.reporters, partial(bind, folder=folder))


def _show(one: _Checked) -> None:
    """Show the findings: problems on stderr, the line of a good spec on stdout."""
    from jobrun.cli.failure import show_error
    from jobrun.report.formatting import plain, plural

    if one.error is not None:
        show_error(one.error, settings())
    for warning in one.warnings:
        text = f"{warning.where}: warning: {warning.message}; {warning.hint}"
        click.echo(plain(text), err=True)
    _annotate(one)
    if one.job is not None and not (settings().json or settings().quiet):
        tasks = sum(len(group) for group in one.job.groups.values())
        text = f"{plain(one.spec)}: ok: job {plain(one.job.name)}, {plural(tasks, 'task')}"
        click.echo(text + (f", {plural(one.runs, 'run')}" if one.runs is not None else ""))


def _annotate(one: _Checked) -> None:
    """Repeat the findings as annotations in GitHub Actions."""
    from jobrun.cli.github import annotation, in_actions

    if not in_actions():
        return
    for severity, problem in one.found():
        place = problem.where
        text = problem.message + (f"; {problem.hint}" if problem.hint else "")
        if place is not None and place.line:
            line = annotation(severity, text, place.file, place.line, place.column, place.width)
        else:
            line = annotation(severity, text, one.spec)
        click.echo(line, err=True)


def _entries(one: _Checked) -> list[dict[str, Any]]:
    """Return the findings as JSON values."""
    from jobrun.cli.failure import problem_values

    return [
        {"severity": severity, **problem_values(problem, one.spec), "code": one.code}
        for severity, problem in one.found()
    ]


def _summary(checked: Sequence[_Checked]) -> str:
    """Return one line for several specs: ``3 specs: 2 ok, 1 invalid``."""
    from jobrun.report.formatting import plural

    words = {0: "ok", 3: "invalid", 4: "cannot be bound"}
    counts: dict[str, int] = {}
    for one in sorted(checked, key=lambda one: (one.code == 2, one.code)):
        word = words.get(one.code, "cannot be read")
        counts[word] = counts.get(word, 0) + 1
    parts = ", ".join(f"{count} {word}" for word, count in counts.items())
    return f"{plural(len(checked), 'spec')}: {parts}"
