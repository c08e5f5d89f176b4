"""The action of ``train`` and ``resume`` on the run they find: one pure function, ``decide``.

It uses run.json, the record of the checkpoint to start from, the differences
between the job that was run and the current job, and the verdict of the current stop conditions:

====================================  =========================  =================================
what changed since                    unfinished run             finished run
====================================  =========================  =================================
nothing                               resume                     done
stop, limits, threads, checkpoint     resume, changes shown      verdict: resume, or done
policy, metrics, reports, session
tasks, vars, seed, nodes, readers     refuse                     ``train``: a new run beside it,
                                                                 ``resume``, Python: refuse
only files of code and weights        resume, changes shown      done, changes shown
those ``init`` uses, at epoch 0       ``train``: from the start  (as above)
the job, after an error before a save ``train``: from the start  (as above)
====================================  =========================  =================================

``--accept-changes`` turns changes of the job into ones that are shown and obeyed, but for another
adapter of an object under ``state``.  A run that a
condition under ``fail`` ended is finished too, with exit code 7.  ``--epoch`` and ``--id`` start
from an earlier checkpoint, whatever the outcome was.  ``--only exit`` runs ``download`` and
``exit`` again on a checkpoint, and leaves the state of the run as it is.  Nothing here reads or
writes a file.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from jobrun.errors import EXIT_DONE, EXIT_FAILED_BY_CONDITION, RunRefusedError

if TYPE_CHECKING:
    from jobrun.conditions.decision import Decision
    from jobrun.runs.node_map import NodeMap

__all__ = ["Changes", "Choice", "FoundState", "Request", "Start", "decide"]

Action = Literal["fresh", "resume", "exit", "done", "refuse", "new_run"]
Only = Literal["", "exit"]

_ACCEPTING = "JobRunner(..., accept_changes=True)"


@dataclass(frozen=True, slots=True)
class Request:
    """The user's request, beside the job itself.

    ``epoch`` and ``id`` name a checkpoint to start from, ``nodes`` says which part of one goes to
    which node; ``resized``: because their number changes, which is not another change of the job.
    ``folder`` holds the user's code, ``spec_path`` is the spec file, ``spec_text`` and
    ``resolved_text`` what is kept of it in the run directory.  ``again`` and ``afresh`` are the
    commands that ask for the same again, and for a new run, for messages (empty: the job was built
    in Python), ``longer`` is the one for more epochs (empty: there is none); ``program`` starts
    jobrun.  ``unfinished`` is a newer run of the same name that has not ended (empty: there is
    none).  ``only`` ``exit``: no epoch is run.
    """

    command: Literal["train", "resume"] = "train"
    epoch: int | None = None
    id: int | None = None
    accept_changes: bool = False
    fresh: bool = False
    folder: Path | None = None
    spec_path: Path | None = None
    spec_text: str = ""
    resolved_text: str = ""
    again: str = ""
    afresh: str = ""
    longer: str = ""
    nodes: NodeMap | None = None
    resized: bool = False
    program: str = "jobrun"
    unfinished: str = ""
    only: Only = ""

    @property
    def spec_dir(self) -> Path | None:
        """The folder of the spec, where relative paths begin."""
        return self.spec_path.parent if self.spec_path is not None else self.folder

    @property
    def names_checkpoint(self) -> bool:
        """Whether a checkpoint was named, so that no other may replace it."""
        return self.epoch is not None or self.id is not None

    @property
    def names_nodes(self) -> bool:
        """Whether it says which nodes get the parts of a checkpoint."""
        return bool(self.nodes) or self.resized


@dataclass(frozen=True, slots=True)
class Changes:
    """The differences between the job that was run and the current job, one line each.

    ``job`` makes it another job, ``free`` may change at any time, ``code`` names files of the
    user's code whose content differs, ``weights`` those that ``load`` reads, ``init`` those of both
    that the group ``init`` uses.  ``never`` are those of ``job`` that cannot be accepted.
    """

    job: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    init: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()


class Start(Protocol):
    """The part of a checkpoint's record that is used: its serial number and place."""

    @property
    def id(self) -> int:
        """The checkpoint's serial number."""

    @property
    def epoch(self) -> int:
        """The number of epochs completed."""

    @property
    def place(self) -> str:
        """Its place in the run, in words."""

    @property
    def at_boundary(self) -> bool:
        """Whether it lies between two epochs."""


