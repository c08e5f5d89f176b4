"""Every row of the table of ``decide``, and what it says."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from jobrun.conditions.decision import Decision
from jobrun.engine.resume_policy import Changes, Choice, Request, decide
from jobrun.errors import RunRefusedError


@dataclass(frozen=True)
class At:
    """A checkpoint's record, as far as ``decide`` looks at it."""

    id: int
    epoch: int
    at_boundary: bool = True


@dataclass(frozen=True)
class State:
    """A run's state, as far as ``decide`` looks at it."""

    state: str
    reason: str = "3 epochs done"
    epoch: int = 3


HEAD = At(3, 3)
AGAIN = "jobrun train sum.yaml"
TRAIN = Request("train", again=AGAIN, afresh=f"{AGAIN} --fresh")
RESUME = Request("resume", again="jobrun resume runs/sum", afresh=f"{AGAIN} --fresh")
BOTH = pytest.mark.parametrize("request_", [TRAIN, RESUME], ids=["train", "resume"])
UNFINISHED = pytest.mark.parametrize("state", ["interrupted", "error", "running"])
OVER = pytest.mark.parametrize("state", ["finished", "failed"])
STOP = Decision("stop", "3 epochs done", "epochs")
FAIL = Decision("fail", "loss is not finite", "not_finite")
JOB = Changes(job=("vars.lr: 0.1 -> 0.05",))
SAME = Changes()
FREE = Changes(free=("stop.epochs: 3 -> 10",))
CODE = Changes(code=("digits.py",))


def choose(
    request: Request,
    state: str,
    changes: Changes = SAME,
    verdict: Decision | None = None,
    start: At | None = None,
    head: At | None = HEAD,
    back: int | None = None,
) -> Choice:
    found = State(state)
    return decide(request, found, head, changes, verdict, start=start, back=back, run="runs/sum")


@BOTH
def test_no_run_yet_starts_from_the_beginning(request_: Request) -> None:
    assert decide(request_, None, None).action == "fresh"


@pytest.mark.parametrize("state", ["interrupted", "error", "running", "finished", "failed"])
def test_fresh_never_looks_at_what_is_there(state: str) -> None:
    assert choose(replace(TRAIN, fresh=True), state, JOB).action == "fresh"


@BOTH
@UNFINISHED
@pytest.mark.parametrize("changes", [SAME, FREE, CODE], ids=["nothing", "free", "code"])
@pytest.mark.parametrize("verdict", [None, STOP, FAIL], ids=["go on", "stop", "fail"])
def test_unfinished_goes_on_whatever_may_change_freely(
    request_: Request, state: str, changes: Changes, verdict: Decision | None
) -> None:
    choice = choose(request_, state, changes, verdict)
    assert (choice.action, choice.start, choice.rewind) == ("resume", HEAD, False)


INIT = Changes(code=("digits.py", "net.py"), init=("digits.py",))


@UNFINISHED
def test_where_only_init_has_run_its_changed_code_starts_over(state: str) -> None:
    choice = choose(TRAIN, state, INIT, head=At(0, 0))
    assert (choice.action, choice.start) == ("fresh", None)
    assert choice.lines == (
        "runs/sum has run 'init' only, and digits.py has changed since: it starts over",
    )


def after_an_error(request: Request, head: At, epoch: int = 0, state: str = "error") -> Choice:
    return decide(request, State(state, epoch=epoch), head, JOB, run="runs/sum")


def test_after_a_first_epoch_that_failed_the_changed_job_starts_over() -> None:
    choice = after_an_error(TRAIN, At(0, 0))
    assert (choice.action, choice.start) == ("fresh", None)
    assert choice.lines == (
        "runs/sum failed before an epoch was saved, and the job has changed: it starts over",
        "  vars.lr: 0.1 -> 0.05",
    )


@pytest.mark.parametrize(
    ("request_", "head", "epoch", "state", "action"),
    [
        (RESUME, At(0, 0), 0, "error", "refuse"),
        (TRAIN, At(1, 0, False), 0, "error", "refuse"),  # saved within the first epoch
        (TRAIN, At(0, 0), 2, "error", "refuse"),  # two epochs were run, but not saved
        (TRAIN, At(0, 0), 0, "interrupted", "refuse"),
        (TRAIN, At(0, 0), 0, "running", "refuse"),
        (replace(TRAIN, epoch=0), At(0, 0), 0, "error", "refuse"),
        (replace(TRAIN, accept_changes=True), At(0, 0), 0, "error", "resume"),
    ],
)
def test_else_a_changed_job_never_starts_over(
    request_: Request, head: At, epoch: int, state: str, action: str
) -> None:
    assert after_an_error(request_, head, epoch, state).action == action


