"""Finding runs by name, path and spec, and naming new ones."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from jobrun.checkpoint.manager import CheckpointManager
from jobrun.errors import LockedError, NotFoundError, UsageError
from jobrun.runs.find import (
    find_run,
    find_sweep,
    list_runs,
    list_sweeps,
    run_of_spec,
    sweep_of_spec,
)
from jobrun.runs.run_state import RunState
from jobrun.runs.rundir import RunDir
from jobrun.runs.series import claim, claim_after, fresh_name, newest_begun, series
from jobrun.runs.sweepdir import Member, SweepDir, SweepState


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with runs in ``runs``."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def make(runs: Path, name: str, state: str = "finished", **fields: object) -> RunDir:
    """A run; later ones are newer."""
    run = RunDir(runs / name)
    run.write(replace(RunState(name, name.split("-")[0], state=state), **fields))  # type: ignore[arg-type]
    return run


def test_no_directory_no_runs(runs: Path) -> None:
    assert list_runs(runs) == []
    with pytest.raises(NotFoundError, match="no run in"):
        find_run(runs)


def test_runs_are_directories_with_a_state_or_a_checkpoint(runs: Path) -> None:
    make(runs, "b")
    CheckpointManager(runs / "a").save(0, {"main": {"x": 1}})
    (runs / "empty").mkdir()
    (runs / "notes.txt").write_text("x")
    (runs / ".hidden").mkdir()
    (runs / ".hidden/run.json").write_text("{}")
    assert [run.name for run in list_runs(runs)] == ["a", "b"]


def test_fresh_names_count_up(runs: Path) -> None:
    assert fresh_name(runs, "sum") == runs / "sum"
    make(runs, "sum")
    assert fresh_name(runs, "sum") == runs / "sum-2"
    for name in ("sum-2", "sum-10", "sum-3x", "sum-01", "summary", "sum-1"):
        make(runs, name)
    assert fresh_name(runs, "sum") == runs / "sum-11"
    assert [run.name for run in series(runs, "sum")] == ["sum-10", "sum-2", "sum"]


def test_names_are_not_read_as_patterns(runs: Path) -> None:
    make(runs, "a.b")
    assert fresh_name(runs, "a+b") == runs / "a+b"
    assert fresh_name(runs, "a.b") == runs / "a.b-2"
    assert series(runs, "axb") == []


def test_claiming_makes_the_directory(runs: Path) -> None:
    claimed = [claim(runs, "sum") for _ in range(3)]
    assert [run.path for run in claimed] == [runs / "sum", runs / "sum-2", runs / "sum-3"]
    assert all(run.held() for run in claimed)


def test_a_claim_that_seems_to_be_given_up_and_is_held_is_passed_over(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where clocks differ, a lock by files may look stale and be none."""
    held = claim(runs, "sum")
    monkeypatch.setattr(RunDir, "held", lambda self: False)
    assert claim(runs, "sum").path == runs / "sum-2"
    held.unlock()


def test_a_claim_that_was_given_up_is_taken_again(runs: Path) -> None:
    claim(runs, "sum").unlock()
    (runs / "sum/spec.yaml").write_text("half")
    again = claim(runs, "sum")
    assert again.path == runs / "sum"
    again.unlock()
    (runs / "sum/notes.txt").touch()
    assert claim(runs, "sum").path == runs / "sum-2"


def test_of_those_that_saw_the_same_one_makes_the_next_run(runs: Path) -> None:
    made = claim_after(runs, "sum", None)
    assert made is not None
    assert made.path == runs / "sum"
    assert newest_begun(runs, "sum") is None, "nobody knows what will come into it"
    with pytest.raises(LockedError, match="the run is held by this process"):
        claim_after(runs, "sum", newest_begun(runs, "sum"))
    beside = claim_after(runs, "sum", None, beside=True)
    assert beside is not None
    assert beside.path == runs / "sum-2"
    beside.unlock()
    made.write(RunState(name="sum", job="sum", state="finished"))
    made.unlock()
    (runs / "sum-2/lock").unlink()
    (runs / "sum-2").rmdir()
    assert claim_after(runs, "sum", None) is None, "it was seen before the run had begun"
    assert newest_begun(runs, "sum") == runs / "sum"
    following = claim_after(runs, "sum", runs / "sum")
    assert following is not None
    assert following.path == runs / "sum-2"
    with pytest.raises(LockedError):
        claim_after(runs, "sum", runs / "sum")


