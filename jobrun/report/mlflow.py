"""The reporter ``mlflow``: a run of MLflow for each run, with vars as params and every metric."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from jobrun.core.events import EpochFinished, Event, RunEnded, RunStarted, StepLogged
from jobrun.core.late_imports import importing
from jobrun.errors import JobrunError
from jobrun.report.events_file import read_events
from jobrun.report.steps import StepRow, read_steps
from jobrun.storage.bounded_json import MAX_BYTES, parse_json
from jobrun.storage.fs import DEFAULT
from jobrun.storage.regular_file import read_run_file

__all__ = ["MLflow"]

_KEPT = "mlflow.json"
_STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "nothing": "FINISHED"}
_FOREIGN = re.compile(r"[^\w\-./: ]")
_SECONDS = 1.0
_MANY = 1000
"""The most metrics that MLflow takes at once."""


class MLflow:
    """Logs to ``experiment`` (default: the job's name) at ``tracking_uri`` (default: MLflow's own).

    A resumed run continues its run of MLflow, whose id is in ``mlflow.json`` of the run's
    directory.  A metric with the same value at the same epoch is not logged again, so
    that epochs that are run twice show once.  The numbers of ``jobrun.log`` are metrics named after
    their task, ``train/loss``, whose steps are batches.
    """

    def __init__(
        self,
        experiment: str | None = None,
        tracking_uri: str | None = None,
        run_name: str | None = None,
    ) -> None:
        self._experiment = experiment
        self._uri = tracking_uri
        self._name = run_name
        with importing():
            self._mlflow = import_module("mlflow")
        self._client: Any = None
        self._run = ""
        self._logged: dict[str, dict[int, float]] = {}
        self._resumed = False
        self._steps: list[tuple[str, int, float]] = []
        self._sent = 0.0

    def __call__(self, event: Event) -> None:
        """Log ``event``."""
        if isinstance(event, RunStarted):
            self._start(event)
        elif isinstance(event, EpochFinished):
            self._send_steps()
            self._log(event.epoch, event.metrics, event.seconds)
        elif isinstance(event, StepLogged):
            self._log_step(event)
        elif isinstance(event, RunEnded):
            self._send_steps()
            self._client.set_terminated(self._run, _STATUS.get(event.outcome, "FAILED"))

    def _start(self, event: RunStarted) -> None:
        self._client = self._mlflow.MlflowClient(tracking_uri=self._uri)
        name = self._experiment or event.job
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self._client.create_experiment(name)
        kept = Path(event.run_dir) / _KEPT if event.run_dir is not None else None
        if event.attempt > 1 and kept is not None and self._resume(kept, experiment):
            self._log_missed(kept.parent, event.epoch)
            return
        tags = {"jobrun.run": event.run, "jobrun.run_dir": event.run_dir or ""}
        name = self._name or event.run
        self._run = self._client.create_run(experiment, tags=tags, run_name=name).info.run_id
        params = [self._mlflow.entities.Param(k, str(v)) for k, v in event.vars.items()]
        for first in range(0, len(params), 100):
            self._client.log_batch(self._run, params=params[first : first + 100])
        if kept is not None:
            DEFAULT.put(str(kept), json.dumps({"run_id": self._run}).encode("ascii") + b"\n")

    def _resume(self, kept: Path, experiment: str) -> bool:
        """Continue the run whose id was kept, if it still exists; return whether it does."""
        try:
            self._run = str(parse_json(read_run_file(kept, MAX_BYTES))["run_id"])
            run = self._client.get_run(self._run)
        except (
            JobrunError,
            OSError,
            ValueError,
            KeyError,
            TypeError,
            self._mlflow.exceptions.MlflowException,
        ):
            return False
        if run.info.experiment_id != experiment or run.info.lifecycle_stage != "active":
            return False
        self._resumed = True
        self._client.update_run(self._run, status="RUNNING")
        return True

    def _log_missed(self, folder: Path, last: int) -> None:
        """Log what a kill kept from being logged: it is in the run's events."""
        for row in read_steps(folder / "events.jsonl"):
            if row.epoch <= last:
                self._keep_step(row)
        for event in read_events(folder / "events.jsonl", ("EpochFinished",)):
            if event["epoch"] <= last:
                self._log(event["epoch"], event["metrics"], event["seconds"])

    def _log_step(self, event: StepLogged) -> None:
        """Keep the numbers of a step until there are some, or a second has passed."""
        self._keep_step(event)
        if len(self._steps) >= _MANY or time.monotonic() - self._sent > _SECONDS:
            self._send_steps()

    def _keep_step(self, event: StepLogged | StepRow) -> None:
        at = event.task if event.node == "main" else f"{event.node}/{event.task}"
        for name, value in event.values.items():
            self._steps.append((_FOREIGN.sub("_", f"{at}/{name}"), event.step, value))

    def _send_steps(self) -> None:
        """Log the numbers of steps that were kept, but those that were logged before."""
        now, metrics = int(time.time() * 1000), []
        for key, step, value in self._steps:
            logged = self._earlier(key)
            if repr(logged.get(step)) != repr(value):
                metrics.append(self._mlflow.entities.Metric(key, value, now, step))
                logged[step] = value
        self._steps.clear()
        self._sent = time.monotonic()
        for first in range(0, len(metrics), _MANY):
            self._client.log_batch(self._run, metrics=metrics[first : first + _MANY])

    def _log(self, epoch: int, values: Mapping[str, Any], seconds: float) -> None:
        now = int(time.time() * 1000)
        metrics = []
        for name, value in {**values, "epoch_seconds": seconds}.items():
            number = _number(value)
            if number is None:
                continue
            key = _FOREIGN.sub("_", name)
            old = self._earlier(key).get(epoch)
            timed = name == "epoch_seconds" and old is not None
            if not timed and repr(old) != repr(number):
                metrics.append(self._mlflow.entities.Metric(key, number, now, epoch))
                self._logged[key][epoch] = number
        for first in range(0, len(metrics), _MANY):
            self._client.log_batch(self._run, metrics=metrics[first : first + _MANY])

    def _earlier(self, key: str) -> dict[int, float]:
        """Return the logged values of a metric by epoch, asking MLflow once in a resumed run."""
        if key not in self._logged:
            points = self._client.get_metric_history(self._run, key) if self._resumed else ()
            self._logged[key] = {point.step: point.value for point in points}
        return self._logged[key]


def _number(value: Any) -> float | None:
    """Return a metric as a float, also from the strings ``NaN`` and ``Infinity`` of JSON."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
