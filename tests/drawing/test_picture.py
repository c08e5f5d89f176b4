"""The boxes and arrows of a job."""

from __future__ import annotations

from jobrun.analysis.checks import check
from jobrun.drawing.picture import LANES, Picture, picture
from jobrun.drawing.tree import tree
from jobrun.model.job import Job, Node, Pipe, Task


def draw(job: Job) -> Picture:
    job.stop(epochs=1)
    assert check(job) == []
    return picture(job)


def arrows(drawn: Picture) -> dict[tuple[str, str], tuple[str, ...]]:
    keys = [f"{box.group}/{box.key}" for box in drawn.boxes]
    return {(keys[a.source], keys[a.target]): a.blobs for a in drawn.arrows}


def test_blobs_go_from_the_last_writer_to_the_reader_over_groups_too() -> None:
    with Job("j") as job:
        with job.setup:
            Task("m:load", out=["x", "y"])
        with job.init:
            Task("m:start", out="w")
        with job.epoch:
            Task("m:step", in_=["x", "w"], out="g")
            Task("m:apply", in_="g", update="w")
        with job.exit:
            Task("m:report", in_=["w", "y", "best:w"])
        job.metrics["g"] = "min"
    drawn = draw(job)
    assert arrows(drawn) == {
        ("setup/load", "epoch/step"): ("x",),
        ("setup/load", "exit/report"): ("y",),
        ("init/start", "epoch/step"): ("w",),
        ("init/start", "epoch/apply"): ("w",),
        ("epoch/step", "epoch/apply"): ("g",),
        ("epoch/apply", "exit/report"): ("w", "best:w"),
    }
    assert {b for a in drawn.arrows for b in a.kept} == {"w", "best:w"}
    step, apply = drawn.boxes[2:4]
    assert (step.reads, step.updates, step.writes) == (("x", "w"), (), ("g",))
    assert (apply.reads, apply.updates, apply.writes) == (("g",), ("w",), ())
    assert [box.rank for box in drawn.boxes] == [0, 0, 0, 1, 0]


def test_how_often_a_task_or_step_runs_if_not_each_time() -> None:
    with Job("j", vars={"k": 3}) as job:
        with job.setup:
            Task("m:load", out="rows")
        step = Task("m:step", in_="x", out="a")
        norm = Task("m:norm", in_="x", out="b", every={"batches": 50})
        Pipe(from_={"x": "rows"}, batch=2, do=[step, norm], name="read", every="k")
        Task("m:each", in_="rows", out="c", every=1)
        Task("m:check", in_="rows", out="d", every=2)
    drawn = draw(job)
    assert [box.every for box in drawn.boxes] == ["", "every k epochs", "", "every 2 epochs"]
    assert drawn.boxes[1].steps == ("do step: x → a", "do norm (every 50 batches): x → b")
    assert drawn.boxes[1].description == "batches of 2, every k epochs"
    text = tree(drawn)
    assert "check  [every 2 epochs]  rows" in text
    assert "each  rows" in text


def test_a_leaf_and_its_tree_overlap() -> None:
    with Job("j") as job:
        with job.init:
            Task("m:start", out="model")
        Task("m:use", in_="model/w", out="y")
        Task("m:set", in_="y", out="model/w")
    drawn = draw(job)
    assert arrows(drawn)["init/start", "epoch/use"] == ("model/w",)
    assert drawn.persists("main", "model/w")
    assert not drawn.persists("main", "y")


def test_order_without_blobs_is_drawn_where_nothing_else_implies_it() -> None:
    with Job("j") as job:
        with job.init:
            Task("m:start", out="a")
        Task("m:read", in_="a", out="r", name="read")
        Task("m:write", out="a", name="write")  # after the reader of what it replaces
        Task("m:last", in_="a", name="last", after="read")  # implied by read, write, last
    found = arrows(draw(job))
    assert found["epoch/read", "epoch/write"] == ()
    assert ("epoch/read", "epoch/last") not in found


def test_the_steps_of_a_pipe_are_its_lines() -> None:
    with Job("j", vars={"lr": 0.1}) as job:
        with job.setup:
            Task("m:load", out="x")
        with job.init:
            Task("m:start", out="w")
        Pipe(
            from_={"c": "x"},
            batch=4,
            shuffle=True,
            map=[Task("m:norm", in_="c", out="c")],
            do=[Task("m:step", in_=["c", "lr"], update="w", out="loss")],
            name="train",
        )
    (box,) = (b for b in draw(job).boxes if b.kind == "pipe")
    assert box.steps == ("map norm: c → c", "do step: c, lr; updates w → loss")
    assert box.detail == "batches of 4, shuffled"


def nodes_job(count: int) -> Job:
    with Job("j", nodes=[f"n{i}" for i in range(count)]) as job:
        with job.init, Node("n*"):
            Task("m:start", out="w")
        with job.epoch, Node("n*"):
            Task("m:mean", in_="n*:w", out="w")
    return job


def test_copies_read_from_all_nodes_and_do_not_wait_for_each_other() -> None:
    found = arrows(draw(nodes_job(2)))
    assert found == {
        ("init/n0:start", "epoch/n0:mean"): ("w",),
        ("init/n0:start", "epoch/n1:mean"): ("n0:w",),
        ("init/n1:start", "epoch/n0:mean"): ("n1:w",),
        ("init/n1:start", "epoch/n1:mean"): ("w",),
    }


def test_many_nodes_are_one_box_a_task() -> None:
    drawn = draw(nodes_job(LANES + 1))
    assert [(b.key, b.copies) for b in drawn.boxes] == [("start", 7), ("mean", 7)]
    assert len(drawn.arrows) == 1
