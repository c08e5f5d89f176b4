"""One process of a smoke run: ``python -m jobrun.cli.smoke_run JSON``; see ``tools.smoke``."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from jobrun.checkpoint.manager import CheckpointManager
from jobrun.cli.failure import show_error
from jobrun.cli.options import Settings
from jobrun.core.events import CheckpointSaved, Event, Report, ignore
from jobrun.engine.resume_policy import Request
from jobrun.engine.runner import JobRunner
from jobrun.errors import JobrunError
from jobrun.jobspec.resolve import dump_resolved, load
from jobrun.jobspec.validate import job_of
from jobrun.report.formatting import json_values
from jobrun.session.local import LocalSession
from jobrun.tools.smoke import SmokeOrder, shorten

__all__ = ["main"]


def main(argument: str) -> int:
    """Run or resume the ordered job; return the exit code."""
    asked = SmokeOrder(**json.loads(argument))
    try:
        return _run(asked)
    except JobrunError as error:
        show_error(error, Settings())
        return error.exit_code


def _run(asked: SmokeOrder) -> int:
    spec = load(asked.spec, asked.sets, epochs=asked.epochs, folder=asked.code)
    job = job_of(spec)
    shorten(job, asked.batches, save_inside=asked.kill == "inside")
    runner = JobRunner(
        job,
        CheckpointManager(asked.run_dir),
        report=_killer(asked.kill),
        request=Request(
            folder=Path(spec.folder),
            spec_path=Path(asked.spec).absolute(),
            spec_text=spec.text,
            resolved_text=dump_resolved(spec),
        ),
        check_inputs=asked.check,
    )
    runner.train(LocalSession(asked.threads))
    ended = runner.outcome
    assert ended is not None
    Path(asked.outcome).write_text(json.dumps(json_values(ended.to_json())), encoding="utf-8")
    if ended.exit_code:
        print(f"error: {ended.reason}", file=sys.stderr)
    return ended.exit_code


def _killer(when: str) -> Report:
    """Return a reporter that kills this process at the first save of the ordered kind."""
    if not when:
        return ignore

    def kill(event: Event) -> None:
        if not isinstance(event, CheckpointSaved):
            return
        inside = ", " in event.place  # "epoch 3, batch 10 of …"
        if inside if when == "inside" else (event.epoch >= 1 and not inside):
            os.kill(os.getpid(), signal.SIGKILL)

    return kill


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