@pytest.mark.parametrize(
    ("request_", "head"),
    [
        (RESUME, At(0, 0)),
        (TRAIN, At(1, 0, False)),
        (replace(TRAIN, epoch=0), At(0, 0)),
    ],
)
def test_else_init_is_not_run_again_which_is_said(request_: Request, head: At) -> None:
    choice = choose(request_, "error", INIT, head=head)
    assert (choice.action, choice.start) == ("resume", head)
    assert choice.lines == (
        "code that changed since the last start: digits.py, net.py",
        "'init', which uses digits.py, is not run again; to start over: "
        "jobrun train sum.yaml --fresh",
    )


def test_of_changed_code_in_later_epochs_only_the_files_are_named() -> None:
    choice = choose(TRAIN, "error", INIT)
    assert choice.lines == ("code that changed since the last start: digits.py, net.py",)


def test_a_finished_run_whose_end_is_lost_is_continued_and_that_is_said() -> None:
    choice = choose(TRAIN, "finished", head=At(2, 2), verdict=None)
    assert (choice.action, choice.start) == ("resume", At(2, 2))
    assert choice.lines == (
        "runs/sum was finished after epoch 3; that checkpoint is not there now, and the epochs "
        "after epoch 2 are run again",
    )


def test_what_changed_is_said() -> None:
    changes = Changes(free=FREE.free, code=("digits.py", "lib/net.py"))
    assert choose(TRAIN, "interrupted", changes).lines == (
        "changed since the run was started:",
        "  stop.epochs: 3 -> 10",
        "code that changed since the last start: digits.py, lib/net.py",
    )


@UNFINISHED
def test_unfinished_run_of_another_job_is_refused_by_train(state: str) -> None:
    choice = choose(TRAIN, state, JOB)
    assert (choice.action, choice.exit_code, choice.start) == ("refuse", 2, None)
    assert choice.lines == (
        "runs/sum is not finished (epoch 3), and the job differs from the one that was run:",
        "  vars.lr: 0.1 -> 0.05",
        "to resume with the changes:  jobrun train sum.yaml --accept-changes",
        "to start a new run:          jobrun train sum.yaml --fresh",
        "to resume as it was:         jobrun resume runs/sum",
    )
    with pytest.raises(RunRefusedError, match="not finished"):
        raise choice.refusal()


@UNFINISHED
def test_unfinished_run_of_another_job_is_refused_by_resume(state: str) -> None:
    choice = choose(RESUME, state, JOB)
    assert choice.action == "refuse"
    assert "jobrun resume runs/sum --accept-changes" in choice.lines[2]


def test_a_refusal_in_python_names_no_commands() -> None:
    lines = choose(Request(), "interrupted", JOB).lines
    assert not any("jobrun train" in line or "jobrun resume" in line for line in lines)
    assert any("JobRunner(..., accept_changes=True)" in line for line in lines)


@BOTH
@UNFINISHED
def test_accepted_changes_go_on(request_: Request, state: str) -> None:
    choice = choose(replace(request_, accept_changes=True), state, JOB)
    assert (choice.action, choice.start) == ("resume", HEAD)
    assert "  vars.lr: 0.1 -> 0.05" in choice.lines


@BOTH
@pytest.mark.parametrize("verdict", [None, STOP])
def test_finished_and_unchanged_is_done(request_: Request, verdict: Decision | None) -> None:
    choice = choose(request_, "finished", verdict=verdict)
    assert (choice.action, choice.exit_code) == ("done", 0)
    assert choice.lines == (
        "runs/sum is finished, nothing is left to do (3 epochs; 3 epochs done)",
        "to run the job again from its start:  jobrun train sum.yaml --fresh",
    )


@BOTH
def test_finished_with_other_conditions_asks_their_verdict(request_: Request) -> None:
    assert choose(request_, "finished", FREE, None).action == "resume"
    done = choose(request_, "finished", FREE, STOP)
    assert (done.action, done.exit_code) == ("done", 0)
    assert "  stop.epochs: 3 -> 10" in done.lines


def test_finished_run_of_another_job_starts_a_new_one_under_train() -> None:
    choice = choose(TRAIN, "finished", JOB)
    assert choice.action == "new_run"
    assert choice.lines == (
        "runs/sum is finished, and the job differs from the one that was run:",
        "  vars.lr: 0.1 -> 0.05",
        "a new run starts beside it",
    )


@OVER
def test_a_finished_run_of_another_job_is_refused_where_python_built_the_job(state: str) -> None:
    choice = choose(Request("train"), state, JOB)  # it was given one directory: no run beside it
    assert (choice.action, choice.exit_code) == ("refuse", 2)
    assert choice.lines[2:] == (
        "to resume with the changes:  JobRunner(..., accept_changes=True)",
        "to start a new run:          give the CheckpointManager another directory",
    )


@OVER
def test_finished_run_of_another_job_is_refused_by_resume(state: str) -> None:
    choice = choose(RESUME, state, JOB)
    assert (choice.action, choice.exit_code) == ("refuse", 2)
    assert not any("as it was" in line for line in choice.lines)


@BOTH
def test_finished_with_accepted_changes_asks_the_verdict(request_: Request) -> None:
    accepting = replace(request_, accept_changes=True)
    assert choose(accepting, "finished", JOB, None).action == "resume"
    assert choose(accepting, "finished", JOB, STOP).action == "done"