def test_the_run_of_a_spec_is_the_newest_of_the_same_job(runs: Path) -> None:
    assert run_of_spec(runs, "sum", "a") is None
    for number, digest in ((1, "a"), (2, "b"), (3, "a"), (4, "c")):
        make(runs, "sum" if number == 1 else f"sum-{number}", digest=digest)
    found = [run_of_spec(runs, "sum", digest) for digest in "abcd"]
    assert [run.name for run in found if run] == ["sum-3", "sum-2", "sum-4", "sum-4"]


def test_without_an_argument_the_newest_run_and_to_go_on_the_newest_unfinished(
    runs: Path,
) -> None:
    make(runs, "one", "interrupted")
    make(runs, "two", "error")
    make(runs, "three", "finished")
    assert find_run(runs).name == "three"
    assert find_run(runs, unfinished=True).name == "two"
    make(runs, "two", "failed")
    assert find_run(runs).name == "two"
    assert find_run(runs, unfinished=True).name == "one"
    make(runs, "one", "finished")
    assert find_run(runs, unfinished=True).name == "one"


def test_a_run_that_someone_holds_is_looked_at_first_and_gone_on_with_last(runs: Path) -> None:
    held = make(runs, "two", "running")
    held.lock()
    make(runs, "one", "interrupted")
    assert find_run(runs).name == "two"
    assert find_run(runs, unfinished=True).name == "one"
    make(runs, "one", "finished")
    assert find_run(runs).name == "two"
    assert find_run(runs, unfinished=True).name == "two"
    held.unlock()
    make(runs, "one", "finished")
    assert find_run(runs).name == "one"


