"""What every session must do with live objects.  Inherited as ``SessionContract`` is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine import Driver, cut_after, same
from live import Net, build, count, on_disk, rows, trainer
from session_contract import load, save

from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.record import RecordFields
from jobrun.errors import TaskError
from jobrun.model.job import Job, Task
from jobrun.session.base import Session

NODES = [None, ["a", "b"]]


def break_down(net: Net) -> None:
    net.w += 1
    raise ValueError("broken down")


class Plain:
    """An object without a known state."""


class LiveContract:
    """Inherited by the tests of each session, with ``make_session``."""

    def make_session(self) -> Session:
        """A new session."""
        raise NotImplementedError

    @pytest.fixture
    def session(self) -> Iterator[Session]:
        made = self.make_session()
        yield made
        made.close()

    @pytest.mark.parametrize("nodes", NODES)
    @pytest.mark.parametrize("cuts", [[1], [0, 5], [3, 4], [9], [10], [2, 2, 2, 2]])
    def test_a_cut_run_that_is_restored_elsewhere_gives_the_same(
        self, session: Session, tmp_path: Path, nodes: list[str] | None, cuts: list[int]
    ) -> None:
        straight = Driver(trainer(nodes), session=session).start().epochs(2)
        expected = on_disk(save(straight, tmp_path / "straight"), nodes or ["main"])
        own = self.make_session()
        driver = Driver(trainer(nodes), session=own).start().epochs(1)
        for number, batches in enumerate(cuts):
            done = driver.epoch(cut=cut_after(batches))
            path = save(driver, tmp_path / f"cut_{number}")
            own.close()
            own = self.make_session()
            position = driver.position
            driver = Driver(trainer(nodes), session=own)
            driver.run("setup")
            load(driver, path)
            driver.position = position
            if done:
                break
        if driver.position.epochs < 2:
            driver.epochs(1)
        found = on_disk(save(driver, tmp_path / "end"), nodes or ["main"])
        own.close()
        assert same(found, expected)
        assert {"net", "opt", "counter", "params"} <= set(next(iter(found.values())))

    def test_a_snapshot_is_the_state_of_its_instant(self, session: Session, tmp_path: Path) -> None:
        driver = Driver(trainer(), session=session).start().epochs(1)
        before = on_disk(save(driver, tmp_path / "before"))
        taken = driver.session.snapshot()
        assert taken is not None
        driver.epochs(1)
        fields = RecordFields(job="j", position=driver.position)
        late = CheckpointManager(tmp_path / "late").save_snapshot(taken, fields).path
        taken.release()
        after = on_disk(save(driver, tmp_path / "after"))
        assert same(on_disk(late), before)
        assert (before["main"]["net"]["calls"], after["main"]["net"]["calls"]) == (10, 20)

    def test_state_that_is_not_there_at_setup_comes_with_it(
        self, session: Session, tmp_path: Path
    ) -> None:
        driver = Driver(trainer(), session=session).start().epochs(1)
        path = save(driver, tmp_path)
        found = on_disk(path)["main"]
        assert [*found["opt"]["state"]] == [0]
        assert found["opt"]["groups"][0]["betas"] == (0.9, 0.99)
        assert [*found["net"]] == ["w", "Calls", "calls"]

    def test_a_failed_call_leaves_a_state_that_is_never_saved(self, session: Session) -> None:
        job = trainer()
        with job.epoch:
            Task(break_down, update="net", every=2)
        driver = Driver(job, session=session).start().epochs(1)
        assert_released(driver.session.snapshot())
        with pytest.raises(TaskError, match="broken down"):
            driver.epoch()
        assert driver.session.snapshot() is None

    def test_an_object_without_an_adapter_is_refused_before_anything_else(
        self, session: Session
    ) -> None:
        job = Job("j", state=["thing"])
        with job.setup:
            Task(Plain, out="thing", name="make")
        with job.epoch:
            Task(count, update="thing")
        driver = Driver(job, session=session)
        with pytest.raises(TaskError, match=r"no adapter reads the state of a .*Plain"):
            driver.run("setup")

    def test_readers_of_linked_objects_run_in_the_order_of_the_spec(
        self, session: Session, tmp_path: Path
    ) -> None:
        job = Job("j", state=["net", "opt"])
        with job.setup:
            Task(rows, out="data")
            Task(build, out=["net", "opt"])
        with job.epoch:
            for number in range(8):
                Task(step_alone, {"opt": "opt"}, with_={"k": number}, name=f"step_{number}")
        driver = Driver(job, session=session).start().epochs(2)
        found = on_disk(save(driver, tmp_path))["main"]["net"]
        net, opt = build()
        for _ in range(2):
            for number in range(8):
                step_alone(opt, number)
        assert same(found["w"], net.w)


def step_alone(opt: Any, k: int) -> None:
    time.sleep(0.01 * (k % 2))
    opt.net.w *= 0.5
    opt.net.w += k


def assert_released(snapshot: Any) -> None:
    assert snapshot is not None
    snapshot.release()
