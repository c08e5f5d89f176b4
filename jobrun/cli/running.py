"""The common part of ``train`` and ``resume``: wiring, reporters and end of a run."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import click

from jobrun.analysis.facts import job_facts
from jobrun.analysis.identity import digest
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.part_source import RunLock
from jobrun.cli.failure import not_written, show_error
from jobrun.cli.json_stdout import stdout_for_json
from jobrun.cli.options import RunOptions, screen_width, settings
from jobrun.cli.signals import Signals
from jobrun.cli.watching import Watching
from jobrun.core import gc_tuning, malloc_tuning
from jobrun.core.async_exceptions import asynchronous_error
from jobrun.core.events import RunEnded, Warned
from jobrun.core.forked import end_if_forked
from jobrun.core.invocation import program
from jobrun.core.paths import absolute, shown
from jobrun.engine.resume_policy import Request
from jobrun.engine.runner import JobRunner
from jobrun.errors import EXIT_DONE, JobrunError, Problem
from jobrun.jobspec.overrides import UNSET
from jobrun.model.job import Job
from jobrun.model.policy import SessionSpec
from jobrun.report import Broadcast
from jobrun.report.background import Aside
from jobrun.report.formatting import json_values, plain
from jobrun.report.log_file import Prints
from jobrun.report.summary import summary
from jobrun.runs.find import run_of_spec
from jobrun.runs.series import claim_after, fresh_name, newest_begun
from jobrun.session.base import Session
from jobrun.session.factory import make_session
from jobrun.session.local import LocalSession

__all__ = ["Engine", "command_line", "run_job"]


def command_line(*words: str, sets: Sequence[str] = (), **options: object) -> str:
    """Return a command to type: ``options`` that are None are left out, ``_`` becomes ``-``."""
    parts = [*words, *(part for text in sets for part in _setting(text))]
    for name, value in options.items():
        if value is not None:
            parts += ["--" + name.replace("_", "-"), str(value)]
    return f"{program()} {shlex.join(parts)}"


def _setting(text: str) -> tuple[str, str]:
    """Return a setting of a spec as the option that it came from."""
    name = text.removeprefix(UNSET)
    return ("--set", text) if name == text else ("--unset", name)


class Engine:
    """The execution of a job with the options of the command line.

    ``local``: in this process, whatever session the job has.
    """

    def __init__(
        self,
        watching: Watching,
        signals: Signals,
        *,
        threads: int | None,
        check: bool = False,
        local: bool = False,
    ) -> None:
        self._watching = watching
        self._settings = watching.settings
        self._signals = signals
        self._threads = threads
        self._check = check
        self._local = local
        self._reporters: list[Aside] = []

    def run(
        self,
        job: Job,
        request: Request,
        runs_dir: str,
        run: Path | None,
        seen: Path | None = None,
    ) -> int:
        """Run ``job`` in the directory ``run`` (None: a fresh one), and show its end.

        ``seen`` is the newest directory of the series in which a run was started before ``run`` was
        looked for.

        Returns the exit code.  Raises errors from before the start of the run.
        """
        runs_dir = str(absolute(runs_dir))
        run = absolute(run) if run is not None else None
        with stdout_for_json(self._settings.json) as out, Prints() as prints:
            fan = self._watching.fan(prints)
            session: Session | None = None
            try:
                runner, session = self._runner(job, request, runs_dir, run, seen, fan)
                self._signals.runner = runner
                error = _train(runner, session)
                assert runner.outcome is not None
                for reporter in self._reporters:
                    reporter.close()
                self._show(runner.outcome, error, out, request)
            finally:
                if session is not None:
                    session.close()
                prints.end()
                fan.close()
        return error.exit_code if error is not None else runner.outcome.exit_code

    def _runner(
        self,
        job: Job,
        request: Request,
        runs_dir: str,
        run: Path | None,
        seen: Path | None,
        fan: Broadcast,
    ) -> tuple[JobRunner, Session]:
        """Return the runner in the chosen directory; a fresh directory is made last of all."""

        def warn(text: str) -> None:
            fan(Warned(text))

        def runner(path: Path, request: Request, lock: RunLock | None = None) -> JobRunner:
            self._signals.again = plain(command_line("resume", shown(path)))
            return JobRunner(
                job,
                CheckpointManager(path, lock=lock),
                report=fan,
                request=request,
                check_inputs=self._check,
                every_task=self._settings.verbosity > 0,
                look=lambda: self._signals.look(warn),
            )

        found = runner(run or fresh_name(runs_dir, job.name), request)
        choice = found.choose()
        if choice.action == "refuse":
            raise choice.refusal()
        session: Session = LocalSession(1)
        if choice.action != "done":
            malloc_tuning.keep_freed_memory()
            for problem in _bind(job, request):
                warn(f"{problem.where}: {problem.message}; {problem.hint}")
            self._signals.hold(warn)
            self._reporters = self._reporters or self._watching.reporters(job, request, fan)
            session = make_session(SessionSpec() if self._local else job.session, self._threads)
        gc_tuning.usual()
        if choice.action == "new_run":
            for line in choice.lines:
                click.echo(plain(line), err=True)
        if run is None or choice.action == "new_run":
            claimed = claim_after(runs_dir, job.name, seen, beside=request.fresh)
            if claimed is None:
                seen = newest_begun(runs_dir, job.name)
                made = run_of_spec(runs_dir, job.name, digest(job_facts(job)))
                path = made.path if made is not None else None  # absolute, like ``runs_dir``
                return self._runner(job, request, runs_dir, path, seen, fan)
            request = replace(request, fresh=True)
            return runner(claimed.path, request, claimed.run_lock), session
        return found, session

    def _show(
        self, ended: RunEnded, error: JobrunError | None, out: TextIO, request: Request
    ) -> None:
        """Show the error, if any, on stderr, and the summary on stdout."""
        if error is not None:
            self._watching.show_error(error)
        if self._settings.json:
            text = json.dumps(json_values(ended.to_json()))
        else:
            again = request.again if request.command == "train" else ""
            verbose = self._settings.verbosity > 0
            width = screen_width(out)
            text = "\n".join(summary(ended, verbose=verbose, again=again, width=width))
        try:
            print(text, file=out, flush=True)
        except BrokenPipeError:  # nobody reads it; the exit code still counts
            pass
        except (OSError, ValueError) as refused:  # ValueError: a task has closed it
            unwritten = not_written(refused)
            if ended.exit_code == EXIT_DONE:
                raise unwritten from None
            show_error(unwritten, self._settings)


def run_job(
    job: Job,
    request: Request,
    run: Path | None,
    options: RunOptions,
    signals: Signals,
    seen: Path | None = None,
) -> int:
    """Run a job as ``Engine.run`` does, or only show what would be done; return the exit code."""
    if options.dry_run:
        from jobrun.cli.dry_run import show_dry_run

        threads, shapes = options.threads, options.shapes
        return show_dry_run(job, request, options.runs_dir, run, threads=threads, shapes=shapes)
    watching = Watching(settings(), options.progress, options.reporters)
    engine = Engine(watching, signals, threads=options.threads, check=options.check)
    return engine.run(job, request, options.runs_dir, run, seen)


def _train(runner: JobRunner, session: Session) -> JobrunError | None:
    """Run the job; return the error it ended with, raise an error from before its start.

    SIGINT is served by ``Signals``, so that KeyboardInterrupt comes from other code.
    """
    try:
        runner.train(session)
    except JobrunError as error:
        if runner.outcome is None:
            raise
        return error
    except KeyboardInterrupt as error:
        told = asynchronous_error(error)
        if runner.outcome is None or told is None:
            raise
        return told
    return None


def _bind(job: Job, request: Request) -> list[Problem]:
    """Import every function before anything is written; raises BindError with all problems.

    Returns what can be called, but is seldom intended.
    """
    from jobrun.usercode.bind import bind_job, order_warnings

    owner = os.getpid()
    try:
        return [*order_warnings(job, bind_job(job, request.folder, request.spec_dir))]
    finally:
        end_if_forked(owner, "an import of the job's code")
