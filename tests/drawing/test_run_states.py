"""How the tasks of a run went, from its events."""

from __future__ import annotations

from typing import Any

import pytest

from jobrun.drawing.picture import State
from jobrun.drawing.run_states import RunStates

STARTED = {"event": "RunStarted"}


def began(group: str, epoch: int = 0) -> dict[str, Any]:
    return {"event": "GroupStarted", "group": group, "epoch": epoch}


def ended(group: str, epoch: int, seconds: float, **slowest: float) -> dict[str, Any]:
    event = {"event": "GroupFinished", "group": group, "epoch": epoch, "seconds": seconds}
    return {**event, "slowest": list(slowest.items())}


def failed(group: str, task: str, node: str = "main") -> dict[str, Any]:
    return {"event": "TaskFailed", "group": group, "epoch": 1, "task": task, "node": node}


RUN = [
    STARTED,
    began("init"),
    ended("init", 0, 1.0, start=0.5),
    began("epoch", 1),
    {**failed("epoch", "step"), "event": "TaskFinished", "seconds": 0.4},
    ended("epoch", 1, 1.0, step=0.4),
    began("epoch", 2),
    ended("epoch", 2, 3.0, step=1.2),
]


def states_of(events: list[dict[str, Any]], alive: bool = False) -> RunStates:
    states = RunStates(alive)
    for event in events:
        states.see(event)
    return states


def state(events: list[dict[str, Any]], group: str, key: str, alive: bool = False) -> State:
    return states_of(events, alive).states([(group, key)])[group, key]


def test_times_are_means_and_shares_of_the_group() -> None:
    assert state(RUN, "init", "start") == State("done", 0.5, 0.5)
    assert state(RUN, "epoch", "step") == State("done", 0.8, 0.4)
    assert state(RUN, "epoch", "quick") == State("done", None, 0.0)
    assert state(RUN, "exit", "report") == State("waiting", None, 0.0)
    notes = states_of(RUN).notes(["init", "epoch", "exit"])
    assert notes == {"init": "1.0 s", "epoch": "2 times, 2.0 s each"}


def test_groups_whose_starts_are_left_out_are_counted_and_cut_in_the_same_way() -> None:
    events = [event for event in RUN if event["event"] != "GroupStarted"]
    assert state(events, "init", "start") == State("done", 0.5, 0.5)
    assert states_of(events).notes(["init", "epoch"]) == {
        "init": "1.0 s",
        "epoch": "2 times, 2.0 s each",
    }
    pieces = [STARTED, ended("epoch", 1, 1.0, step=0.5), ended("epoch", 1, 1.0, step=0.5)]
    assert state(pieces, "epoch", "step") == State("done", 1.0, 0.5)
    assert states_of(pieces).notes(["epoch"]) == {"epoch": "2.0 s"}


def test_the_pieces_of_an_epoch_that_saves_cut_are_one_epoch() -> None:
    events = [
        *RUN,
        began("epoch", 3),
        ended("epoch", 3, 1.0, step=0.5, read=0.5),
        began("epoch", 3),
        ended("epoch", 3, 1.0, step=0.9),
    ]
    assert state(events, "epoch", "step").seconds == pytest.approx((0.4 + 1.2 + 1.4) / 3)
    assert state(events, "epoch", "read").seconds == 0.5
    assert states_of(events).notes(["epoch"]) == {"epoch": "3 times, 2.0 s each"}
    again = [*events, STARTED, began("epoch", 3), ended("epoch", 3, 2.0, step=2.0)]
    assert state(again, "epoch", "step").seconds == pytest.approx((0.4 + 1.2 + 2.0) / 3)


def test_what_had_begun_runs_or_was_interrupted() -> None:
    events = [*RUN, began("epoch", 3)]
    assert state(events, "epoch", "step", alive=True).status == "running"
    assert state(events, "epoch", "step").status == "interrupted"
    assert state([*events, STARTED], "epoch", "step").status == "done"


def test_a_group_that_was_never_done_has_no_time_to_share() -> None:
    finished = {**failed("epoch", "step"), "event": "TaskFinished", "seconds": 5400.0}
    found = state([STARTED, began("epoch", 1), finished], "epoch", "step", alive=True)
    assert found == State("running", 5400.0, 0.0)
    assert found.took == "1h30m"


def test_a_failure_is_forgotten_by_the_next_attempt() -> None:
    events = [*RUN, began("epoch", 3), failed("epoch", "step")]
    assert state(events, "epoch", "step").status == "failed"
    assert state([*events, STARTED], "epoch", "step").status == "done"


def test_tasks_of_several_nodes() -> None:
    events = [*RUN, began("epoch", 3), failed("epoch", "step", "n1")]
    assert state(events, "epoch", "n1:step").status == "failed"
    assert state(events, "epoch", "n0:step").status == "interrupted"
