"""The writer's knowledge of its checkpoints gives the answers of a look at the directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from checkpoint_helpers import CountingFs
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobrun.checkpoint import known, trash
from jobrun.checkpoint.catalog import Catalog
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.model.policy import Best, Keep


def save(manager: CheckpointManager, value: float = 0.0) -> int:
    return manager.save(manager.first_id, {"main": {"x": value}}, metrics={"x": value})


def listings(fs: CountingFs, run: Path) -> int:
    return sum(op == "list" and path == str(run) for op, path in fs.done)


def test_a_large_directory_is_not_listed_for_each_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "_SMALL", 3)
    monkeypatch.setattr(known, "_FRESH", 1000.0)
    fs = CountingFs()
    with CheckpointManager(tmp_path, keep=Keep(last=5, best=Best("x")), fs=fs) as manager:
        for _ in range(5):
            save(manager)
        before = listings(fs, tmp_path)
        assert before > 0
        assert [save(manager) for _ in range(4)] == [5, 6, 7, 8]
        assert listings(fs, tmp_path) == before
    assert Catalog(tmp_path).ids() == [0, 4, 5, 6, 7, 8]


def test_what_is_added_by_hand_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "_SMALL", 1)
    monkeypatch.setattr(known, "_FRESH", 0.0)
    with CheckpointManager(tmp_path) as manager:
        for _ in range(3):
            save(manager)
        (tmp_path / "checkpoint_50").mkdir()
        assert save(manager) == 51


def test_another_writer_may_have_been_here_since_the_lock_was_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "_SMALL", -1)
    monkeypatch.setattr(known, "_FRESH", 1000.0)
    first, second = CheckpointManager(tmp_path), CheckpointManager(tmp_path, keep=Keep(last=2))
    for number in range(6):
        with (first, second)[number % 2] as manager:
            assert save(manager) == number
    assert Catalog(tmp_path).ids() == [4, 5]


STEPS = st.one_of(
    st.tuples(st.just("save"), st.integers(0, 3)),
    st.tuples(st.sampled_from(["remove", "damage", "success", "aside", "copy"]), st.integers(0, 9)),
)
KEEPS = st.builds(
    Keep,
    st.none() | st.integers(1, 3),
    st.none() | st.integers(1, 3),
    st.none() | st.builds(Best, st.just("x"), st.integers(1, 2)),
)


def by_hand(run: Path, step: str, number: int) -> None:
    """Change one of the checkpoints of a run, if there is any."""
    ids = Catalog(run).ids()
    if not ids:
        return
    path = run / f"checkpoint_{ids[number % len(ids)]}"
    if step == "damage":
        (path / "main/zarr.json").unlink(missing_ok=True)
    elif step == "success" and path.is_dir():
        (path / "_SUCCESS").write_bytes(b"torn")
    elif step == "aside":
        attempt = run / f"attempts/{1 + len([*run.glob('attempts/*')])}"
        attempt.mkdir(parents=True)
        path.rename(attempt / path.name)
    elif step == "copy":
        shutil.copytree(path, run / f"checkpoint_{ids[-1] + 2}")
    else:
        shutil.rmtree(path)


@settings(deadline=None, max_examples=15)
@given(st.lists(STEPS, max_size=12), KEEPS)
@example([*[("save", 0)] * 5, ("aside", 3), ("copy", 0), ("aside", 3)], Keep(None, 2))
def test_a_run_is_kept_as_if_it_were_listed_each_time(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], keep: Keep
) -> None:
    def history(small: int) -> list[list[int]]:
        run = tmp_path_factory.mktemp("run")
        found = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(known, "_SMALL", small)
            patch.setattr(known, "_FRESH", 1000.0)
            with CheckpointManager(run, keep=keep) as manager:
                for step, number in steps:
                    if step == "save":
                        save(manager, number)
                    else:
                        manager.settle()
                        by_hand(run, step, number)
                        manager.known.forget()
                    found.append(Catalog(run).ids())
        return found

    assert history(-1) == history(1000)


def test_where_many_are_kept_the_rules_are_applied_now_and_then_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trash, "_POSTPONED", 0.5)
    counts = []
    with CheckpointManager(tmp_path, keep=Keep(last=4)) as manager:
        for _ in range(12):
            save(manager)
            counts.append(len(Catalog(tmp_path).ids()))
        assert counts[-2:] == [5, 6]
        assert manager.apply_postponed() == ((6, 7), ())
        assert manager.apply_postponed() == ((), ())
        save(manager)
        assert Catalog(tmp_path).ids() == [8, 9, 10, 11, 12]
    assert Catalog(tmp_path).ids() == [9, 10, 11, 12]
    assert max(counts) == 6
