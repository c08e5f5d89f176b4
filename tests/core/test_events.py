"""What can be said about a run is plain."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import jobrun
from jobrun.core import events
from jobrun.core.events import Event


def _all_events() -> list[type[Event]]:
    found = [getattr(events, name) for name in events.__all__]
    kinds = [kind for kind in found if isinstance(kind, type) and issubclass(kind, Event)]
    return [kind for kind in kinds if kind is not Event]


_SAMPLES = {
    "int": 1,
    "bool": True,
    "float | None": None,
    "float": 0.5,
    "str": "x",
    "str | None": None,
    "int | None": 3,
    "tuple[str, ...]": ("a", "b"),
    "tuple[int, ...]": (1, 2),
    "tuple[tuple[str, float], ...]": (("a", 0.5),),
    "SlowestNode | None": events.SlowestNode("b", 2.5, 0.5),
    "Mapping[str, Any]": {"loss": 0.5},
    "Mapping[str, float]": {"write": 0.5},
    "Mapping[str, str | None]": {"loss": "min"},
    "Mapping[str, tuple[Any, int]]": {"loss": (0.5, 3)},
}


def _sample(kind: type[Event]) -> Event:
    fields: dict[str, Any] = {f.name: _SAMPLES[str(f.type)] for f in dataclasses.fields(kind)}
    return kind(**fields)


def test_every_event_is_exported() -> None:
    found = {n for n, v in vars(events).items() if isinstance(v, type) and issubclass(v, Event)}
    assert found <= set(events.__all__)
    assert len(_all_events()) >= 15


@pytest.mark.parametrize("kind", _all_events(), ids=lambda k: k.__name__)
def test_an_event_is_one_json_object_with_its_name(kind: type[Event]) -> None:
    event = _sample(kind)
    data = json.loads(json.dumps(event.to_json()))
    assert data.pop("event") == kind.__name__
    assert list(data) == [f.name for f in dataclasses.fields(kind)]
    for field in dataclasses.fields(kind):
        expected = json.loads(json.dumps(_SAMPLES[str(field.type)], default=dataclasses.asdict))
        assert data[field.name] == expected


@pytest.mark.parametrize("kind", _all_events(), ids=lambda k: k.__name__)
def test_events_are_frozen(kind: type[Event]) -> None:
    event = _sample(kind)
    for field in dataclasses.fields(kind):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(event, field.name, None)


def test_a_run_that_nobody_watches() -> None:
    assert events.ignore(_sample(events.Warned)) is None


def test_every_event_and_field_is_documented() -> None:
    page = (Path(jobrun.__file__).parent / "docs" / "progress.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)`(?: \*)? \| (.*) \|$", page, re.M))
    for kind in _all_events():
        fields = [f"`{field.name}`" for field in dataclasses.fields(kind)]
        assert rows[kind.__name__] == ", ".join(fields)


def test_without_a_report_what_should_be_known_is_a_warning(
    recwarn: pytest.WarningsRecorder,
) -> None:
    known = {
        events.Warned("the disk is slow"): "the disk is slow",
        events.CheckpointFailed(3, 3, "checkpoint 3 was not saved: full"): "3 was not saved: full",
        events.CheckpointSkipped(3, "torn"): "checkpoint_3 is skipped: torn",
        events.RunWentBack("worker a is lost", 1, 3, 2, 2): "worker a is lost",
    }
    for event, text in known.items():
        with pytest.warns(events.JobrunWarning, match=text):
            events.warn(event)
    events.warn(events.CheckpointLoaded(2, 2, "p", 999, 0.1))
    assert not recwarn.list


@pytest.mark.parametrize(("options", "shown"), [([], 2), (["-W", "ignore"], 0)])
def test_a_warning_is_shown_each_time(options: list[str], shown: int) -> None:
    """A second run in the process, with the same failure, was silent."""
    code = "from jobrun.core.events import *\nfor _ in range(2): warn(Warned('the disk is full'))"
    done = subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stderr.count("JobrunWarning: the disk is full") == shown
