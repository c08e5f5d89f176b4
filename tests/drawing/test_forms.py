"""Text tree, Mermaid, DOT and SVG: what is in them, and that awkward names do no harm."""

from __future__ import annotations

import re
import shutil
import subprocess
from xml.etree import ElementTree

import pytest

from jobrun.analysis.checks import check
from jobrun.drawing.dot import dot
from jobrun.drawing.mermaid import mermaid
from jobrun.drawing.picture import Picture, State, picture
from jobrun.drawing.svg import svg
from jobrun.drawing.tree import ASCII, tree
from jobrun.model.job import Job, Node, Pipe, Task

SVG = "{http://www.w3.org/2000/svg}"


def small(name: str = "j", task: str = "step") -> Job:
    with Job(name) as job:
        with job.init:
            Task("m:start", out="w")
        Task("m:step", update="w", out="loss", name=task)
        Task("m:look", in_="w", name="look", after=task)
        job.stop(epochs=1)
    assert check(job) == []
    return job


STATES = {
    ("init", "start"): State("done", 0.25, 0.5),
    ("epoch", "step"): State("failed", 0.0123, 0.9),
    ("epoch", "look"): State("waiting"),
}


def drawn(states: bool = False) -> Picture:
    notes = {"init": "0.5 s"} if states else None
    return picture(small(), STATES if states else None, notes)


def test_tree() -> None:
    assert tree(drawn()) == (
        "j\n"
        "├─ init, once\n"
        "│  └─ 1 start  → w●\n"
        "└─ epoch, again and again\n"
        "   ├─ 1 step  updates w● → loss\n"
        "   └─ 2 look  w●\n"
        "● persists: it is in the checkpoints"
    )


def test_tree_in_ascii_with_states() -> None:
    text = tree(drawn(states=True), ASCII)
    assert text.isascii()
    assert text.splitlines()[1:6] == [
        "|- init, once  0.5 s",
        "|  `- 1 start  -> w*  (done, 0.25 s, 50%)",
        "`- epoch, again and again",
        "   |- 1 step  updates w* -> loss  (FAILED, 12.3 ms, 90%)",
        "   `- 2 look  w*  (waiting)",
    ]


def test_mermaid() -> None:
    assert mermaid(drawn(states=True)).splitlines() == [
        "flowchart TD",
        '  subgraph init_group["init, once"]',
        '    t0["<b>start</b><br/>m:start<br/>0.25 s, 50%"]:::done',
        "  end",
        '  subgraph epoch_group["epoch, again and again"]',
        '    t1["<b>step</b><br/>m:step<br/>12.3 ms, 90%"]:::failed',
        '    t2["<b>look</b><br/>m:look"]',
        "  end",
        '  t0 -->|"w ●"| t1',
        '  t1 -->|"w ●"| t2',
        "  classDef done fill:#d9f2e3,stroke:#2b8a57,color:#123",
        "  classDef failed fill:#fbdcdc,stroke:#c0392b,color:#123",
    ]


def test_dot() -> None:
    lines = dot(drawn()).splitlines()
    assert lines[0] == 'digraph "j" {'
    assert '    t1 [label="step\\nm:step"]' in lines
    assert '  t0 -> t1 [label="w ●"]' in lines
    assert lines[-1] == "}"


def texts(image: str) -> list[str]:
    return ["".join(e.itertext()) for e in ElementTree.fromstring(image).iter(f"{SVG}text")]


def test_svg_holds_every_task_group_and_blob_and_nothing_from_elsewhere() -> None:
    image = svg(drawn(states=True))
    found = texts(image)
    for text in ("j", "init", "once", "0.5 s", "start", "w", "→ loss", "12.3 ms, 90%"):
        assert text in found, text
    assert not re.search(r"href|url\(|<script|@import|@font-face", image)
    root = ElementTree.fromstring(image)
    boxes = [e.get("class", "").split() for e in root.iter(f"{SVG}rect")]
    assert ["box", "call", "failed"] in boxes
    assert "kept" in [e.get("class") for e in root.iter(f"{SVG}tspan")]


