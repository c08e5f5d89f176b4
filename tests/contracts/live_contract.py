"""What every session must do with live objects.  Inherited as ``SessionContract`` is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine import Driver, cut_after, same
from live import Net, build, build_params, count, on_disk, rows, trainer, weights
from session_contract import load, save

from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.record import RecordFields
from jobrun.core.events import Warned
from jobrun.errors import TaskError
from jobrun.model.job import Job, Task
from jobrun.model.policy import Best, CheckpointPolicy, Keep
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

    def test_an_object_that_holds_others_is_ordered_with_them(
        self, session: Session, tmp_path: Path
    ) -> None:
        job = Job("j", state=["net", "opt"], constant=["trainer"])
        with job.setup:
            Task(build, out=["net", "opt"])
            Task(Trainer, "opt", out="trainer", name="make_trainer")
        with job.epoch:
            for number in range(3):
                Task(by_trainer, "trainer", name=f"slow_{number}")
                Task(halve, "net", name=f"halve_{number}")
        driver = Driver(job, session=session).start().epochs(2)
        found = on_disk(save(driver, tmp_path))["main"]["net"]
        net, opt = build()
        for _ in range(6):
            by_trainer(Trainer(opt))
            halve(net)
        assert same(found["w"], net.w)

    # Retries.

    def test_a_call_that_is_repeated_gets_the_state_of_before(
        self, session: Session, tmp_path: Path
    ) -> None:
        folder = str(tmp_path)
        ends = []
        for number, (own, times) in enumerate(((self.make_session(), 0), (session, 2))):
            job = flaky(folder, times, number)
            driver = Driver(job, session=own).start().epochs(2)
            ends.append(on_disk(save(driver, tmp_path / f"run_{number}"))["main"])
            said = [e.message for e in driver.events if isinstance(e, Warned)]
            assert any("the state of 'net', 'opt' and 'params' is copied before" in s for s in said)
            own.close()
        assert same(ends[0], ends[1])
        assert ends[0]["net"]["calls"] == 4

    # The best checkpoint.

    def test_best_objects_are_copies_that_stay_linked(
        self, session: Session, tmp_path: Path
    ) -> None:
        job = trainer(
            metrics={"loss": "min"}, checkpoint=CheckpointPolicy(keep=Keep(best=Best("loss")))
        )
        with job.exit:
            Task(compare, ["best:net", "best:opt", "net"], out="report", name="compare")
            Task(weights, "best:net", out="best_alone", name="alone")
            Task(params_of, "best:params", out="best_params", name="params")
        driver = Driver(job, session=session).start().epochs(1)
        path = save(driver, tmp_path)
        best = on_disk(path)["main"]
        driver.epochs(1)
        names = {"main": ["net", "opt", "params"]}
        driver.session.load_best(path, names, {"main": "main"})
        driver.run("exit")
        assert driver.blob("report") == {"best_calls": 10, "calls": 20, "linked": True}
        assert same(driver.blob("best_alone"), best["net"]["w"])
        assert same(driver.blob("best_params"), best["params"]["layer"]["w"])

    # What must be named.

    @pytest.mark.parametrize("state", [[], ["net"]])
    def test_a_live_object_that_is_named_nowhere_is_an_error_after_setup(
        self, session: Session, state: list[str]
    ) -> None:
        job = linked(state=state)
        driver = Driver(job, session=session)
        with pytest.raises(TaskError) as caught:
            driver.run("setup")
        text = str(caught.value)
        names = [name for name in ("net", "opt") if name not in state]
        assert f"'state: [{', '.join([*state, *names])}]' saves their content" in text
        assert f"'constant: [{', '.join(names)}]' is for objects that no task changes" in text
        assert "'step' of 'epoch'" in text

    def test_a_live_object_that_only_setup_and_exit_use_needs_no_name(
        self, session: Session
    ) -> None:
        job = Job("j")
        with job.setup:
            Task(build, out=["net", "opt"])
        with job.exit:
            Task(weights, "net", out="w")
        Driver(job, session=session).start().run("exit")

    def test_live_objects_in_a_tree_are_named_by_the_tree(
        self, session: Session, tmp_path: Path
    ) -> None:
        def job(**options: Any) -> Job:
            made = Job("j", **options)
            with made.setup:
                Task(two_nets, out="models")
            with made.epoch:
                Task(step_both, "models", out="n", name="both")
            return made

        with pytest.raises(TaskError, match=r"'state: \[models\]' saves"):
            Driver(job(), session=session).run("setup")
        own = self.make_session()
        driver = Driver(job(state=["models"]), session=own).start().epochs(2)
        path = save(driver, tmp_path)
        assert on_disk(path)["main"]["models"]["a"]["calls"] == 2
        other = Driver(job(state=["models"]), session=session)
        other.run("setup")
        load(other, path)
        other.epochs(1)
        assert on_disk(save(other, tmp_path / "after"))["main"]["models"]["b"]["calls"] == 30
        own.close()

    def test_constants_are_named_and_nothing_is_said(self, session: Session) -> None:
        job = Job("j", constant=["net", "opt"])
        with job.setup:
            Task(build, out=["net", "opt"])
        with job.epoch:
            Task(weights, "net", out="w")
        driver = Driver(job, session=session).start().epochs(1)
        assert not [e for e in driver.events if isinstance(e, Warned)]

    def test_a_second_name_of_a_live_object_is_refused(self, session: Session) -> None:
        job = Job("j", state=["net"])
        with job.setup:
            Task(one_net, out=["net", "alias"])
        with job.epoch:
            Task(weights, "alias", out="w")
        driver = Driver(job, session=session)
        with pytest.raises(TaskError, match="'alias' of 'setup' is the object that 'state' names"):
            driver.run("setup")

    def test_a_constant_that_a_task_changes_is_found_by_the_check(self, session: Session) -> None:
        job = linked(state=[], constant=["net", "opt"])
        driver = Driver(job, session=session, check_inputs=True).start()
        with pytest.raises(
            TaskError, match=r"task 'step'.* it changed 'net', which 'constant' names"
        ):
            driver.epochs(1)

    def test_a_tree_that_has_lost_its_structure_is_refused_at_the_save(
        self, session: Session
    ) -> None:
        job = trainer()
        with job.epoch:
            Task(shrink, "params", out="params")
        driver = Driver(job, session=session).start().epochs(1)
        with pytest.raises(
            TaskError, match=r"state of 'params' .* \['layer'\].w, expected float64"
        ):
            driver.session.snapshot()


def flaky(folder: str, times: int, number: int) -> Job:
    """A task that fails after it has changed all that it was given, ``times`` times."""
    job = Job("j", state=["net", "opt", "params"])
    with job.setup:
        Task(build, out=["net", "opt"])
        Task(build_params, out="params")
    with job.epoch:
        Task(
            change_and_fail,
            in_={"net": "net"},
            update={"opt": "opt", "params": "params"},
            with_={"folder": folder, "times": times, "number": number},
            name="change",
            retries=3,
        )
    return job


def change_and_fail(net: Net, opt: Any, params: Any, folder: str, times: int, number: int) -> None:
    opt.step(np.ones(2))
    net.calls += 1
    params["list"][0] += 1
    mark = Path(folder, f"tried_{number}_{net.calls}")
    tried = len(mark.read_text()) if mark.exists() else 0
    mark.write_text("x" * (tried + 1))
    if tried < times:
        raise ValueError("try again")


def compare(net: Net, opt: Any, now: Net) -> dict[str, Any]:
    return {"best_calls": net.calls, "calls": now.calls, "linked": opt.net is net}


def params_of(params: Any) -> Any:
    return params["layer"].w


class Trainer:
    """Holds an optimizer, and so its network; has no state of its own."""

    def __init__(self, opt: Any) -> None:
        self.opt = opt


def by_trainer(trainer: Trainer) -> None:
    time.sleep(0.01)
    trainer.opt.net.w += 1


def halve(net: Net) -> None:
    net.w *= 0.5


def two_nets() -> dict[str, Net]:
    return {"a": Net(), "b": Net()}


def step_both(models: Any) -> int:
    models["a"].calls += 1
    models["b"].calls += 10
    return 0


def one_net() -> tuple[Net, Net]:
    net = Net()
    return net, net


def shrink(params: Any) -> Any:
    return {**params, "layer": params["layer"]._replace(w=params["layer"].w[:1])}


def linked(**options: Any) -> Job:
    """A job whose task uses both of two linked objects."""
    job = Job("j", **options)
    with job.setup:
        Task(build, out=["net", "opt"])
    with job.epoch:
        Task(step_alone, {"opt": "opt", "net": "net"}, with_={"k": 1}, name="step")
    return job


def step_alone(opt: Any, k: int, net: Any = None) -> None:
    time.sleep(0.01 * (k % 2))
    opt.net.w *= 0.5
    opt.net.w += k


def assert_released(snapshot: Any) -> None:
    assert snapshot is not None
    snapshot.release()
