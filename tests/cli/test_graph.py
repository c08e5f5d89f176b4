"""``jobrun graph``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

TREE = """\
sum
├─ init, once
│  └─ 1 start  → total●
└─ epoch, again and again
   ├─ 1 add  total● → total●
   └─ 2 loss_of  total● → loss
● persists: it is in the checkpoints
"""


def test_a_tree_of_text(write: Callable[..., None], call: Callable[..., Any]) -> None:
    write()
    done = call("graph", "sum.yaml")
    assert (done.code, done.err) == (0, "")
    assert done.out == TREE.replace("1 add  total● → total●", "1 add  updates total●")


def test_ascii_where_the_terminal_knows_no_more(
    write: Callable[..., None], jobrun: Callable[..., Any]
) -> None:
    write()
    done = jobrun("graph", "sum.yaml", PYTHONIOENCODING="ascii")
    assert done.code == 0
    assert done.out.isascii()
    assert "|  `- 1 start  -> total*" in done.out


def test_files_by_their_ending(
    write: Callable[..., None], call: Callable[..., Any], folder: Path
) -> None:
    write()
    for name, begins in (("a.svg", "<svg "), ("a.mmd", "flowchart"), ("a.dot", "digraph")):
        done = call("graph", "sum.yaml", "-o", name)
        assert (done.code, done.out, done.err) == (0, "", f"{name} written\n")
        assert (folder / name).read_text().startswith(begins)
    ElementTree.parse(folder / "a.svg")
    assert call("graph", "sum.yaml", "--format", "svg").out == (folder / "a.svg").read_text()


def test_the_states_of_a_run(write: Callable[..., None], call: Callable[..., Any]) -> None:
    write(("return total + step", "return total + step / (total < 104)"))
    assert call("train", "sum.yaml").code == 1
    done = call("graph", "--run", "sum")
    assert done.code == 0
    lines = done.out.splitlines()
    assert "(done" in lines[2]
    assert "(FAILED" in lines[4]
    assert "(interrupted" in lines[5]
    assert "2 times" in lines[3]


def test_json(write: Callable[..., None], call: Callable[..., Any]) -> None:
    write()
    drawn = json.loads(call("graph", "sum.yaml", "--json").out)
    assert [box["name"] for box in drawn["boxes"]] == ["start", "add", "loss_of"]
    assert drawn["arrows"][0]["blobs"] == ["total"]


def test_errors(write: Callable[..., None], call: Callable[..., Any]) -> None:
    write(("out: loss}", "out: los}"))
    assert call("graph", "sum.yaml").code == 3
    assert call("graph").code == 2
    assert call("graph", "--run", "nothing").code == 5
