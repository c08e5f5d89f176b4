"""What every session must obey.  A session's tests inherit ``SessionContract`` and make sessions.

Jobs here use functions of this module by name, plain values and files, so that a session may run
them in other processes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine import Driver, cut_after, same

import jobrun
from jobrun.checkpoint.integrity import read_manifest, read_record
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.record import RecordFields
from jobrun.core.events import StepLogged
from jobrun.core.position import Position
from jobrun.errors import BindError, DamagedError, DataError, TaskError, ValueRefusedError, Where
from jobrun.model.job import Job, Node, Pipe, Task
from jobrun.session.base import Control, Places, Session
from jobrun.storage.fs import DEFAULT

TREE = {
    "w": np.arange(6.0).reshape(2, 3),
    "list": [1, 2.5, "x", None, True],
    "scalar": np.float32(1.5),
    "empty": np.zeros((0, 2)),
    "big": np.arange(3, dtype=">i4"),
}


# Functions of tasks.


def make_tree() -> dict[str, Any]:
    return TREE


def zero() -> int:
    return 0


def begin(k: int) -> float:
    return float(k)


def rows() -> Any:
    return np.arange(10)


def one(*given: Any) -> float:
    return 1.0


def seldom_written(nodes: Sequence[str] | None) -> Job:
    """Scalars of which ``init`` gives each a value, and ``epoch`` only some.

    With nodes, node ``a`` writes ``other`` on node ``b``.
    """
    with Job("seldom", nodes=list(nodes) if nodes else None) as job:
        for node in nodes or ["main"]:
            where = {"node": node} if nodes else {}
            with job.setup:
                Task(rows, out="rows", name=f"rows_{node}", **where)
            with job.init:
                out = ["often", "seldom", "even", "fixed", "other"]
                for name in out:
                    Task(begin, with_={"k": 0}, out=name, name=f"begin_{name}_{node}", **where)
            Task(one, out="even", every=2, name=f"even_{node}", **where)
            do = [
                Task(one, ["x", "often"], out="often", name="often"),
                Task(one, "x", out="seldom", every={"batches": 5}, name="seldom"),
            ]
            Pipe({"x": "rows"}, 4, do=do, name=f"pipe_{node}", **where)
        if nodes:
            Task(one, "often", out="b:other", name="across", node="a")
        else:
            Task(one, "often", out="other", name="across", every=99)
    return job


def add(total: int, x: Any) -> int:
    return total + int(x.sum())


def counted() -> Job:
    """Five batches on each node: those on ``b`` behind those on ``a``, and ``last`` behind them."""
    job = Job("counted", nodes=["a", "b", "c"])
    job.checkpoint = jobrun.CheckpointPolicy(every=jobrun.Every(batches=3))
    with job.setup:
        Task(rows, out="rows", name="rows", node="*")
    with job.init:
        Task(zero, out="total", name="zero", node="*")
    with job.epoch:
        for name, node in (("first", "a"), ("second", "b"), ("beside", "c")):
            steps = [Task(add, ["total", "x"], out="total", name="add")]
            if node == "b":
                steps.append(Task(one, "a:total", out="read", name="read"))
            Pipe({"x": "rows"}, 2, do=steps, name=name, node=node)
        Task(increase, "total", out="total", name="last", node="a")
        Task(double, "total", out="total", name="double", node="b")
    return job


def double(n: int) -> int:
    return 2 * n


def increase(n: int) -> int:
    return n + 1


def grow(tree: dict[str, Any]) -> None:
    tree["w"] += 1
    tree["seen"] = tree.pop("seen", 0) + 1


def mean(ws: list[float]) -> float:
    return sum(ws) / len(ws)


def mean_with(ws: list[float], tool: Any) -> float:
    with tool:
        return mean(ws)


def use_slowly(tool: Any) -> None:
    with tool:
        time.sleep(0.03)


def slow_one(n: int) -> int:
    time.sleep(0.01)
    return n


def noise(rng: Any) -> float:
    return float(rng.random())


def fail(n: int) -> None:
    raise ValueError(f"bad number {n}")


def fail_later(n: int) -> None:
    time.sleep(0.2)
    raise KeyError("later")


def nothing(*args: Any) -> None:
    """Needs its inputs and does nothing."""


def make_lock() -> Any:
    return threading.Lock()


class BoundToThread:
    """An object that may be used on the thread only that made it."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def use(self, n: int) -> int:
        if threading.get_ident() != self.thread:
            raise RuntimeError("used on another thread")
        return n + 1


