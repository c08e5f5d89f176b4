"""The final summary of a run: outcome, reason, metrics, what is on disk, the next command."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from jobrun.core.events import RunEnded, SlowestNode
from jobrun.core.invocation import program
from jobrun.core.paths import shown
from jobrun.core.save_cost import SHARE, less_often
from jobrun.core.text import duration, size
from jobrun.errors import EXIT_NOT_SAVED
from jobrun.report.fitting import broken, labelled
from jobrun.report.formatting import metric_texts, number, percent, plain, plural

__all__ = [
    "OUTCOMES",
    "Kept",
    "command_after",
    "ending",
    "next_command",
    "slowest_text",
    "summary",
]

SECONDS = 1.0
"""Seconds of saving, or of one node above the others, below which neither is worth a line."""

APART = 1.2
"""The factor above the other nodes' time in tasks from which on a node gets a line."""

HELD_UP = 0.05
"""The share of the attempt that the node must also have taken longer."""

OUTCOMES = {
    "finished": "finished",
    "failed": "FAILED",
    "interrupted": "interrupted",
    "error": "stopped by an error",
}


def summary(
    ended: RunEnded, *, verbose: bool = False, again: str = "", width: int | None = None
) -> list[str]:
    """Return the lines of the final summary; the last is the next command, which is not broken.

    ``again`` is the command that trains the spec as it is now, ``width`` that of the terminal.
    """
    command, lines = next_command(ended, again), ending(ended, verbose=verbose, width=width)
    return [*lines, "", command] if command else lines


def ending(ended: RunEnded, *, verbose: bool = False, width: int | None = None) -> list[str]:
    """Return the summary without a command, for a run that a script has started."""
    heads = [part for line in _headline(ended) for part in broken(line, width, "  ")]
    facts = labelled(_facts(ended, verbose), 11, width=width)
    notes = [part for note in _notes(ended) for part in broken(note, width and width - 2)]
    return [*heads, *facts, *(f"  {note}" for note in notes)]


def _notes(ended: RunEnded) -> list[str]:
    lines = []
    if ended.exit_code == EXIT_NOT_SAVED:
        lines.append(f"the last state is not on disk; on disk is {_on_disk(ended)}")
    share = _share(ended)
    if share is not None and share > SHARE and ended.checkpoint_seconds > SECONDS:
        cost = ended.saved, ended.checkpoint_seconds, ended.ran, ended.seconds
        lines.append(f"{share:.0%} of this attempt went into checkpoints; {less_often(*cost)}")
    return lines


def _headline(ended: RunEnded) -> list[str]:
    if ended.outcome == "nothing":
        return [plain(line) for line in ended.reason.splitlines()]
    outcome = OUTCOMES.get(ended.outcome, ended.outcome)
    if ended.only:
        reason = f": {plain(ended.reason)}" if ended.reason else ""
        return [
            f"{plain(ended.run)}: download and exit again, on {_on_disk(ended)}: {outcome}{reason}"
        ]
    after = f"after {plural(ended.epoch, 'epoch')}"
    reason = f": {plain(ended.reason)}" if ended.reason else ""
    return [f"{plain(ended.run)}: {outcome} {after}{reason}"]


def _facts(ended: RunEnded, verbose: bool) -> list[tuple[str, str]]:
    best = [f"{plain(m)} {number(v)} (epoch {e})" for m, (v, e) in ended.best.items()]
    return [
        ("time", _time(ended) if ended.outcome != "nothing" else ""),
        ("saved", _saved(ended) if ended.outcome != "nothing" else ""),
        ("memory", _memory(ended) if verbose and ended.outcome != "nothing" else ""),
        ("slowest", slowest_text(ended.slowest, ended.seconds)),
        ("metrics", "  ".join(metric_texts(ended.metrics))),
        ("best", "  ".join(best)),
        ("checkpoint", _checkpoint(ended)),
        ("uploaded", plain(shown(ended.uploaded)) if ended.uploaded else ""),
    ]


