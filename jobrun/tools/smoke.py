"""A smoke run for continuous integration: does a job run, and resume after kills bit for bit?

The job is shortened to a few epochs of a few batches and run twice in its own folder, each
time in its own processes.  Once undisturbed, on one thread, with the inputs of every task
checked for silent changes; once on several threads, killed after the save of epoch 1 and again
after a save inside an epoch, and resumed each time.  Then every blob must be the same, bit for bit.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from jobrun.checkpoint.diff import BlobChange, compare
from jobrun.errors import EXIT_DONE, JobrunError
from jobrun.model.job import Job, Pipe
from jobrun.model.policy import DEFAULT_POLICY, Every

__all__ = ["Smoke", "SmokeOrder", "Step", "shorten", "smoke"]

_TIMEOUT = 3600.0
_ALL = 1_000_000


@dataclass(frozen=True, slots=True)
class SmokeOrder:
    """The order for one process of a smoke run; its JSON is its only argument.

    ``code`` is the folder of the code (None: the spec's).  ``kill`` is when it kills itself:
    ``epoch``, after the first save at the end of an epoch; ``inside``, after the first save inside
    one; or never.  ``outcome`` is the file for the JSON of the end.
    """

    spec: str
    sets: tuple[str, ...]
    epochs: int
    batches: int
    run_dir: str
    outcome: str
    threads: int = 1
    check: bool = False
    kill: str = ""
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a smoke run: ``status`` is ``ok``, ``failed`` or ``skipped``."""

    name: str
    status: str
    seconds: float
    text: str = ""
    details: str = ""


@dataclass(frozen=True)
class Smoke:
    """A smoke run of a spec; ``exit_code`` is that of the first step that failed."""

    spec: str
    steps: tuple[Step, ...]
    exit_code: int = EXIT_DONE

    @property
    def ok(self) -> bool:
        """Whether no step failed."""
        return all(step.status != "failed" for step in self.steps)


def shorten(job: Job, batches: int, *, save_inside: bool) -> None:
    """Limit every pipe of ``epoch`` to ``batches`` batches an epoch, and save each epoch.

    With ``save_inside`` it is saved after each batch too.  A job without checkpoints gets
    them, since they are compared.  No catalogue is notified of them, and nothing is uploaded.
    """
    for task in job.epoch:
        if isinstance(task, Pipe):
            reader = task.reader
            given = reader.batches.batches_per_epoch
            own = job.vars.get(given) if isinstance(given, str) else given
            if own is None and isinstance(given, str):
                continue  # a blob, or a var of each node: not known yet
            least = batches if own is None else min(int(own), batches)
            fewer = replace(reader.batches, batches_per_epoch=least)
            task.reader = replace(reader, batches=fewer)
    policy = job.checkpoint or DEFAULT_POLICY
    job.checkpoint = replace(
        policy,
        every=Every(epochs=1, batches=1 if save_inside else None),
        keep=replace(policy.keep, last=_ALL),
        on_success="keep",
        on_error="fail",
        catalogue=None,
    )
    job.upload = None


def smoke(
    spec: str,
    sets: Sequence[str],
    folder: Path,
    *,
    epochs: int,
    batches: int,
    code: str | None = None,
) -> Smoke:
    """Run all steps in ``folder``, which is empty.

    ``code`` is the folder of the code, if it is not the spec's.

    The first failure ends it.  Errors of the job are results and are not raised.
    """
    order = SmokeOrder(spec, tuple(sets), epochs, batches, "", "", code=code)
    run = _Run(order, folder)
    for step in (run.check_spec, run.train, run.kill_and_resume, run.compare):
        if not step():
            break
    return Smoke(spec, tuple(run.steps), run.exit_code)


class _Run:
    """The steps of a smoke run, in order; each returns whether to continue."""

    def __init__(self, asked: SmokeOrder, folder: Path) -> None:
        self._asked = asked
        self._folder = folder
        self.steps: list[Step] = []
        self.exit_code = EXIT_DONE
        self._ends: list[dict[str, Any]] = []

    def check_spec(self) -> bool:
        """Check that the spec is valid and its functions can be called as it says."""
        from jobrun.jobspec.validate import validate_spec

        def check() -> str:
            asked = self._asked
            job = validate_spec(
                asked.spec, asked.sets, True, epochs=asked.epochs, folder=asked.code
            )
            tasks = sum(len(group) for group in job.groups.values())
            return f"job {job.name}, {tasks} tasks"

        return self._step("spec", check)

    def train(self) -> bool:
        """Run the job undisturbed, with its inputs checked."""

        def train() -> str:
            ended = self._ended(self._start("undisturbed", check=True))
            return f"{_epochs(ended)} on 1 thread, inputs checked: {ended['reason']}"

        return self._step("train", train)

    def kill_and_resume(self) -> bool:
        """Run the job and kill it twice, or once if there is no save inside an epoch."""

        def kill() -> str:
            killed = []
            for when in ("epoch", "inside", ""):
                process = self._start("killed", threads=4, kill=when)
                if not when or process.returncode != -signal.SIGKILL:
                    ended = self._ended(process)
                    break
                killed.append(
                    "after a save " + ("of an epoch" if when == "epoch" else "inside one")
                )
            how = "killed " + " and ".join(killed) if killed else "never killed: it saves too late"
            return f"{_epochs(ended)} on 4 threads, {how}"

        return self._step("kill and resume", kill)

    def compare(self) -> bool:
        """Check that both runs ended in the same state."""

        def same() -> str:
            first, second = self._ends
            a, b = Path(first["checkpoint"]), Path(second["checkpoint"])
            found = compare(a, b)
            faults = [f"{name}: only undisturbed" for name in found.removed]
            faults += [f"{name}: only after a kill" for name in found.added]
            faults += [_difference(change) for change in found.changed]
            for what in ("position", "metrics", "decision"):
                was, now = (repr(getattr(record, what)) for record in found.records)
                faults += [f"{what}: {was} undisturbed, {now} after a kill"] if was != now else []
            if faults:
                raise _Failed("the resumed run gave another state", "\n".join(faults), 1)
            return f"{found.same} blob{'s' * (found.same != 1)} the same, bit for bit"

        return self._step("compare", same)

    def _step(self, name: str, action: Callable[[], str]) -> bool:
        start = time.monotonic()
        try:
            text, status, details = action(), "ok", ""
        except (JobrunError, _Failed) as error:
            text, status = str(error), "failed"
            details = error.details if isinstance(error, _Failed) else ""
            self.exit_code = error.exit_code
        self.steps.append(Step(name, status, time.monotonic() - start, text, details))
        return status == "ok"

    def _start(
        self, name: str, *, threads: int = 1, check: bool = False, kill: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a process to its end; raises _Failed if it does not end."""
        asked = replace(
            self._asked,
            run_dir=str(self._folder / name),
            outcome=str(self._folder / f"{name}.json"),
            threads=threads,
            check=check,
            kill=kill,
        )
        words = [sys.executable, "-P", "-m", "jobrun.cli.smoke_run", json.dumps(asdict(asked))]
        try:
            return subprocess.run(
                words,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_TIMEOUT,
                env={**os.environ, "PYTHONIOENCODING": "utf-8"},
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            raise _Failed(f"it did not end within {_TIMEOUT:g} s", "", 1) from error

    def _ended(self, process: subprocess.CompletedProcess[str]) -> dict[str, Any]:
        """Return how the run of a process ended; raises _Failed if it was not successful."""
        if process.returncode != EXIT_DONE:
            lines = (process.stderr or process.stdout).strip().splitlines()
            code = process.returncode if process.returncode > 0 else 1
            said = next((ln for ln in reversed(lines) if "error: " in ln), "")
            text = said.removeprefix("error: ") or f"it ended with exit code {process.returncode}"
            raise _Failed(text, "\n".join([*process.stdout.splitlines()[-20:], *lines[-40:]]), code)
        name = "undisturbed" if not self._ends else "killed"
        ended: dict[str, Any] = json.loads((self._folder / f"{name}.json").read_text("utf-8"))
        self._ends.append(ended)
        return ended


class _Failed(Exception):  # noqa: N818 - caught here, shown as a step
    """The failure of a step: the reason, the output of a process, and the exit code."""

    def __init__(self, text: str, details: str, exit_code: int) -> None:
        super().__init__(text)
        self.details = details
        self.exit_code = exit_code


def _epochs(ended: dict[str, Any]) -> str:
    return f"{ended['epoch']} epoch{'s' * (ended['epoch'] != 1)}"


def _difference(change: BlobChange) -> str:
    if change.was or change.now:
        return f"{change.name}: {change.was} undisturbed, {change.now} after a kill"
    if change.count is None:
        return f"{change.name}: {change.before!r} undisturbed, {change.after!r} after a kill"
    by = f", by at most {change.absolute:.3g}" if change.absolute is not None else ""
    return f"{change.name}: {change.count} of {change.size} elements differ{by}"