def test_svg_everything_is_within_the_image() -> None:
    with Job("wide", nodes=["left", "right"]) as job:
        with job.init, Node("*"):
            Task("m:start", out="w")
        with job.epoch, Node("*"):
            for number in range(11):
                Task("m:use", in_="w", out=f"u{number}", name=f"use{number}")
        job.stop(epochs=1)
    assert check(job) == []
    root = ElementTree.fromstring(svg(picture(job)))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    group = next(root.iter(f"{SVG}g"))
    shift_x, shift_y = map(float, re.findall(r"[\d.]+", group.get("transform", "")))
    for rect in group.iter(f"{SVG}rect"):
        x, y = float(rect.get("x", 0)) + shift_x, float(rect.get("y", 0)) + shift_y
        assert x >= 0
        assert x + float(rect.get("width", 0)) <= width
        assert y >= 0
        assert y + float(rect.get("height", 0)) <= height
    assert {"left", "right"} <= set(texts(svg(picture(job))))


NAMES = [
    "acc[val]",
    "[/x]",
    "[bold]",
    '"quoted"',
    "a<b>&c",
    "back\\slash",
    "ünï",
    "x\x1b[31m",
    "`t`",
]


@pytest.mark.parametrize("name", NAMES)
def test_awkward_names_are_shown_as_they_are(name: str) -> None:
    made = picture(small(name, name))
    shown = name.replace("\x1b", "\ufffd")
    assert shown in texts(svg(made))
    assert "\x1b" not in mermaid(made) + dot(made)
    quoted = re.search(r"t1\[\"<b>(.*?)</b>", mermaid(made))
    assert quoted
    assert not set('"<>[]`') & set(quoted[1])
    for text in re.findall(r'label="((?:[^"\\]|\\.)*)"', dot(made)):
        assert re.fullmatch(r'(?:[^"\\]|\\["\\n])*', text)


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_graphviz_reads_it(name: str) -> None:
    done = subprocess.run(
        ["dot", "-Tplain"], input=dot(picture(small(name, name))), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pipe_has_its_steps_in_every_form() -> None:
    with Job("p") as job:
        with job.setup:
            Task("m:load", out="x")
        Pipe(from_={"c": "x"}, batch=2, do=[Task("m:add", in_="c", out="s")], name="sum")
        job.stop(epochs=1)
    assert check(job) == []
    made = picture(job)
    assert "do add: c → s" in texts(svg(made))
    assert "do add: c → s" in dot(made)
    assert "do add: c → s" in mermaid(made)
    assert "do add: c -> s" in tree(made, ASCII)


def chain(count: int) -> Job:
    with Job("chain") as job:
        for number in range(count):
            Task("m:f", in_=f"b{number - 1}" if number else None, out=f"b{number}")
        job.stop(epochs=1)
    job.epoch.named()
    return job


def test_thousands_of_tasks_are_drawn_without_recursion() -> None:
    made = picture(chain(3000))
    assert made.boxes[-1].rank == 2999
    assert len(tree(made).splitlines()) == 3002
    assert svg(made).count("<path") == 2 * 2999


def test_the_outputs_of_a_pipe_are_shown_once_with_its_steps() -> None:
    with Job("j") as job:
        with job.init:
            Task("m:start", out=["w", "rows"], name="start")
        Pipe(
            {"c": "rows"}, batch=1, do=[Task("m:score", "c", out="loss", name="score")], name="all"
        )
        Task("m:norm", "w", out="norm", name="norm")
    shown = texts(svg(picture(job)))
    assert [text for text in shown if "loss" in text] == ["do score: c → loss"]
    assert "→ norm" in shown


def test_svg_no_arrow_crosses_the_caption_of_a_group() -> None:
    """The captions stand beside the boxes, left of everything that arrows pass."""
    with Job("many") as job:
        with job.setup:
            Task(abs, "seed", name="read", out=["a", "b", "c", "d"])
        with job.init:
            Task(abs, "a", name="begin", out=["w", "v"])
        with job.epoch:
            Task(abs, ["b", "w"], name="left", out="w")
            Task(abs, ["c", "v"], name="right", out="v")
        with job.exit:
            Task(abs, ["d", "w", "v"], name="end", out="r")
        job.stop(epochs=1)
    job.vars["seed"] = 1
    group = next(ElementTree.fromstring(svg(picture(job))).iter(f"{SVG}g"))
    captions = [
        (float(e.get("x", "")), "".join(e.itertext()))
        for e in group.iter(f"{SVG}text")
        if e.get("class") in ("title", "soft") and float(e.get("x", "")) < 0
    ]
    assert {"setup", "init", "epoch", "exit", "again and again"} <= {text for _, text in captions}
    points = [
        float(x)
        for path in group.iter(f"{SVG}path")
        if "flow" in (path.get("class") or "")
        for x in re.findall(r"(-?[\d.]+) -?[\d.]+", path.get("d", ""))
    ]
    assert max(x + 6.65 * len(text) for x, text in captions) <= min(points)