@BOTH
@pytest.mark.parametrize("verdict", [None, STOP])
def test_finished_with_other_code_says_which(request_: Request, verdict: Decision | None) -> None:
    choice = choose(request_, "finished", CODE, verdict)
    assert (choice.action, choice.exit_code) == ("done", 0)
    assert "code that changed since the last start: digits.py" in choice.lines
    assert "--fresh" in choice.lines[-1]


@BOTH
@pytest.mark.parametrize("changes", [SAME, CODE], ids=["nothing", "code"])
def test_a_failed_run_says_so_again(request_: Request, changes: Changes) -> None:
    choice = choose(request_, "failed", changes, FAIL, back=2)
    assert (choice.action, choice.exit_code) == ("done", 7)
    assert choice.lines[0] == "runs/sum ended as a failure (3 epochs; 3 epochs done)"
    assert "jobrun resume runs/sum --epoch 2" in choice.lines[-2]
    assert "--epoch" not in "".join(choose(request_, "failed", changes, FAIL).lines)


@BOTH
def test_a_failed_run_goes_on_if_changed_conditions_say_so(request_: Request) -> None:
    assert choose(request_, "failed", FREE, None).action == "resume"
    assert choose(request_, "failed", FREE, STOP).action == "resume"
    assert choose(request_, "failed", FREE, FAIL).exit_code == 7


@pytest.mark.parametrize("state", ["interrupted", "error", "finished", "failed"])
@pytest.mark.parametrize("named", [{"epoch": 1}, {"id": 1}], ids=["epoch", "id"])
@pytest.mark.parametrize("verdict", [None, STOP, FAIL], ids=["go on", "stop", "fail"])
def test_a_named_checkpoint_rewinds(
    state: str, named: dict[str, int], verdict: Decision | None
) -> None:
    choice = choose(replace(RESUME, **named), state, verdict=verdict, start=At(1, 1))
    assert (choice.action, choice.start, choice.rewind) == ("resume", At(1, 1), True)


def test_naming_the_newest_checkpoint_rewinds_nothing() -> None:
    named = replace(RESUME, epoch=3)
    choice = choose(named, "interrupted", start=HEAD)
    assert (choice.action, choice.rewind) == ("resume", False)
    assert choose(named, "finished", start=HEAD, verdict=STOP).action == "done"
    assert choose(named, "failed", start=HEAD, verdict=FAIL).exit_code == 7
    assert choose(named, "failed", start=HEAD, verdict=None).action == "resume"


def test_a_named_checkpoint_of_another_job_is_refused_unless_accepted() -> None:
    named = replace(RESUME, epoch=1)
    assert choose(named, "finished", JOB, start=At(1, 1)).action == "refuse"
    accepted = replace(named, accept_changes=True)
    assert choose(accepted, "finished", JOB, start=At(1, 1)).action == "resume"


@BOTH
@UNFINISHED
@pytest.mark.parametrize("changes", [SAME, JOB], ids=["nothing", "job"])
def test_a_run_without_a_checkpoint_has_nothing_to_lose(
    request_: Request, state: str, changes: Changes
) -> None:
    choice = choose(request_, state, changes, head=None)
    assert choice.action == "fresh"
    assert choice.lines == ("runs/sum holds no checkpoint: the job starts from the beginning",)


@BOTH
@pytest.mark.parametrize("changes", [SAME, FREE], ids=["nothing", "free"])
def test_a_finished_run_whose_checkpoints_are_gone_is_done(
    request_: Request, changes: Changes
) -> None:
    assert choose(request_, "finished", changes, head=None).action == "done"


def test_the_diff_of_a_long_line_stays_indented() -> None:
    lines = choose(TRAIN, "interrupted", Changes(job=("a: 1\n-> 2",))).lines
    assert lines[1:3] == ("  a: 1", "  -> 2")


# Only exit.

EXIT = replace(RESUME, only="exit", again="jobrun resume runs/sum --only exit")


@pytest.mark.parametrize("state", ["interrupted", "error", "running", "finished", "failed"])
def test_exit_alone_runs_whatever_the_state_is(state: str) -> None:
    assert choose(EXIT, state) == Choice("exit", (), HEAD)
    early = At(1, 1)
    assert choose(replace(EXIT, epoch=1), state, start=early) == Choice("exit", (), early)


def test_exit_alone_says_what_has_changed_around_it() -> None:
    assert choose(EXIT, "finished", FREE).lines[1] == "  stop.epochs: 3 -> 10"
    assert choose(EXIT, "finished", CODE).lines[0].endswith("digits.py")


@OVER
def test_exit_of_another_job_is_refused(state: str) -> None:
    choice = choose(EXIT, state, JOB)
    assert choice.action == "refuse"
    assert choice.lines[-1] == "to resume as it was:         jobrun resume runs/sum --only exit"
    assert choose(replace(EXIT, accept_changes=True), state, JOB).action == "exit"