def use_bound(bound: BoundToThread, n: int) -> int:
    return bound.use(n)


def loss_of(x: Any) -> float:
    return float(x[0])


def log_loss(x: Any) -> float:
    jobrun.log(loss=x.sum(), every=2)
    return float(x.sum())


def twice(x: Any, rng: Any) -> Any:
    return x + rng.integers(0, 9, len(x))


def table_of(x: Any) -> Any:
    return {"rows": [len(x)]}


def spoil(table: Any) -> int:
    """Changes what it was given to read."""
    table["rows"].append(0)
    return len(table["rows"])


def tie(x: Any) -> Any:
    """One array under two keys."""
    w = x + 0
    return {"a": w, "b": w, "n": len(x)}


def as_it_is(s: Any) -> Any:
    return s


def add_to_a(s: Any) -> None:
    s["a"] += 1


# Jobs.


def reference(nodes: list[str] | None = None, **pipe: Any) -> Job:
    """The reference job: 103, 115, 136, 145."""
    job = Job("reference", seed=3, nodes=nodes, metrics={"total": "max"})
    node = "*" if nodes else None
    steps = [Task(add, ["total", "x"], out="total"), Task(loss_of, "x", out="loss")]
    with job.setup:
        Task(rows, out="data", node=node)
    with job.init:
        Task(hundred, out="total", node=node)
    with job.epoch:
        Pipe({"x": "data"}, do=steps, node=node, **{"batches_per_epoch": 3, "passes": 1, **pipe})
    return job


def copies_with_an_object() -> Job:
    """``avg`` gathers ``w`` of both nodes; on ``b`` others use its object before it."""
    job = Job("copies", nodes={"a": {"k": 1}, "b": {"k": 3}})
    with job.setup, Node("*"):
        Task(make_lock, out="tool", name="tool")
    with job.init, Node("*"):
        Task(begin, "k", out="w", name="begin")
    with job.epoch:
        for number in range(4):
            Task(use_slowly, "tool", name=f"use_{number}", node="b")
        Task(mean_with, {"ws": "*:w", "tool": "tool"}, out="w", name="avg", node="*")
    return job


def hundred() -> int:
    return 100


def state_job() -> Job:
    """A tree that is updated, a scalar, scratch, and a blob of ``setup``."""
    job = Job("state", seed=1)
    with job.setup:
        Task(rows, out="data")
    with job.init:
        Task(make_tree, out="tree")
        Task(zero, out="n")
    with job.epoch:
        Task(grow, update="tree")
        Task(increase, "n", out="n")
        Task(increase, "n", out="scratch", name="scratch")
        Task(noise, "rng", out="noise")
    with job.exit:
        Task(nothing, "noise")
    return job


def save(driver: Driver, path: Path) -> Path:
    """A checkpoint of now; gives its directory."""
    manager = CheckpointManager(path)
    source = driver.session.snapshot()
    assert source is not None
    return manager.save_snapshot(source, RecordFields(job="j", position=driver.position)).path


def load(driver: Driver, checkpoint: Path) -> int:
    size = sum(driver.session.load_part(node, checkpoint) for node in driver.job.nodes)
    driver.session.take_over()
    return size


