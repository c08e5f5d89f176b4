"""The final summary, for every outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from examples import without_changing

from jobrun.core.events import SlowestNode
from jobrun.report.summary import summary


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_finished(make: Any) -> None:
    assert summary(make.ended()) == [
        "digits: finished after 3 epochs: 3 epochs done",
        "  time        10.0 s",
        "  saved       4 checkpoints, 5.0% of the time",
        "  metrics     loss 0.25  acc[val] 0.5",
        "  best        loss 0.25 (epoch 3)",
        "  checkpoint  runs/digits/checkpoint_3 (epoch 3)",
        "",
        "jobrun load-blobs runs/digits",
    ]


def test_the_memory_of_the_process_is_shown_to_who_asks_for_more(make: Any) -> None:
    ended = make.ended(memory=1_126_000_000, memory_before=60_000_000)
    assert "  memory      1.13 GB at most, 60 MB at the start" in summary(ended, verbose=True)
    assert not any("memory" in line for line in summary(ended))
    assert not any("memory" in line for line in summary(make.ended(), verbose=True))


def test_a_resumed_run_says_what_was_done_this_time(make: Any) -> None:
    lines = summary(make.ended(ran=1, seconds=2.5, saved=1, checkpoint_seconds=0.1))
    assert lines[1:3] == [
        "  time        10.0 s, 1 epoch in 2.5 s this time",
        "  saved       1 checkpoint, 4.0% of the time",
    ]


def test_failed_saves_are_counted(make: Any) -> None:
    (line,) = [line for line in summary(make.ended(failed_saves=2)) if "saved" in line]
    assert line == "  saved       4 checkpoints, 5.0% of the time; 2 saves failed"
    (line,) = [line for line in summary(make.ended(failed_saves=1, saved=0)) if "saved" in line]
    assert line == "  saved       nothing; 1 save failed"


def test_the_slowest_node_is_said_where_it_stands_apart(make: Any) -> None:
    def said(seconds: float, others: float, attempt: float = 10.0) -> list[str]:
        slowest = SlowestNode("t_2", seconds, others)
        lines = summary(make.ended(slowest=slowest, seconds=attempt))
        return [line for line in lines if "slowest" in line]

    line = "  slowest     node t_2: 4.2 s in tasks, the other nodes 3.0 s (median)"
    assert said(4.2, 3.0) == [line]
    assert said(4.2, 3.0, attempt=100.0) == []  # less than a twentieth of it
    assert said(4.2, 3.6) == []  # not even a fifth longer
    assert said(0.9, 0.1) == []  # not even a second longer
    assert len(said(4.2, 0.0)) == 1


def test_examples_of_the_documentation_are_compared_without_the_advice_on_slow_saves(
    make: Any,
) -> None:
    slow = summary(make.ended(seconds=4.0, checkpoint_seconds=3.0))
    quick = summary(make.ended(seconds=4.0, checkpoint_seconds=0.5))
    assert len(slow) == len(quick) + 1
    assert without_changing("\n".join(slow)) == without_changing("\n".join(quick))


@pytest.mark.parametrize("outcome", ["interrupted", "error"])
def test_what_can_go_on_ends_with_the_command(make: Any, outcome: str) -> None:
    lines = summary(make.ended(outcome=outcome, reason="SIGINT", exit_code=130, on_disk=2))
    assert lines[-1] == "jobrun resume runs/digits"


def test_after_an_error_in_the_first_epoch_the_command_takes_the_spec_as_it_is_now(
    make: Any,
) -> None:
    again = "jobrun train digits.yaml"
    first = make.ended(outcome="error", exit_code=1, epoch=2, on_disk=0, place="epoch 0")
    assert summary(first, again=again)[-1] == again
    place = "epoch 1, after batch 10 of pipe 'train'"
    inside = make.ended(outcome="error", exit_code=1, epoch=0, on_disk=0, place=place)
    assert summary(inside, again=again)[-1] == "jobrun resume runs/digits"
    later = make.ended(outcome="error", exit_code=1, epoch=1, on_disk=1, place="epoch 1")
    assert summary(later, again=again)[-1] == "jobrun resume runs/digits"


def test_a_failure_points_to_an_earlier_epoch(make: Any) -> None:
    ended = make.ended(outcome="failed", reason="loss is not finite", exit_code=7, before_failure=2)
    lines = summary(ended)
    assert lines[0] == "digits: FAILED after 3 epochs: loss is not finite"
    assert lines[-1] == "jobrun resume runs/digits --epoch 2"
    lost = make.ended(outcome="failed", reason="loss is not finite", exit_code=7)
    assert summary(lost)[-1] == "jobrun show runs/digits"


def test_a_last_state_that_is_not_on_disk_is_said(make: Any) -> None:
    lines = summary(make.ended(exit_code=6, on_disk=1, checkpoint="runs/digits/checkpoint_1"))
    assert "  the last state is not on disk; on disk is epoch 1" in lines
    assert lines[-1] == "jobrun resume runs/digits"
    nothing = summary(make.ended(exit_code=6, on_disk=None, checkpoint=None))
    assert "  the last state is not on disk; on disk is nothing" in nothing
    assert "  checkpoint  none" in nothing


def test_a_place_inside_an_epoch_is_named(make: Any) -> None:
    place = "epoch 3, after batch 10 of pipe 'train'"
    ended = make.ended(outcome="interrupted", exit_code=130, on_disk=2, epoch=2, place=place)
    assert f"  checkpoint  runs/digits/checkpoint_3 ({place})" in summary(ended)
    lines = summary(make.ended(exit_code=6, on_disk=2, place=place))
    assert f"  the last state is not on disk; on disk is {place}" in lines


def test_a_large_share_in_checkpoints_names_the_remedy(make: Any) -> None:
    lines = summary(make.ended(checkpoint_seconds=3.0))
    assert lines[6] == (
        "  30% of this attempt went into checkpoints; 'checkpoint: {every: 10}' makes it about 5%"
    )
    assert not any("every:" in line for line in summary(make.ended()))


def test_a_run_without_a_directory_ends_with_no_command(make: Any) -> None:
    lines = summary(make.ended(run_dir=None, checkpoint=None, on_disk=None, saved=0))
    assert lines[-1] == "  best        loss 0.25 (epoch 3)"
    assert lines[1] == "  time        10.0 s"


def test_paths_are_quoted_and_relative_where_that_is_shorter(make: Any, tmp_path: Path) -> None:
    ended = make.ended(run_dir=str(tmp_path / "my runs" / "é"))
    assert summary(ended)[-1] == "jobrun load-blobs 'my runs/é'"
    assert summary(make.ended(run_dir="/elsewhere/x"))[-1] == "jobrun load-blobs /elsewhere/x"


def test_a_small_cost_is_not_worth_a_remedy(make: Any) -> None:
    lines = summary(make.ended(seconds=0.1, checkpoint_seconds=0.05))
    assert not any("every:" in line for line in lines)


def test_nothing_to_do_says_why_and_what_is_there(make: Any) -> None:
    reason = "runs/digits is finished\nto run it again:  jobrun train x --fresh"
    lines = summary(make.ended(outcome="nothing", reason=reason, ran=0))
    assert lines == [
        "runs/digits is finished",
        "to run it again:  jobrun train x --fresh",
        "  metrics     loss 0.25  acc[val] 0.5",
        "  best        loss 0.25 (epoch 3)",
        "  checkpoint  runs/digits/checkpoint_3 (epoch 3)",
        "",
        "jobrun load-blobs runs/digits",
    ]


def test_text_of_the_user_is_literal(make: Any) -> None:
    lines = summary(make.ended(run="[bold]", reason="when: x\x1b[1m"))
    assert lines[0] == "[bold]: finished after 3 epochs: when: x\\x1b[1m"