def test_in_a_run_directory_it_is_that_run(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(runs, "one")
    make(runs, "two")
    monkeypatch.chdir(runs / "one")
    assert find_run("runs").name == "one"
    assert find_run("runs", ".").name == "one"


def test_names_and_paths(runs: Path) -> None:
    run = make(runs, "sum")
    for argument in ("sum", "runs/sum", "runs/sum/", str(run.path)):
        assert find_run("runs", argument).path.resolve() == run.path


def test_a_missing_run_has_near_names(runs: Path) -> None:
    make(runs, "digits")
    with pytest.raises(NotFoundError, match="no run 'digts'") as caught:
        find_run("runs", "digts")
    assert caught.value.hint == "did you mean 'digits'?"
    with pytest.raises(NotFoundError) as caught:
        find_run("runs", "zzz")
    assert caught.value.hint == "there is digits"


def test_a_checkpoint_or_a_directory_of_runs_is_no_run(runs: Path) -> None:
    CheckpointManager(runs / "sum").save(0, {"main": {"x": 1}})
    with pytest.raises(UsageError) as caught:
        find_run("runs", "runs/sum/checkpoint_0")
    assert caught.value.hint.endswith("runs/sum --id 0")
    with pytest.raises(NotFoundError) as caught_runs:
        find_run("elsewhere", "runs")
    assert caught_runs.value.hint == "--runs-dir runs, or one of sum"


def test_a_spec_means_its_newest_run(runs: Path, tmp_path: Path) -> None:
    spec = tmp_path / "specs" / "sum.yaml"
    spec.parent.mkdir()
    spec.write_text("")
    folder = str(spec.parent)
    make(runs, "sum", "interrupted", spec="sum.yaml", folder=folder)
    make(runs, "sum-2", "finished", spec="sum.yaml", folder=folder)
    make(runs, "other", spec="other.yaml", folder=folder)
    assert find_run("runs", "specs/sum.yaml").name == "sum-2"
    with pytest.raises(NotFoundError, match=r"no run of specs/none\.yaml"):
        find_run("runs", "specs/none.yaml")


def test_a_spec_that_moved_with_its_runs_is_found(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "sum.yaml").write_text("")
    make(runs, "sum", spec="sum.yaml", folder="/gone", folder_relative=os.path.join("..", ".."))
    assert find_run("runs", "sum.yaml").name == "sum"


def sweep(runs: Path, name: str, *values: int, digest: str = "", **fields: object) -> SweepDir:
    """A sweep over ``x``, of which all runs have begun."""
    found = SweepDir(runs / name)
    members = tuple(Member({"x": x}, f"x={x}") for x in values)
    state = SweepState(name.split("-")[0], {"x": list(values)}, members, digest)
    found.write(replace(state, **fields))  # type: ignore[arg-type]
    return found


def test_the_runs_of_a_sweep_are_listed_where_it_stands(runs: Path) -> None:
    make(runs, "a")
    sweep(runs, "b", 2, 1, 3)
    make(runs / "b", "x=1", "interrupted")
    make(runs / "b", "x=2")
    make(runs, "c")
    assert [run.name for run in list_runs(runs)] == ["a", "b/x=2", "b/x=1", "c"]
    assert [s.name for s in list_sweeps(runs)] == ["b"]
    assert find_run(runs, unfinished=True).name == "b/x=1"
    for argument in ("b/x=2", "runs/b/x=2"):
        assert find_run("runs", argument).name == "b/x=2"
    with pytest.raises(UsageError, match="b is a sweep of 2 runs") as caught:
        find_run("runs", "b")
    assert caught.value.hint == "name one of them: runs/b/x=2; 'jobrun sweep b' lists them"


def test_a_sweep_is_in_the_series_of_its_name_and_no_run(runs: Path) -> None:
    sweep(runs, "sum", 1)
    make(runs, "sum-2")
    assert [run.name for run in series(runs, "sum")] == ["sum-2"]
    assert claim(runs, "sum").path == runs / "sum-3"


def test_the_sweep_of_a_spec_is_the_newest_of_the_same_job(runs: Path) -> None:
    assert sweep_of_spec(runs, "sum", "a") is None
    for number, digest in ((1, "a"), (2, "b"), (3, "a"), (4, "c")):
        sweep(runs, "sum" if number == 1 else f"sum-{number}", 1, digest=digest)
    make(runs, "sum-5")
    found = [sweep_of_spec(runs, "sum", digest) for digest in "abcd"]
    assert [s.name for s in found if s] == ["sum-3", "sum-2", "sum-4", "sum-4"]


def test_which_sweep_is_meant(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_sweep("runs") is None
    own = sweep(runs, "sum", 1, spec="sum.yaml", folder=str(tmp_path))
    for argument in (None, "sum", "runs/sum", "sum.yaml"):  # no run of it has begun
        found = find_sweep("runs", argument)
        assert found is not None
        assert found.path.resolve() == own.path
    make(runs / "sum", "x=1", "interrupted")
    assert find_sweep("runs") is not None
    make(runs, "other", "interrupted")
    assert find_sweep("runs") is None
    assert find_sweep("runs", "sum/x=1") is None
    assert find_sweep("runs", "other.yaml") is None
    make(runs, "sum-2", spec="sum.yaml", folder=str(tmp_path))  # a run of its own, newer
    assert find_sweep("runs", "sum.yaml") is None
    monkeypatch.chdir(runs / "sum/x=1")
    assert find_sweep("runs") is None
    assert find_run("runs").name == "sum/x=1"
    monkeypatch.chdir(runs / "sum")
    here = find_sweep("runs")
    assert here is not None
    assert here.name == "sum"


def scored(runs: Path, name: str, loss: float, job: str = "sum", **facts: object) -> RunDir:
    """A run that reached a loss in its only epoch; later ones are newer."""
    declared = {"metrics": {"loss": "min", "size": None}, **facts}
    run = make(runs, name, job=job, facts=declared)
    (run.path / "metrics.csv").write_text(
        f"epoch,seconds,elapsed,loss,size,acc\n1,1,1,{loss},5,{-loss}\n"
    )
    return run


def test_the_beginning_of_a_name_is_enough_where_it_is_the_only_one(runs: Path) -> None:
    for name in ("digits", "digits-2", "pi", "two words é"):
        make(runs, name)
    assert find_run("runs", "p").name == "pi"
    assert find_run("runs", "two").name == "two words é"
    assert find_run("runs", "digits").name == "digits"
    with pytest.raises(NotFoundError, match="'dig' is ambiguous: 2 runs") as caught:
        find_run("runs", "dig")
    assert caught.value.hint == "name one: digits, digits-2"
    with pytest.raises(NotFoundError, match="no run ''"):
        find_run("runs", "")


def test_the_latest_whatever_its_state(runs: Path) -> None:
    make(runs, "one", "interrupted")
    make(runs, "two", "finished")
    assert find_run("runs", "@latest").name == "two"
    make(runs, "one", "interrupted")
    assert find_run("runs", "@latest").name == "one"


def test_the_best_of_the_job_that_was_run_last(runs: Path) -> None:
    for name, loss in (("a", 0.5), ("b", 0.25), ("c", 0.75)):
        scored(runs, name, loss)
    make(runs, "no-metrics")
    assert find_run("runs", "@best").name == "b"
    assert find_run("runs", "@best:loss").name == "b"
    scored(runs, "other", 0.9, job="other", metrics={"acc": "max"})
    assert find_run("runs", "@best").name == "other"
    assert find_run("runs", "@best:loss").name == "b"
    scored(runs, "d", 0.25)
    assert find_run("runs", "@best").name == "b", "of equals the one begun first"
    scored(runs, "e", 0.125)
    assert find_run("runs", "@best").name == "e"


def test_the_best_goes_by_the_metric_of_the_checkpoints(runs: Path) -> None:
    keep = {"keep": {"best": {"metric": "acc", "count": 1}}}
    both = {"loss": "min", "acc": "min"}
    for name, loss in (("a", 0.5), ("b", 0.25)):
        scored(runs, name, loss, metrics=both, checkpoint=keep)
    assert find_run("runs", "@best").name == "a"
    assert find_run("runs", "@best:loss").name == "b"


@pytest.mark.parametrize(
    ("word", "message", "hint"),
    [
        ("@best:lss", "no run has a best value of 'lss'", "did you mean 'loss'?"),
        ("@best:size", "no run has a best value of 'size'", "there is loss"),
        ("@bst", "no run '@bst'", "there are @latest, @best and @best:METRIC"),
        ("@latest:loss", "no run '@latest:loss'", "there are @latest"),
    ],
)
def test_words_that_mean_no_run(word: str, message: str, hint: str, runs: Path) -> None:
    scored(runs, "a", 0.5)
    with pytest.raises(NotFoundError) as caught:
        find_run("runs", word)
    assert caught.value.message == message
    assert caught.value.hint.startswith(hint)
    with pytest.raises(NotFoundError, match="no run"):
        find_run("nowhere", word)


def test_runs_of_sweeps_by_prefix_and_word(runs: Path) -> None:
    make(runs, "b-2")
    sweep(runs, "b", 1, 2)
    for name in ("x=1", "x=2"):
        make(runs / "b", name)
    assert find_run("runs", "@latest").name == "b/x=2"
    with pytest.raises(NotFoundError, match="'b/x' is ambiguous: 2 runs") as caught:
        find_run("runs", "b/x")
    assert caught.value.hint == "name one: b/x=1, b/x=2"
    assert series("runs", "x=1") == []


def test_a_run_that_cannot_be_read_hides_no_others(runs: Path) -> None:
    make(runs, "one", spec="sum.yaml", folder=".")
    (runs / "newer").mkdir()
    (runs / "newer/run.json").write_text('{"format": 99}')
    (runs / "torn").mkdir()
    (runs / "torn/run.json").write_text("{")
    assert find_run("runs").name == "one"
    assert find_run("runs", "@latest").name == "one"
    assert find_run("runs", "sum.yaml").name == "one"
    assert find_run("runs", "newer").name == "newer"


@pytest.mark.parametrize("url", ["file:///elsewhere/a", "s3://bucket/a", "memory://a"])
def test_a_url_is_no_name_of_a_run_here(tmp_path: Path, url: str) -> None:
    """It was "no run", with a hint that named the runs here."""
    with pytest.raises(UsageError, match="does not read a run at a URL") as caught:
        find_run(tmp_path, url)
    assert "load-blobs, resume, checkpoints inspect" in caught.value.hint
