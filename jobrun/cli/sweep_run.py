"""The sweeps of ``train`` and ``resume``: each run in its own process, and a table.

The failure of one run affects no other, and a run that is killed is detected.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import click

from jobrun.cli.fleet import Fleet, LocalFleet
from jobrun.cli.member import Order
from jobrun.cli.options import RunOptions, Settings, screen_width, settings, uses_color
from jobrun.cli.signals import Signals
from jobrun.cli.sweep_board import Board, JsonBoard
from jobrun.cli.sweep_table import SweepTable, sweep_summary
from jobrun.cli.sweep_view import LiveBoard
from jobrun.cli.table import table
from jobrun.conditions.parse import build
from jobrun.core.invocation import program
from jobrun.core.json_floats import to_json
from jobrun.core.paths import absolute
from jobrun.engine.resume_policy import Choice
from jobrun.engine.slurm import slurm_job, time_to_stop
from jobrun.errors import EXIT_DONE, EXITS_BY_SIGNAL, BindError, TaskError, exit_code_of_signal
from jobrun.report.formatting import plain, plural
from jobrun.report.terminal import Painter
from jobrun.runs.find import sweep_of_spec
from jobrun.runs.series import claim_after, fresh_name, newest_begun
from jobrun.runs.sweepdir import Member, SweepDir
from jobrun.session.local import default_threads
from jobrun.tools.sweep import Sweep, SweepPlan
from jobrun.tools.sweep_rows import SweepRow, row_from_end, row_of_crash, rows_on_disk

__all__ = ["run_sweep"]

_RANK = (1, 4, 3, 2, 5, 8, *EXITS_BY_SIGNAL, 6, 7)
"""If runs end with several exit codes, that of the sweep is the first of these."""


def run_sweep(
    sweep: Sweep,
    home: SweepDir | None,
    options: RunOptions,
    sets: Sequence[str],
    signals: Signals,
    seen: Path | None = None,
) -> int:
    """Run a sweep as ``SweepEngine.run`` does, or only show what would be done.

    ``sets`` were set in its spec.  Returns the exit code.
    """
    if options.reporters:
        text = "a sweep has no --reporter; its spec names reporters under 'report'"
        raise click.UsageError(text)
    engine = SweepEngine(settings(), signals, sweep, options, sets)
    return engine.dry_run(home) if options.dry_run else engine.run(home, seen)


class SweepEngine:
    """The execution of a sweep with the options of the command line."""

    def __init__(
        self,
        settings: Settings,
        signals: Signals,
        sweep: Sweep,
        options: RunOptions,
        sets: Sequence[str],
    ) -> None:
        self._settings = settings
        self._signals = signals
        self._sweep = sweep
        self._options = options
        self._sets = tuple(sets)
        asked = any(condition.interrupts for condition, _ in build(sweep.job))
        self._end = slurm_job().end if asked else None
        self._out_of_time = False

    def run(self, home: SweepDir | None, seen: Path | None = None) -> int:
        """Run the sweep in the directory ``home`` (None: a fresh one), and show its end.

        ``seen`` is the newest directory of the series in which a sweep was started before ``home``
        was looked for.

        Returns the exit code.  Raises RunRefusedError, LockedError, SaveError and DamagedError.
        """
        plan = self._sweep.plan(home)
        if plan.home is not None and not plan.to_do:
            return self._show(plan, plan.home, self._rows(plan, plan.home))
        if plan.home is not None:
            plan.home.home.lock()
            plan = self._sweep.plan(plan.home)  # another process may have just ended it
        Board().print_lines(*plan.lines)
        found = plan.home
        if found is None:
            runs_dir, name = self._options.runs_dir, self._sweep.job.name
            run = claim_after(runs_dir, name, seen, beside=self._sweep.request.fresh)
            if run is None:  # another process has made one meanwhile, which has ended
                seen = newest_begun(runs_dir, name)
                return self.run(sweep_of_spec(runs_dir, name, self._sweep.digest), seen)
            found = SweepDir(run.path, home=run)
        try:
            return self._run(plan, found)
        finally:
            found.home.unlock()

    def dry_run(self, home: SweepDir | None) -> int:
        """Show what would be done with each run; write nothing."""
        plan = self._sweep.plan(home)
        where = plan.home or SweepDir(fresh_name(self._options.runs_dir, self._sweep.job.name))
        runs = [(m, _would(choice)) for m, choice in zip(plan.members, plan.choices, strict=True)]
        if self._settings.json:
            found = [{"run_dir": str(where.run(m).path.absolute()), "would": w} for m, w in runs]
            text = json.dumps({"sweep": where.name, "runs": found})
        else:
            rows = [[plain(m.directory), would] for m, would in runs]
            lines = [*plan.lines, _opening(plan, where, self._options.jobs)]
            text = "\n".join([*map(plain, lines), table(("run", "would"), rows)])
        with suppress(BrokenPipeError):
            click.echo(text)
        return EXIT_DONE

    def _run(self, plan: SweepPlan, home: SweepDir) -> int:
        self._sweep.write(plan, home)
        self._signals.again = f"{program()} resume {shlex.quote(home.shown())}"
        board = self._board(plan)
        jobs = max(1, min(self._options.jobs, len(plan.to_do)))
        if self._verbosity >= 0:
            board.print_lines(_opening(plan, home, jobs))
        fleet = self._fleet(jobs, board, home)
        self._signals.runner = _SignalForwarder(fleet, board)
        try:
            fleet.run((n, self._order(home, plan.members[n], jobs)) for n in plan.to_do)
        finally:
            board.close()
        rows = self._rows(plan, home)
        for number, code in board.codes.items():
            told = board.ends.get(number)
            row = rows[number]
            rows[number] = row_from_end(row, told) if told else row_of_crash(row, code)
        reason = fleet.signal or ("SIGTERM" if self._out_of_time else "")
        return self._show(plan, home, rows, board.codes, reason)

    def _fleet(self, jobs: int, board: Board, home: SweepDir) -> Fleet:
        """Return what runs the members: processes here, or on the workers of a cluster."""

        def go() -> bool:
            return self._continues(board.codes.values())

        if not self._on_workers:
            return LocalFleet(jobs, board, go)
        from jobrun.cli.cluster_fleet import ClusterFleet

        return ClusterFleet(
            jobs,
            board,
            go,
            job=self._sweep.job,
            sweep_dir=str(absolute(home.path)),
            say=lambda text: board.print_lines(text),
        )

    @property
    def _on_workers(self) -> bool:
        """Whether the runs are placed on the workers of a cluster, each as a whole.

        A job of several nodes runs from here, with its nodes on the workers.
        """
        return self._sweep.job.session.kind == "dask" and len(self._sweep.job.nodes) == 1

    @property
    def _verbosity(self) -> int:
        return -1 if self._options.progress == "none" else self._settings.verbosity

    def _board(self, plan: SweepPlan) -> Board:
        names = [member.directory for member in plan.members]
        if self._options.progress == "json":
            return JsonBoard(names)
        terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        lines = not terminal or self._settings.json or self._settings.verbosity != 0
        if (self._options.progress or ("lines" if lines else "live")) != "live":
            return Board(names)
        if not terminal:
            board = Board(names)
            board.print_lines("warning: stderr is not a terminal: progress is shown as lines")
            return board
        painter = Painter(sys.stderr, uses_color(sys.stderr, self._settings.color))
        return LiveBoard(names, plan.to_do, self._sweep.metrics, painter)

    def _continues(self, codes: Iterable[int]) -> bool:
        """Return whether to start a further run, by the results of the others."""
        found = set(codes)
        if BindError.exit_code in found:  # all runs have the same code
            return False
        if self._end is not None and time_to_stop(self._end, 0.0):
            self._out_of_time = True
            return False
        return not (self._options.fail_fast and found - {EXIT_DONE})

    def _rows(self, plan: SweepPlan, home: SweepDir) -> list[SweepRow]:
        return rows_on_disk(home, plan.members, self._sweep.job)

    def _order(self, home: SweepDir, member: Member, jobs: int) -> Order:
        spec, request, options = self._sweep.spec, self._sweep.request, self._options
        return Order(
            path=spec.path,
            text=spec.text,
            folder=spec.folder,
            sets=self._sets,
            epochs=options.epochs,
            values=to_json(member.values),
            run=str(home.run(member).path),
            spec_path=str(request.spec_path),
            spec_text=self._sweep.text,
            accept_changes=request.accept_changes,
            again=request.again,
            afresh=request.afresh,
            program=request.program,
            threads=self._threads(jobs),
            check=options.check,
            wait=options.wait,
            verbosity=self._verbosity,
            events=self._options.progress == "json",
            traceback=self._settings.traceback,
            scheduler=options.scheduler,
        )

    def _threads(self, jobs: int) -> int:
        """Return the number of tasks that a run has at a time: its share of this machine."""
        if self._options.threads:
            return self._options.threads
        if self._on_workers:  # the scheduler has given it one thread of a worker
            return self._sweep.job.session.threads or 1
        return max(1, default_threads() // jobs)

    def _show(
        self,
        plan: SweepPlan,
        home: SweepDir,
        rows: Sequence[SweepRow],
        codes: Mapping[int, int] = MappingProxyType({}),
        signal_name: str = "",
    ) -> int:
        """Show the end on stdout; return the exit code."""
        exit_code = _exit_code(rows, codes.values(), signal_name)
        ended = SweepTable(
            name=home.name,
            sweep_dir=str(home.path.absolute()),
            metrics=self._sweep.metrics,
            best_by=self._sweep.best_by,
            rows=rows,
            left=[m.directory for m in plan.left if home.run(m).is_run()],
            exit_code=exit_code,
        )
        if self._settings.json:
            text = json.dumps(ended.to_json())
        else:
            text = "\n".join(sweep_summary(ended, screen_width()))
        with suppress(BrokenPipeError):  # nobody reads it; the exit code still counts
            click.echo(text)
        return exit_code


class _SignalForwarder:
    """A forwarder of signals to the runs."""

    def __init__(self, fleet: Fleet, board: Board) -> None:
        self._fleet = fleet
        self._board = board

    def interrupt(self, signal_name: str) -> None:
        """Start no further run; running ones save and end."""
        self._fleet.send(signal_name, last=True)
        self._board.print_lines(
            f"{signal_name}: no further run starts; those that are running save and end "
            "(a second signal ends all at once)"
        )

    def save_soon(self, signal_name: str) -> None:
        """Save the running ones."""
        self._fleet.send(signal_name, last=False)


def _would(choice: Choice) -> str:
    if choice.action == "resume" and choice.start is not None:
        return f"resume from checkpoint_{choice.start.id} ({choice.start.place})"
    return "start from the beginning" if choice.action == "fresh" else "not be run: finished"


def _opening(plan: SweepPlan, home: SweepDir, jobs: int) -> str:
    """Return the plan in one line."""
    actions = [choice.action for choice in plan.choices]
    texts = {"done": "finished already", "resume": "to resume", "fresh": "to start"}
    counts = [(actions.count(action), text) for action, text in texts.items()]  # type: ignore[arg-type]
    parts = [f"{count} {text}" for count, text in counts if count]
    how = f", {jobs} at a time" if jobs > 1 else ""
    runs = plural(len(plan.members), "run")
    return f"{home.name}: {runs} in {home.shown()}{how}: {', '.join(parts)}"


def _exit_code(rows: Sequence[SweepRow], codes: Iterable[int], signal_name: str) -> int:
    """Return the exit code of the sweep: see ``_RANK``."""
    found = {code if code >= 0 else TaskError.exit_code for code in codes}
    found |= {row.exit_code for row in rows if row.exit_code is not None}
    if signal_name and any(row.exit_code is None for row in rows):
        found.add(exit_code_of_signal(signal_name))
    return next((code for code in _RANK if code in found), EXIT_DONE)
