"""``--epochs +N``: epochs after the end of a run, as a number in total.

The same command may be run again at any time.  If the run has ended, the N epochs count from there.
If it has not, it goes to the end that it was given when it began, so a command that a scheduler or
cron repeats after a kill asks for no further epochs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from jobrun.cli.options import RunOptions
    from jobrun.runs.rundir import RunDir

__all__ = ["MORE", "epochs_in_total", "not_of_a_sweep"]

MORE = "--epochs +10"
"""The example in messages."""


def epochs_in_total(options: RunOptions, run: RunDir | None) -> RunOptions:
    """Return the options with the epochs in total; ``run`` is None if there is none yet.

    Raises UsageError if a run that has not ended has no ``epochs`` condition, and the errors of its
    spec.
    """
    state = run.state() if run is not None else None
    if run is None or state is None:
        total = options.more_epochs
    elif state.over:
        total = state.epoch + options.more_epochs
    else:
        total = _given(run)
    return replace(options, epochs=total, more_epochs=0)


def not_of_a_sweep() -> click.UsageError:
    """Return the error of a sweep, whose runs end at different epochs."""
    return click.UsageError("--epochs +N is for one run: a sweep takes a number in total")


def _given(run: RunDir) -> int:
    """Return the number of epochs that an unfinished run was given."""
    from jobrun.errors import UsageError
    from jobrun.jobspec.validate import job_of
    from jobrun.tools.stored_spec import stored_spec

    conditions = job_of(stored_spec(run).spec).conditions
    ends = [c.value for c in conditions if (c.section, c.kind) == ("stop", "epochs")]
    if not ends:
        text = f"{run.shown()} has not ended, and its spec has no number of epochs"
        raise UsageError(text, hint="give the number in total: --epochs N")
    return int(min(ends))
