"""One member of a sweep, in a process of its own: which one it is, and where its run is.

Such processes run members at once and in any order, on all machines that share the directory.  They
hold the lock of their own run, and that of the sweep for the instant alone in which one of them
writes sweep.json, with the runs of the whole matrix.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from jobrun.core.suggestions import did_you_mean, did_you_mean_or_all
from jobrun.errors import JobrunError, LockedError, UsageError
from jobrun.jobspec.matrix import same
from jobrun.jobspec.parsing import MAX_BYTES
from jobrun.jobspec.resolve import dump_resolved
from jobrun.jobspec.scalars import ScalarError, scalar, typed
from jobrun.runs.find import sweep_of_spec
from jobrun.runs.series import claim_after, fresh_name, newest_begun
from jobrun.runs.sweepdir import Member, SweepDir, value_text
from jobrun.storage.regular_file import read_run_file
from jobrun.tools.sweep import Sweep

__all__ = ["Placed", "member_number", "place_of", "registered"]

_PATIENCE = 10.0
"""The seconds for which others may write sweep.json, one after another."""
_PAUSES = random.Random()
"""Of our own: the global generator belongs to the tasks."""
_FEW = 4


@dataclass(frozen=True, slots=True)
class Placed:
    """The directory of a sweep; ``lines`` are the reason why it is a new one beside an earlier."""

    home: SweepDir
    lines: Sequence[str] = ()


def member_number(members: Sequence[Member], text: str) -> int:
    """Return the number of a member, from 0, given by it, by its values or by its directory.

    ``lr=0.1`` is enough where a single member has that value.  Raises UsageError.
    """
    option = f"--member {text}"
    if text.isascii() and text.removeprefix("-").isdigit():
        if not 0 <= int(text) < len(members):
            text = f"{option}: there is no such member"
            raise UsageError(text, hint=f"the numbers are 0 to {len(members) - 1}")
        return int(text)
    by_directory = [n for n, member in enumerate(members) if member.directory == text]
    found = by_directory or _with_values(members, text, option)
    if len(found) == 1:
        return found[0]
    if not found:
        hint = did_you_mean(text, [m.directory for m in members]) or "jobrun sweep SPEC lists them"
        raise UsageError(f"{option}: no member has these values", hint=hint)
    few = ", ".join(members[n].directory for n in found[:_FEW]) + ", …" * (len(found) > _FEW)
    raise UsageError(f"{option}: {len(found)} members have these values", hint=f"name one: {few}")


def _with_values(members: Sequence[Member], text: str, option: str) -> list[int]:
    """Return the numbers of the members with the values of ``lr=0.1,hidden=32``."""
    wanted: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        name = name.strip()
        if not equals or not name:
            hint = "a number from 0, or values: --member lr=0.1,hidden=32"
            raise UsageError(f"{option}: expected a member of the sweep", hint=hint)
        if name not in members[0].values:
            names = list(members[0].values)
            hint = did_you_mean_or_all(name, names, "it ranges over")
            raise UsageError(f"{option}: {name!r} is not in the matrix", hint=hint)
        wanted[name] = value.strip()
    return [n for n, member in enumerate(members) if _has(member.values, wanted)]


def _has(values: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    return all(_means(text, values[name]) for name, text in wanted.items())


def _means(text: str, value: Any) -> bool:
    """Return whether a text stands for a value of a matrix: ``1e-1`` for 0.1."""
    if text == value_text(value):
        return True
    with suppress(ScalarError):
        return same(typed(scalar(text), value), value)
    return False


def place_of(sweep: Sweep, runs_dir: str) -> Placed:
    """Return where ``registered`` would place a sweep; nothing is written.

    Raises RunRefusedError and DamagedError.
    """
    home = sweep_of_spec(runs_dir, sweep.job.name, sweep.digest)
    if home is not None and _is_registered(sweep, home):
        return Placed(home)
    plan = sweep.plan(home)
    if plan.home is not None:
        return Placed(plan.home)
    return Placed(SweepDir(fresh_name(runs_dir, sweep.job.name)), plan.lines)


def registered(sweep: Sweep, runs_dir: str) -> Placed:
    """Return the directory of a sweep that has all runs of the matrix; it is made if need be.

    Of several processes one makes it, and the others find it.  Raises LockedError if a process that
    runs a sweep there keeps its lock and does not know these runs, RunRefusedError, SaveError and
    DamagedError.
    """
    give_up = time.monotonic() + _PATIENCE
    while True:
        try:
            found = _register(sweep, runs_dir)
        except LockedError:
            if time.monotonic() > give_up:
                raise
            found = None
        if found is not None:
            return found
        time.sleep(_PAUSES.uniform(0.02, 0.2))


def _register(sweep: Sweep, runs_dir: str) -> Placed | None:
    """Return the directory; None if another process has made one meanwhile."""
    seen = newest_begun(runs_dir, sweep.job.name)
    home = sweep_of_spec(runs_dir, sweep.job.name, sweep.digest)
    if home is not None and _is_registered(sweep, home):
        return Placed(home)
    plan = sweep.plan(home)
    lines = plan.lines
    if plan.home is None:
        run = claim_after(runs_dir, sweep.job.name, seen)
        if run is None:
            return None
        found = SweepDir(run.path, home=run)
    else:
        found = plan.home
        found.home.lock()
    try:
        if plan.home is not None:
            plan = sweep.plan(found)  # another process may have changed it
            if plan.home is None:
                return None  # its runs have ended meanwhile: a new one is made
        sweep.write(plan, found)
    finally:
        found.home.unlock()
    return Placed(found, lines)


def _is_registered(sweep: Sweep, home: SweepDir) -> bool:
    """Return whether sweep.json has all runs of the matrix, and the spec is kept with it."""
    state = home.state()
    known = {member.directory for member in state.members}
    if state.digest != sweep.digest or not known.issuperset(
        member.directory for member in sweep.members(home)
    ):
        return False
    try:
        kept = read_run_file(home.home.resolved_path, MAX_BYTES)
    except (JobrunError, OSError):
        return False
    return kept == dump_resolved(sweep.spec).encode("utf-8", "surrogateescape")