class SessionContract:
    """Inherited by the tests of each session, with ``make_session``."""

    def make_session(self) -> Session:
        """A new session."""
        raise NotImplementedError

    @pytest.fixture
    def session(self) -> Iterator[Session]:
        made = self.make_session()
        yield made
        made.close()

    # Order.

    def test_tasks_see_what_those_before_them_wrote(self, session: Session) -> None:
        job = Job("j")
        with job.init:
            Task(zero, out="n")
        with job.epoch:
            Task(slow_one, "n", out="a")
            Task(increase, "n", out="n", name="up")
            Task(increase, "n", out="n", name="up again")
            Task(slow_one, "n", out="b", name="look")
        driver = Driver(job, session=session).start()
        for epoch in range(3):
            assert driver.epoch()
            assert [driver.blob(k) for k in "abn"] == [2 * epoch, 2 * epoch + 2, 2 * epoch + 2]
            session.end_epoch()

    def test_copies_of_a_task_read_all_before_any_writes(self, session: Session) -> None:
        job = Job("j", nodes={f"t_{i}": {"k": i} for i in range(3)})
        with job.init, Node("t_*"):
            Task(begin, "k", out="w")
        with job.epoch, Node("t_*"):
            Task(mean, ["t_*:w"], out="w")
        driver = Driver(job, session=session).start().epochs(1)
        assert [driver.blob(f"t_{i}:w") for i in range(3)] == [1.0] * 3

    def test_what_is_bound_to_a_thread_is_used_on_it(self, session: Session) -> None:
        job = Job("j", nodes=["a", "b"])
        with job.setup, Node("*"):
            Task(BoundToThread, out="bound", name="make", thread="same")
        with job.init, Node("*"):
            Task(zero, out="n")
        with job.epoch, Node("*"):
            for number in range(4):
                Task(slow_one, "n", out=f"other_{number}", name=f"other_{number}")
            Task(use_bound, ["bound", "n"], out="n", name="use")
        driver = Driver(job, session=session).start().epochs(3)
        assert [driver.blob(f"{node}:n") for node in "ab"] == [3, 3]

    def test_random_numbers_depend_on_their_place_alone(self, session: Session) -> None:
        job = state_job()
        driver = Driver(job, session=session).start().epochs(2)
        second = driver.blob("noise")
        again = Driver(job, session=self.make_session()).start()
        again.position = Position(1)
        again.epochs(1)
        assert again.blob("noise") == second
        again.session.close()

    # Ties.

    @pytest.mark.parametrize("how", [{}, {"threads": 2}, {"processes": 1}])
    def test_arrays_of_a_tree_stay_tied_between_steps_nodes_and_saves(
        self, session: Session, tmp_path: Path, how: dict[str, int]
    ) -> None:
        job = Job("j", nodes=["a", "b"])
        with job.setup, Node("*"):
            Task(rows, out="data")
        with job.init, Node("*"):
            Task(tie, "data", out="s")
            Task(tie, "data", out="t", name="tie t")
        with job.epoch:
            Pipe(
                {"x": "data"},
                batch=10,
                name="p",
                map=[Task(tie, "x", out="c")],
                do=[Task(as_it_is, "c", out="s")],
                node="a",
                passes=None,
                **how,
            )
            Task(as_it_is, "a:s", out="t", name="fetch", node="b")
            Task(add_to_a, update="t", name="add", node="b")
        driver = Driver(job, session=session).start().epochs(1)
        assert driver.blob("b:t/a").tolist() == driver.blob("b:t/b").tolist() == [*range(1, 11)]
        path = save(driver, tmp_path)
        for node in ("a", "b"):
            record = read_record(DEFAULT, str(path))
            entries = read_manifest(DEFAULT, str(path), record, node).entries
            found = {e.path: e.same_as for e in entries if e.same_as is not None}
            assert found == {"s/b": "s/a", "t/b": "t/a"}
        load(driver, path)
        driver.epochs(1)
        assert driver.blob("b:t/b").tolist() == [*range(1, 11)]

    # Positions.

    @pytest.mark.parametrize("nodes", [None, ["trainer_0", "trainer_1", "trainer_2"]])
    def test_the_reference_job(self, session: Session, nodes: list[str] | None) -> None:
        driver = Driver(reference(nodes), session=session).start()
        names = [f"{n}:total" for n in nodes] if nodes else ["total"]
        found = []
        for _ in range(4):
            driver.epochs(1)
            found.append([driver.blob(n) for n in names])
        assert found == [[t] * len(names) for t in (103, 115, 136, 145)]
        readers = driver.position.readers
        assert sorted(readers) == sorted([f"{n}:pipe" for n in nodes] if nodes else ["pipe"])
        assert all((r.passes, r.row) == (1, 0) for r in readers.values())

    @pytest.mark.parametrize("nodes", [None, ["a", "b"]])
    def test_map_steps_in_processes_give_the_bits_of_threads(
        self, session: Session, nodes: list[str] | None
    ) -> None:
        found = []
        for own, how in ((self.make_session(), {"threads": 2}), (session, {"processes": 2})):
            step = Task(twice, ["x", "rng"], out="x")
            driver = Driver(reference(nodes, map=[step], **how), session=own).start().epochs(3)
            found.append([driver.blob(f"{n}:total") for n in nodes or ["main"]])
            own.close()
        assert found[0] == found[1]

    def test_a_done_group_has_all_its_tasks_in_the_position(self, session: Session) -> None:
        driver = Driver(state_job(), session=session)
        for group in ("setup", "init", "epoch"):
            reached = driver.run(group)
            plan = driver.plans[group]
            assert sorted(reached.tasks) == sorted(u.key for u in plan.units)
            assert not reached.pipes

    def test_a_group_that_is_done_does_not_run_again(self, session: Session) -> None:
        driver = Driver(state_job(), session=session).start()
        driver.position = driver.run("epoch")
        assert driver.blob("n") == 1
        assert driver.run("epoch") == driver.position
        assert driver.blob("n") == 1

    @pytest.mark.parametrize("cuts", [[1], [2, 2], [3, 1, 4], [0, 5], [1] * 9])
    @pytest.mark.parametrize("nodes", [None, ["a", "b"]])
    def test_a_cut_run_that_goes_on_gives_the_same(
        self, session: Session, nodes: list[str] | None, cuts: list[int]
    ) -> None:
        whole = Driver(reference(nodes, shuffle=True), session=self.make_session()).start()
        parts = Driver(reference(nodes, shuffle=True), session=session).start()
        names = [f"{n}:{b}" for n in nodes or ["main"] for b in ("total", "loss")]
        names = names if nodes else ["total", "loss"]
        left = list(cuts)
        for _ in range(4):
            assert whole.epoch()
            while not parts.epoch(cut_after(left.pop()) if left else lambda: False):
                position = parts.position
                parts.position = Position.from_json(position.to_json())
                assert parts.run("epoch", Control(cut=lambda: True)) == position
            assert [parts.blob(n) for n in names] == [whole.blob(n) for n in names]
            assert parts.position == whole.position
        whole.session.close()

    @pytest.mark.parametrize("cut", range(2, 8))
    def test_a_cut_between_copies_that_wait_for_an_object_can_be_gone_on_with(
        self, session: Session, cut: int
    ) -> None:
        """Users of the object on one node only; all copies run before the cut, or none."""
        driver = Driver(copies_with_an_object(), session=session).start()
        wait = cut_after(cut)
        while not driver.epoch(wait):
            tasks = driver.position.tasks
            assert ("a:avg" in tasks) == ("b:avg" in tasks)
            driver.position = Position.from_json(driver.position.to_json())
            wait = lambda: False  # noqa: E731
        assert [driver.blob(f"{node}:w") for node in "ab"] == [2.0, 2.0]

    def test_each_applied_batch_is_said(self, session: Session) -> None:
        applied: list[int] = []
        driver = Driver(reference(), session=session).start()
        driver.run("epoch", Control(applied=lambda count: applied.append(count)))
        assert applied == sorted(applied)
        assert applied[-1] == 3

    def test_pipes_are_held_after_as_many_batches_along_the_graph(self, session: Session) -> None:
        driver, places = Driver(counted(), session=session).start(), []
        while not driver.epoch(batches_left=lambda: 3):
            tasks, pipes = driver.position.tasks, driver.position.pipes
            places.append((tasks, {key: pipe.batches for key, pipe in pipes.items()}))
        assert places == [
            ((), {"a:first": 3, "c:beside": 3}),
            (("a:first", "c:beside"), {"b:second": 1}),
            (("a:first", "c:beside"), {"b:second": 4}),
        ]
        assert [driver.blob(f"{node}:total") for node in "abc"] == [46, 90, 45]

    # Scratch.

    def test_the_time_in_tasks_of_each_node_is_told(self, session: Session) -> None:
        with Job("j", nodes=["a", "b", "c"]) as job:
            for node, name in (("a", "one"), ("a", "two"), ("b", "three")):
                Task(slow_one, with_={"n": 1}, out=name, name=name, node=node)
        told: list[Mapping[str, float]] = []
        Driver(job, session=session).start().run("epoch", Control(spent=told.append))
        (seconds,) = told
        assert set(seconds) == {"a", "b"}
        assert seconds["a"] >= 0.02  # two tasks that sleep
        assert seconds["b"] >= 0.01

    def test_one_node_alone_has_no_time_to_tell(self, session: Session) -> None:
        told: list[Mapping[str, float]] = []
        Driver(reference(), session=session).start().run("epoch", Control(spent=told.append))
        assert told == []

    def test_scratch_is_forgotten_at_the_end_of_an_epoch(self, session: Session) -> None:
        driver = Driver(state_job(), session=session).start()
        assert driver.epoch()
        assert driver.blob("scratch") == 2
        session.end_epoch()
        with pytest.raises(TaskError, match="scratch"):
            session.blob("scratch")
        expected = ["data", "n", "noise", "tree"]
        assert sorted(n for n in session.names() if "/" not in n) == expected

    # Scalars and blobs.

    def test_scalars_are_one_element_by_name(self, session: Session) -> None:
        driver = Driver(state_job(), session=session).start()
        assert session.scalars(["n", "missing", "tree/scalar", "tree/list/3"]) == {
            "n": 0,
            "tree/scalar": 1.5,
            "tree/list/3": None,  # what was not written is absent
        }
        for name in ("tree/w", "tree", "tree/list/2"):
            with pytest.raises(TaskError, match=f"blob '{name}' must be a single number"):
                session.scalars([name])
        assert driver.blob("n") == 0

    @pytest.mark.parametrize("nodes", [None, ["a", "b"]], ids=["one node", "two nodes"])
    def test_a_scalar_of_before_the_epoch_is_no_value_of_it(
        self, session: Session, nodes: list[str] | None
    ) -> None:
        """``often`` is written in each batch, ``seldom`` never; ``even`` in even epochs."""
        driver = Driver(seldom_written(nodes), session=session).start()
        at = "b:" if nodes else ""
        names = [f"{at}{name}" for name in ("often", "seldom", "even", "fixed", "other")]
        often, seldom, even, fixed, other = names
        before = dict.fromkeys((often, seldom, even, other), 0.0) | {fixed: 0.0}
        assert session.scalars(names) == before, "no epoch has begun"
        across = {other: 1.0} if nodes else {}
        expected = {often: 1.0, fixed: 0.0, **across}
        for found in (expected, {**expected, even: 1.0}):
            assert driver.epoch()
            assert session.scalars(names) == found
            assert set(session.written(names)) == set(found) - {fixed}
            session.end_epoch()
        session.open(driver.job, Places())  # as in another process that resumes inside epoch 2
        driver.start()
        session.resume_epoch(2, [often, even])
        assert session.written(names) == (often, even)
        done = [u.key for u in driver.plans["epoch"].units if u.task.name != "across"]
        driver.position = Position(1, tuple(done))
        assert driver.epoch()
        assert set(session.scalars(names)) == {often, even, fixed, *across}

    def test_scalars_of_nodes(self, session: Session) -> None:
        Driver(reference(["a", "b"]), session=session).start()
        assert session.scalars(["b:total", "c:total"]) == {"b:total": 100}

    def test_blobs_are_read_only_and_their_kinds_are_kept(self, session: Session) -> None:
        driver = Driver(state_job(), session=session).start()
        assert same(driver.blob("tree"), TREE)
        with pytest.raises(ValueError, match="read-only"):
            driver.blob("tree/w")[0, 0] = 1
        with pytest.raises(TaskError, match="no blob 'tre'") as caught:
            driver.blob("tre")
        assert "'tree'" in caught.value.hint

    def test_names(self, session: Session) -> None:
        Driver(reference(["a", "b"]), session=session).start()
        assert session.names() == ["a:data", "a:total", "b:data", "b:total"]

    # Saving and loading.

    def test_a_snapshot_is_of_its_instant(self, session: Session, tmp_path: Path) -> None:
        driver = Driver(state_job(), session=session).start().epochs(1)
        token = session.snapshot()
        assert token is not None
        expected = driver.blob("tree")
        driver.epochs(2)
        os.mkdir(tmp_path / "part")
        token.write(str(tmp_path / "part"), 0, (), ())
        token.release()
        assert driver.blob("n") == 3
        assert driver.blob("tree")["seen"] == 3
        assert expected["seen"] == 1
        assert expected["w"][0, 0] == 1

    def test_what_is_saved_comes_back_bit_for_bit(self, session: Session, tmp_path: Path) -> None:
        driver = Driver(state_job(), session=session).start().epochs(2)
        tree, noise_then = driver.blob("tree"), driver.blob("noise")
        checkpoint = save(driver, tmp_path)
        driver.epochs(2)
        assert not same(driver.blob("tree"), tree)
        assert load(driver, checkpoint) > 0
        assert same(driver.blob("tree"), tree)
        assert list(driver.blob("tree")) == list(tree)
        assert driver.blob("n") == 2
        assert driver.blob("noise") == noise_then
        other = Driver(state_job(), session=self.make_session())
        other.run("setup")
        load(other, checkpoint)
        assert same(other.blob("tree"), tree)
        assert other.blob("data").tolist() == list(range(10))
        other.session.close()

    def test_a_run_goes_on_from_a_loaded_state(self, session: Session, tmp_path: Path) -> None:
        whole = Driver(reference(), session=session).start().epochs(2)
        checkpoint = save(whole, tmp_path)
        other = Driver(reference(), session=self.make_session())
        other.run("setup")
        load(other, checkpoint)
        other.position = Position.from_json(whole.position.to_json())
        assert whole.epochs(2).blob("total") == other.epochs(2).blob("total") == 145
        other.session.close()

    def test_nothing_is_taken_over_before_all_is_loaded(
        self, session: Session, tmp_path: Path
    ) -> None:
        driver = Driver(reference(["a", "b"]), session=session).start().epochs(1)
        checkpoint = save(driver, tmp_path)
        driver.epochs(1)
        session.load_part("a", checkpoint)
        assert driver.blob("a:total") == 115
        session.load_part("b", checkpoint)
        session.take_over()
        assert (driver.blob("a:total"), driver.blob("b:total")) == (103, 103)

    def test_a_damaged_part_is_not_taken(self, session: Session, tmp_path: Path) -> None:
        driver = Driver(state_job(), session=session).start().epochs(1)
        checkpoint = save(driver, tmp_path)
        (chunk,) = (checkpoint / "main/tree/w").glob("[0-9]*")
        data = bytearray(chunk.read_bytes())
        data[0] ^= 1
        chunk.write_bytes(data)
        with pytest.raises(DamagedError):
            session.load_part("main", checkpoint)
        assert driver.blob("n") == 1

    def test_a_blob_that_a_checkpoint_does_not_hold_is_gone_after_loading_it(
        self, session: Session, tmp_path: Path
    ) -> None:
        driver = Driver(state_job(), session=session).start()
        checkpoint = save(driver, tmp_path)
        driver.epochs(1)
        assert driver.blob("noise")
        load(driver, checkpoint)
        with pytest.raises(TaskError, match="noise"):
            driver.blob("noise")
        assert driver.blob("data").size == 10

    def test_unchanged_blobs_keep_the_version_that_first_wrote_them(
        self, session: Session, tmp_path: Path
    ) -> None:
        job = Job("j")
        with job.init:
            Task(make_tree, out="tree")
            Task(zero, out="n")
        with job.epoch:
            Task(increase, "n", out="n")
        driver = Driver(job, session=session).start()
        save(driver, tmp_path)
        driver.epochs(1)
        checkpoint = str(save(driver, tmp_path))
        manifest = read_manifest(DEFAULT, checkpoint, read_record(DEFAULT, checkpoint), "main")
        versions = {entry.path: entry.version for entry in manifest.entries}
        assert versions["tree/w"] == 0
        assert versions["n"] == 1

    def test_scratch_that_is_asked_for_is_in_the_snapshot(
        self, session: Session, tmp_path: Path
    ) -> None:
        driver = Driver(state_job(), session=session).start()
        assert driver.epoch()
        os.mkdir(tmp_path / "part")
        token = session.snapshot({"main": ["scratch", "missing"]})
        assert token is not None
        token.write(str(tmp_path / "part"), 0, (), ())
        assert (tmp_path / "part/main/scratch/zarr.json").exists()

    def test_scratch_may_lie_around_what_persists(self, session: Session, tmp_path: Path) -> None:
        """A tree of which one leaf persists, saved in the middle of an epoch."""
        job = Job("j")
        with job.init:
            Task(zero, out="tree/n")
        with job.epoch:
            Task(make_tree, out="tree")
            Task(increase, {"n": "tree/scalar"}, out="tree/n")
        driver = Driver(job, session=session).start()
        assert driver.epoch()
        tree = driver.blob("tree")
        os.mkdir(tmp_path / "part")
        token = session.snapshot({"main": ["tree", "tree/n"]})
        assert token is not None
        token.write(str(tmp_path / "part"), 0, (), ())
        assert (tmp_path / "part/main/tree/w/zarr.json").exists()
        assert tree["n"] == 2.5

    def test_scratch_that_cannot_be_saved_gives_no_snapshot(self, session: Session) -> None:
        job = Job("j")
        with job.epoch:
            Task(make_lock, out="lock")
        driver = Driver(job, session=session).start()
        assert driver.epoch()
        assert session.snapshot({"main": ["lock"]}) is None
        assert session.snapshot() is not None

    def test_the_best_checkpoint_is_read_beside_the_blobs(
        self, session: Session, tmp_path: Path
    ) -> None:
        job = reference()
        with job.exit:
            Task(increase, {"n": "best:total"}, out="result")
        driver = Driver(job, session=session).start().epochs(1)
        checkpoint = save(driver, tmp_path)
        driver.epochs(1)
        session.load_best(checkpoint, {"main": ["total"]}, {"main": "main"})
        driver.run("exit")
        assert driver.blob("result") == 104
        assert driver.blob("total") == 115

    # Errors.

    def test_a_failure_ends_the_group(self, session: Session) -> None:
        """Of several, the first; what ran beside it has ended, and nothing new starts."""
        job = Job("j")
        with job.init:
            Task(zero, out="n")
        with job.epoch:
            Task(slow_one, "n", out="beside")
            Task(fail, "n", name="first", after="slow_one")
            Task(fail_later, "n", after="slow_one")
            Task(increase, "n", out="behind", after="first")
        driver = Driver(job, session=session).start()
        with pytest.raises(TaskError, match=r"task 'first' .* ValueError: bad number 0"):
            driver.epoch()
        assert driver.blob("beside") == 0
        with pytest.raises(TaskError, match="no blob 'behind'"):
            driver.blob("behind")

    @pytest.mark.parametrize(
        ("group", "how"),
        [("task", {}), ("do", {}), ("map", {}), ("map", {"threads": 2}), ("map", {"processes": 1})],
    )
    def test_a_container_changed_in_place_is_an_error_wherever_a_function_is_called(
        self, session: Session, group: str, how: dict[str, int]
    ) -> None:
        job = reference()
        with job.init:
            Task(table_of, {"x": "data"}, out="table")
        where = Where("job.yaml", 8, 5)
        with job.epoch:
            if group == "task":
                Task(spoil, "table", out="n", where=where)
            elif group == "do":
                step = Task(spoil, "table", out="n", where=where)
                Pipe({"x": "data"}, batch=5, name="p", do=[step])
            else:
                make = Task(table_of, "x", out="column")
                step = Task(spoil, "column", out="n", where=where)
                use = Task(nothing, "n")
                Pipe({"x": "data"}, batch=5, name="p", map=[make, step], do=[use], **how)
        with pytest.raises(TaskError, match=r"the list '\w+/rows', it has 2 items, and") as caught:
            Driver(job, session=session).start().epoch()
        assert caught.value.where == where

    def test_errors_have_their_place(self, session: Session) -> None:
        where = Where("job.yaml", 3, 5, "  - call: m:fail")
        job = Job("j", nodes=["a", "b"])
        with job.init, Node("*"):
            Task(zero, out="n")
        with job.epoch, Node("b"):
            Task(fail, "n", where=where)
        with pytest.raises(TaskError) as caught:
            Driver(job, session=session).start().epoch()
        assert caught.value.where == where
        assert caught.value.message == (
            "task 'fail' of group 'epoch' on node 'b' failed: ValueError: bad number 0"
        )
        assert 'raise ValueError(f"bad number {n}")' in caught.value.trace

    def test_data_that_cannot_be_read_is_an_error_with_its_place(self, session: Session) -> None:
        where = Where("job.yaml", 7, 5)
        with pytest.raises(DataError, match="batch is 0") as caught:
            Driver(reference(batch=0, where=where), session=session).start().epoch()
        assert caught.value.where == where

    def test_what_persists_must_be_storable(self, session: Session) -> None:
        job = Job("j")
        with job.init:
            Task(make_lock, out="lock")
        with pytest.raises(ValueRefusedError, match="'lock' persists, but cannot be saved"):
            Driver(job, session=session).start()

    def test_code_that_cannot_be_bound_is_an_error_before_anything_runs(
        self, session: Session
    ) -> None:
        job = Job("j")
        with job.epoch:
            Task("math:no_such_function")
        with pytest.raises(BindError, match="no_such_function"):
            Driver(job, session=session)

    # Numbers of steps.

    @pytest.mark.parametrize("nodes", [["main"], ["a", "b"]])
    def test_numbers_of_steps_are_reported(self, session: Session, nodes: list[str]) -> None:
        job = Job("j", nodes=nodes)
        with job.setup:
            Task(rows, out="data", node="*")
        with job.epoch:
            do = [Task(log_loss, "x", out="loss")]
            Pipe({"x": "data"}, batch=2, do=do, name="p", node="*")
        driver = Driver(job, session=session).start().epochs(2)
        found = [event for event in driver.events if isinstance(event, StepLogged)]
        steps = [(e.node, e.epoch, e.batch, e.batches, e.task) for e in found]
        assert sorted(steps) == [(n, e, b, 5, "p") for n in nodes for e in (1, 2) for b in (2, 4)]
        assert {e.values["loss"] for e in found if e.batch == 2} == {5.0}

    # Again.

    def test_a_session_runs_one_job_after_another(self, session: Session) -> None:
        assert Driver(reference(), session=session).start().epochs(4).blob("total") == 145
        assert Driver(reference(), session=session).start().epochs(1).blob("total") == 103
        Driver(state_job(), session=session).start()
        assert "total" not in session.names()

    def test_blobs_stay_readable_after_closing(self, session: Session) -> None:
        driver = Driver(reference(), session=session).start().epochs(1)
        session.close()
        assert driver.blob("total") == 103

    def test_it_can_be_described(self, session: Session) -> None:
        assert session.description
