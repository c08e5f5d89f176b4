"""The attempts and tasks of a run as columns."""

from __future__ import annotations

from jobrun.report.attempts import Attempts, PastAttempt, TaskTime
from jobrun.tools.run_tables import attempt_columns, task_columns


def test_an_attempt_is_a_row() -> None:
    first = PastAttempt(1, "2026-01-02T03:04:05.6", 0, None, session="local", last=4, seconds=2.0)
    second = PastAttempt(2, "2026-01-02T03:05:05.6", 4, 5, only="exit", last=4, outcome="finished")
    columns = attempt_columns([first, second], going=False)
    assert {name: cells[0] for name, cells in columns.items()} == {
        "attempt": "1",
        "started (UTC)": "2026-01-02 03:04:05",
        "time": "2.0 s",
        "from": "init",
        "epochs": "1..4",
        "session": "local",
        "ended": "killed or crashed",
    }
    assert [cells[1] for name, cells in columns.items() if name in ("attempt", "from")] == [
        "2 (only exit)",
        "checkpoint_5",
    ]
    assert attempt_columns([first, second], going=True)["ended"] == ["killed or crashed", "running"]


def test_slurm_jobs_have_a_column_of_their_own() -> None:
    plain = PastAttempt(1, "", 0, None)
    again = [PastAttempt(2, "", 0, None, slurm_job="17_3", requeued=n) for n in range(4)]
    columns = attempt_columns([plain, *again], going=False)
    assert list(columns)[3] == "Slurm job"
    texts = ["17_3", *[f"17_3, requeued {times}" for times in ("once", "twice", "3 times")]]
    assert columns["Slurm job"] == ["-", *texts]


def test_the_slowest_tasks_are_rows() -> None:
    past = Attempts(
        [PastAttempt(1, "", 0, None, seconds=8.0)], [TaskTime("epoch", "a", 2, 4.0, 3.0)], []
    )
    columns = task_columns(past, 5)
    assert list(zip(*columns.values(), strict=True)) == [
        ("a", "epoch", "4.0 s", "50%", "2", "2.0 s", "3.0 s")
    ]
    assert not task_columns(past, 0)["task"]