def slowest_text(slowest: SlowestNode | None, seconds: float) -> str:
    """Describe the slowest node of an attempt of ``seconds``; empty if none is much slower."""
    if slowest is None:
        return ""
    longer = slowest.seconds - slowest.others
    if slowest.seconds < APART * slowest.others or longer < max(SECONDS, HELD_UP * seconds):
        return ""
    others = duration(slowest.others)
    return (
        f"node {plain(slowest.node)}: {duration(slowest.seconds)} in tasks, "
        f"the other nodes {others} (median)"
    )


def _time(ended: RunEnded) -> str:
    if ended.only:
        return duration(ended.seconds)
    parts = [duration(ended.elapsed)]
    if ended.ran < ended.epoch:
        parts.append(f"{plural(ended.ran, 'epoch')} in {duration(ended.seconds)} this time")
    return ", ".join(parts)


def _saved(ended: RunEnded) -> str:
    failed = f"{plural(ended.failed_saves, 'save')} failed" if ended.failed_saves else ""
    share = _share(ended)
    if share is None or ended.only:
        return f"nothing; {failed}" if failed and not ended.saved else failed
    saved = f"{plural(ended.saved, 'checkpoint')}, {percent(share)} of the time"
    return f"{saved}; {failed}" if failed else saved


def _memory(ended: RunEnded) -> str:
    """Describe the memory of the process, which is that of the blobs and of copies being saved."""
    if ended.memory is None:
        return ""
    before = f", {size(ended.memory_before)} at the start" if ended.memory_before else ""
    return f"{size(ended.memory)} at most{before}"


def _share(ended: RunEnded) -> float | None:
    """Return the share of this attempt that saves took, or None if nothing was saved."""
    if not ended.saved or ended.seconds <= 0:
        return None
    return min(1.0, ended.checkpoint_seconds / ended.seconds)


def _checkpoint(ended: RunEnded) -> str:
    if ended.checkpoint is None:
        return "none" if ended.run_dir else ""
    return f"{shown(ended.checkpoint)} ({_place(ended)})"


def _on_disk(ended: RunEnded) -> str:
    return "nothing" if ended.on_disk is None else _place(ended)


def _place(ended: RunEnded) -> str:
    return plain(ended.place) or f"epoch {ended.on_disk}"


def next_command(ended: RunEnded, again: str = "") -> str:
    """Return the next command to type; empty if the run left nothing.

    ``again`` is the command that trains the spec as it is now.
    """
    if ended.run_dir is None:
        return ""
    run = shown(ended.run_dir)
    if ended.only and ended.outcome != "finished":
        return f"{program()} resume {shlex.quote(run)} --only {ended.only}"
    lost = ended.exit_code == EXIT_NOT_SAVED
    return command_after(
        "error" if lost else ended.outcome,
        run,
        Kept(
            loadable=ended.checkpoint is not None,
            only_init=not lost and (ended.on_disk is None or ended.place == "epoch 0"),
            before_failure=ended.before_failure,
        ),
        again,
    )


@dataclass(frozen=True, slots=True)
class Kept:
    """The checkpoints that a run has left on disk.

    ``loadable``: a whole checkpoint.  ``only_init``: no epoch, or part of one.  ``before_failure``
    is the epoch of the newest checkpoint from before a failure.  ``lost``: there are checkpoints,
    but none is whole.  ``behind``: the one of the end is not.
    """

    loadable: bool
    only_init: bool = False
    before_failure: int | None = None
    lost: bool = False
    behind: bool = False


def command_after(state: str, run: str, kept: Kept, again: str = "") -> str:
    """Return the command to type for a run at the path ``run``; empty if there is none.

    ``state`` is its outcome or state.  ``again`` is the command that trains its spec as it is now:
    after an error before an epoch was saved, the spec or its code needs a change, and ``train``
    then starts over.
    """
    path = shlex.quote(run)
    if state == "running":
        return f"{program()} logs {path} -f"
    if kept.lost:
        return f"{program()} checkpoints verify {path}"
    if state == "error" and kept.only_init and again:
        return again
    if state in ("interrupted", "error"):
        return f"{program()} resume {path}"
    if state == "failed":
        if kept.before_failure is None:  # nothing is left to go back to
            return f"{program()} show {path}"
        return f"{program()} resume {path} --epoch {kept.before_failure}"
    if kept.behind:  # the epochs after it are run again
        return f"{program()} resume {path}"
    return f"{program()} load-blobs {path}" if kept.loadable else ""
