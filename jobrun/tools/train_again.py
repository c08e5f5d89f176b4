"""The command that trains the spec of a run as it is now."""

from __future__ import annotations

import json
import os
import shlex
from contextlib import suppress
from pathlib import Path

from jobrun.analysis.facts import job_facts
from jobrun.core.invocation import program
from jobrun.core.paths import shown
from jobrun.errors import JobrunError
from jobrun.jobspec.resolve import load
from jobrun.jobspec.validate import job_of
from jobrun.runs.run_state import RunState
from jobrun.runs.rundir import RunDir
from jobrun.tools.stored_spec import stored_spec

__all__ = ["train_again"]


def train_again(run: RunDir, state: RunState) -> str:
    """Return the command; empty if it would not be the whole of what was typed.

    So it is where there is no spec, or none any more, and where ``--set`` or the matrix of a sweep
    are a part of the job: they are not kept.
    """
    with suppress(JobrunError, OSError):
        stored = stored_spec(run)
        spec = load(stored.spec_path, folder=stored.folder, data=stored.text.encode())
        if spec.matrix is not None or not os.path.isfile(stored.spec_path):
            return ""
        if json.dumps(job_facts(job_of(spec)), sort_keys=True) == _sorted(state):
            return " ".join([program(), "train", *_words(run.path, stored.spec_path)])
    return ""


def _sorted(state: RunState) -> str:
    return json.dumps(state.facts, sort_keys=True)


def _words(run: Path, spec: Path) -> list[str]:
    runs_dir = run.absolute().parent
    words = [shlex.quote(shown(spec))]
    if runs_dir != Path("runs").absolute():
        words += ["--runs-dir", shlex.quote(shown(runs_dir))]
    return words
