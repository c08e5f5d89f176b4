"""Events of a small run, for the tests of the reporters."""

from __future__ import annotations

from typing import Any

from jobrun.core.events import CheckpointSaved, EpochFinished, RunEnded, RunStarted


class Make:
    """Makes events; fields that are not given have a usual value."""

    def started(self, **fields: Any) -> RunStarted:
        values: dict[str, Any] = {
            "job": "digits",
            "run": "digits",
            "run_dir": None,
            "attempt": 1,
            "epoch": 0,
            "checkpoint": None,
            "epochs": 3,
            "session": "local, 2 threads",
            "metrics": {"loss": "min", "acc[val]": "max"},
        }
        return RunStarted(**values | fields)

    def epoch(self, number: int, best: tuple[str, ...] = (), **metrics: Any) -> EpochFinished:
        progress_texts = (f"epochs {number}/3", "")
        return EpochFinished(number, 0.25, 0.25 * number, metrics, best, progress_texts)

    def saved(self, id: int, epoch: int) -> CheckpointSaved:
        path = f"runs/digits/checkpoint_{id}"
        return CheckpointSaved(id, epoch, path, 1_234_567, 12, 0.3, 0.3)

    def ended(self, **fields: Any) -> RunEnded:
        values: dict[str, Any] = {
            "outcome": "finished",
            "reason": "3 epochs done",
            "exit_code": 0,
            "epoch": 3,
            "ran": 3,
            "seconds": 10.0,
            "elapsed": 10.0,
            "metrics": {"loss": 0.25, "acc[val]": 0.5},
            "best": {"loss": (0.25, 3)},
            "on_disk": 3,
            "checkpoint": "runs/digits/checkpoint_3",
            "saved": 4,
            "checkpoint_seconds": 0.5,
            "run": "digits",
            "run_dir": "runs/digits",
        }
        return RunEnded(**values | fields)