class FoundState(Protocol):
    """The part of a run's state (``run_state.RunState``) that is used."""

    @property
    def state(self) -> str:
        """``running``, ``interrupted``, ``error``, ``finished`` or ``failed``."""

    @property
    def reason(self) -> str:
        """The reason why the run ended, in words."""

    @property
    def epoch(self) -> int:
        """The number of epochs completed."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The decision: ``start`` is the checkpoint to resume from, ``lines`` are shown.

    ``rewind``: the checkpoints after ``start`` go to ``attempts/``.  ``exit_code`` is what the
    process ends with where nothing is to be done.
    """

    action: Action
    lines: tuple[str, ...] = ()
    start: Start | None = field(default=None)
    rewind: bool = False
    exit_code: int = EXIT_DONE

    def refusal(self) -> RunRefusedError:
        """Return the error of a choice that refuses."""
        return RunRefusedError("\n".join(self.lines))


def decide(
    request: Request,
    state: FoundState | None,
    head: Start | None,
    changes: Changes = Changes(),
    verdict: Decision | None = None,
    *,
    start: Start | None = None,
    back: int | None = None,
    run: str = "the run",
) -> Choice:
    """Return what to do with a run.

    ``state`` is None if there is no run yet.  ``head`` is its newest checkpoint (None: there is
    none), ``start`` the one that ``request`` names, if it names one.  ``verdict`` is that of the
    current stop conditions on the checkpoint to start from, with its saved states.  ``back`` is
    the epoch, whose checkpoint is there, to go back to after a failure.  ``run`` is the run's name
    in messages: its path.
    """
    start = start or head
    if request.fresh or state is None:
        return Choice("fresh")
    over = state.state in ("finished", "failed")
    if start is None and not over:
        return Choice("fresh", (f"{run} holds no checkpoint: the job starts from the beginning",))
    if _failed_before_a_save(request, state, head) and changes.job and not request.accept_changes:
        why = f"{run} failed before an epoch was saved, and the job has changed: it starts over"
        return Choice("fresh", (why, *_indented(changes.job)))
    if changes.job and (changes.never or not request.accept_changes):
        reached = head.epoch if head is not None else state.epoch  # a kill writes no run.json
        return _another_job(request, reached, changes, run, over)
    if request.only:
        return Choice("exit", _change_lines(changes), start)
    if _only_init_is_done(request, head, changes):
        files = ", ".join(changes.init)
        why = f"{run} has run 'init' only, and {files} has changed since: it starts over"
        return Choice("fresh", (why,))
    if over and _nothing_left(request, state, head, start, changes, verdict):
        longer = request.longer if verdict is not None and verdict.kind == "epochs" else ""
        return _done(request, state, changes, back, run, longer)
    rewind = head is not None and start is not None and start.id != head.id
    first = start is not None and start.epoch == 0
    lines = _change_lines(changes, request.afresh if first else "")
    if over and head is not None and start is head and head.epoch < state.epoch:
        lost = (
            f"{run} was {state.state} after epoch {state.epoch}; that checkpoint is not there now"
        )
        lines = (f"{lost}, and the epochs after epoch {head.epoch} are run again", *lines)
    return Choice("resume", lines, start, rewind)


def _only_init_is_done(request: Request, head: Start | None, changes: Changes) -> bool:
    """Return whether the run has only what ``init`` made, by code that has changed since."""
    return bool(changes.init) and _may_start_over(request, head)


def _failed_before_a_save(request: Request, state: FoundState, head: Start | None) -> bool:
    """Return whether an error ended the run before an epoch was saved.

    After a kill the job is refused instead: what has changed may be a mistake.
    """
    return state.state == "error" and state.epoch == 0 and _may_start_over(request, head)


def _may_start_over(request: Request, head: Start | None) -> bool:
    """Return whether nothing is lost if a run starts over, because ``init`` is all that it has run.

    ``resume`` continues from what there is.
    """
    if request.command != "train" or request.names_checkpoint:
        return False
    return head is not None and head.epoch == 0 and head.at_boundary


def _nothing_left(
    request: Request,
    state: FoundState,
    head: Start | None,
    start: Start | None,
    changes: Changes,
    verdict: Decision | None,
) -> bool:
    """Return whether a run that has ended has nothing left to do."""
    if start is None or head is None:
        return True  # its checkpoints are gone, or it never had any
    if start.id != head.id:
        return False
    if head.epoch < state.epoch:
        return False  # the checkpoint of its end is lost: the epochs after the head are run again
    if not (changes.free or changes.job or request.names_checkpoint):
        return True
    if state.state == "failed":
        return verdict is not None and verdict.outcome == "fail"
    return verdict is not None


def _another_job(request: Request, epoch: int, changes: Changes, run: str, over: bool) -> Choice:
    """Return the choice for a changed job: an unfinished run is kept for its own job."""
    differences = _indented(changes.job)
    if over and request.command == "train" and request.again:
        why = f"{run} is finished, and the job differs from the one that was run:"
        return Choice("new_run", (why, *differences, "a new run starts beside it"))
    how = "finished" if over else f"not finished (epoch {epoch})"
    why = f"{run} is {how}, and the job differs from the one that was run:"
    if changes.never:
        why = f"{run} was saved with another adapter, which this job cannot restore from:"
    if request.again:
        accept, afresh, same = f"{request.again} --accept-changes", request.afresh, f"resume {run}"
        same += f" --only {request.only}" if request.only else ""
        ways = [("to resume with the changes", accept), ("to start a new run", afresh)]
        ways += (
            []
            if over and not request.only
            else [("to resume as it was", f"{request.program} {same}")]
        )
    else:
        ways = [
            ("to resume with the changes", _ACCEPTING),
            ("to start a new run", "give the CheckpointManager another directory"),
        ]
    ways = ways[1:] if changes.never else ways
    return Choice("refuse", (why, *differences, *_table(ways)), exit_code=2)


def _done(
    request: Request, state: FoundState, changes: Changes, back: int | None, run: str, longer: str
) -> Choice:
    """Return the choice of nothing to do, with lines on what would change that."""
    epochs = f"{state.epoch} epoch{'' if state.epoch == 1 else 's'}"
    ways = [("to run the job again from its start", request.afresh)] if request.afresh else []
    if longer and state.state == "finished":
        ways = [("to run more epochs", longer), *ways]
    code = EXIT_DONE
    first = f"{run} is finished, nothing is left to do ({epochs}; {state.reason})"
    if state.state == "failed":
        code = EXIT_FAILED_BY_CONDITION
        first = f"{run} ended as a failure ({epochs}; {state.reason})"
        if back is not None:
            resume = f"{request.program} resume {run} --epoch {back}"
            ways = [("to resume from an earlier epoch", resume), *ways]
    if request.unfinished:
        resume = f"{request.program} resume {shlex.quote(request.unfinished)}"
        ways.append(("to resume the newer run, which has not ended", resume))
    return Choice("done", (first, *_change_lines(changes), *_table(ways)), exit_code=code)


def _change_lines(changes: Changes, afresh: str = "") -> tuple[str, ...]:
    """Return the changes as lines to show; ``afresh``: the first epoch runs, without ``init``."""
    lines: list[str] = []
    if changes.job or changes.free:
        lines += ["changed since the run was started:", *_indented((*changes.job, *changes.free))]
    if changes.code:
        lines.append(f"code that changed since the last start: {', '.join(changes.code)}")
    if changes.weights:
        lines.append(f"weights that changed since the last start: {', '.join(changes.weights)}")
    if changes.init and afresh:
        files = ", ".join(changes.init)
        lines.append(f"'init', which uses {files}, is not run again; to start over: {afresh}")
    return tuple(lines)


def _indented(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple("  " + part for line in lines for part in line.splitlines())


def _table(ways: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return ``what: command`` lines with the commands aligned."""
    width = max((len(what) for what, _ in ways), default=0) + 1
    return tuple(f"{what + ':':<{width}}  {command}" for what, command in ways)
