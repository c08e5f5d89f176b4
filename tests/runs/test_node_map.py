"""Checkpoints of nodes of other names, and what goes where."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from reference_job import TRAINERS, reference
from whole_runs import train, train_and_die

from jobrun import CheckpointPolicy, Job, Keep, Node, Task, load_blobs
from jobrun.checkpoint.record import Record
from jobrun.core.position import PipeState, Position, ReaderState
from jobrun.engine.best_metric import best_of
from jobrun.engine.resume_policy import Request
from jobrun.errors import DamagedError, UsageError
from jobrun.model.policy import Best
from jobrun.runs.node_map import NodeMap, NodeMaps, copied_nodes, parse_maps, resized
from jobrun.runs.rundir import RunDir
from jobrun.tools.prune import prune


def record(*nodes: str, position: Position | None = None) -> Record:
    return Record(
        id=3,
        time="",
        position=position or Position(3),
        run_seconds=1.0,
        metrics={f"{n}:loss": i for i, n in enumerate(nodes)} | {"plain": 7},
        stops=({"kind": "patience", "metric": "a:loss"},),
        decision=None,
        versions={},
        job="",
        digest="",
        manifests=dict.fromkeys(nodes, ""),
        root="",
        bytes=0,
        files=0,
        extra={"best": {"a:loss": [1, 2]}},
    )


def test_texts_of_the_command_line() -> None:
    assert parse_maps(["a=x", "b="]) == NodeMap((("a", "x"), ("b", "")))
    for text in ("a", "=x", ""):
        with pytest.raises(UsageError, match="expected OLD=NEW"):
            parse_maps([text])


@pytest.mark.parametrize(
    ("maps", "nodes", "parts"),
    [
        ([], "ab", {"a": "a", "b": "b"}),
        (["a=b", "b=a"], "ab", {"a": "b", "b": "a"}),
        (["a=x"], "xb", {"x": "a", "b": "b"}),
        (["a=x", "a=y", "b="], "xy", {"x": "a", "y": "a"}),
        (["a=a", "a=c"], "abc", {"a": "a", "b": "b", "c": "a"}),
    ],
)
def test_parts(maps: list[str], nodes: str, parts: dict[str, str]) -> None:
    assert parse_maps(maps).parts(record("a", "b"), tuple(nodes)) == parts


@pytest.mark.parametrize(
    ("maps", "nodes", "error", "text"),
    [
        ([], "abc", DamagedError, "is of the nodes a, b, but the job has a, b, c"),
        (["a=c"], "abc", DamagedError, "is of the nodes a, b"),
        (["z=c"], "abc", UsageError, "checkpoint_3 has no node 'z'"),
        (["a=z"], "ab", UsageError, "the job has no node 'z'"),
        (["a=b"], "ab", UsageError, "both 'a' and 'b' would go to 'b'"),
    ],
)
def test_what_cannot_be_names_the_nodes(
    maps: list[str], nodes: str, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        parse_maps(maps).parts(record("a", "b"), tuple(nodes))


@pytest.mark.parametrize(
    ("maps", "nodes", "needed"),
    [
        ([], "abc", "--map-node OLD=c"),
        (["a=c"], "abc", "--map-node a=a"),
        ([], "a", "--map-node b="),
        (["a=x"], "ax", "--map-node a=a --map-node b="),
    ],
)
def test_the_error_says_which_pairs_are_needed(maps: list[str], nodes: str, needed: str) -> None:
    with pytest.raises(DamagedError) as caught:
        parse_maps(maps).parts(record("a", "b"), tuple(nodes))
    assert caught.value.hint.partition(", with")[0] == f"to 'jobrun resume' add {needed}"
    assert ("--nodes 3 copies the first" in caught.value.hint) == ("OLD=" in needed)


def test_all_that_a_checkpoint_says_of_a_node_goes_along() -> None:
    position = Position(
        2,
        ("a:first", "b:first"),
        {"a:pipe": PipeState(3, {"a:loss": ("mean", 1.5, 3)})},
        {"b:pipe": ReaderState(1, 2)},
    )
    found = parse_maps(["a=b", "b=a"]).mapped(record("a", "b", position=position))
    assert found.position.tasks == ("b:first", "a:first")
    assert found.position.pipes == {"b:pipe": PipeState(3, {"b:loss": ("mean", 1.5, 3)})}
    assert found.position.readers == {"a:pipe": ReaderState(1, 2)}
    assert found.stops == ({"kind": "patience", "metric": "b:loss"},)
    assert found.extra == {"best": {"b:loss": [1, 2]}}
    ended = parse_maps(["a=b", "b=a"]).mapped(record("a", "b"))
    assert ended.metrics == {"b:loss": 0, "a:loss": 1, "plain": 7}


def test_the_maps_of_a_run_follow_each_other() -> None:
    """``record`` is checkpoint_3: of nodes a and b, then x and b, then x and y."""
    maps = NodeMaps().after(3, 4, parse_maps(["a=x"])).after(5, 6, parse_maps(["b=y"]))
    assert NodeMaps.from_json(json.loads(json.dumps(maps.to_json()))) == maps
    assert maps.parts(record("a", "b"), ("x", "y")) == {"x": "a", "y": "b"}
    assert set(maps.mapped(record("a", "b")).metrics) == {"x:loss", "y:loss", "plain"}
    between, last = replace(record("x", "b"), id=5), replace(record("x", "y"), id=6)
    assert maps.parts(between, ("x", "y")) == {"x": "x", "y": "b"}
    assert set(maps.mapped(between).metrics) == {"x:loss", "y:loss", "plain"}
    assert maps.mapped(last) == last
    with pytest.raises(UsageError, match="the job has no node 'y'"):
        maps.parts(record("a", "b"), ("a", "b"))


def test_a_map_belongs_to_the_history_in_which_it_was_made() -> None:
    swap = parse_maps(["a=b", "b=a"])
    maps = NodeMaps().after(3, 4, swap)
    assert maps.after(5, 6, NodeMap()) == maps
    assert maps.after(3, 7, swap) == NodeMaps(((7, swap),))  # not there and back again
    assert maps.after(3, 7, NodeMap()) == maps.after(None, 0, NodeMap()) == NodeMaps()
    assert maps.after(3, 7, NodeMap(), unsaved=True) == maps


@pytest.mark.parametrize("names", [("x", "y"), ("b", "a")], ids=["others", "swapped"])
def test_the_best_checkpoint_may_be_from_before_a_map(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    """It is kept, and read where its nodes are by now, also by a start that is told no map."""
    new, other = names

    def job(nodes: tuple[str, str], best: str, epochs: int) -> Job:
        keep = Keep(last=1, best=Best(f"{best}:loss"))
        policy = CheckpointPolicy(keep=keep)
        with Job("best", nodes=list(nodes), checkpoint=policy) as made:
            with made.init, Node("*"):
                Task(lambda node: f"made on {node}", "node", out="w", name="start")
            with Node("*"):
                Task(lambda epoch: abs(epoch - 2.0), "epoch", out="loss", name="loss")
            with made.exit, Node("*"):
                Task(lambda w: w, "best:w", out="result", name="read")
        made.metrics = {"loss": "min"}
        made.stop(epochs=epochs)
        return made

    train(job(("a", "b"), "a", 3), tmp_path)
    maps = parse_maps([f"a={new}", f"b={other}"])
    request = Request(nodes=maps, accept_changes=True)
    for epochs, asked in ((5, request), (6, Request())):
        ended = train(job(names, new, epochs), tmp_path, request=asked)
        assert ended.epochs == epochs
        assert [r.epoch for r in RunDir(tmp_path).records()] == [2, epochs]
        assert ended.blobs[f"{new}:result"] == "made on a"
        assert ended.blobs[f"{other}:result"] == "made on b"
    assert best_of(RunDir(tmp_path), f"{new}:loss") == tmp_path / "checkpoint_2"
    assert prune(RunDir(tmp_path), Keep(best=Best(f"{new}:loss"))).kept == (2, 6)


def test_a_run_goes_on_with_nodes_of_other_names(tmp_path: Path) -> None:
    train_and_die(reference(nodes=TRAINERS), tmp_path, after=2)
    maps = parse_maps(["trainer_0=x", "trainer_1=y", "trainer_2=z"])
    ended = train(
        reference(nodes="xyz"), tmp_path, request=Request(nodes=maps, accept_changes=True)
    )
    assert ended.epochs == 4
    assert [ended.blobs[f"{n}:total"].item() for n in "xyz"] == [145] * 3
    again = train(reference(nodes="xyz"), tmp_path)
    assert again.outcome.outcome == "nothing"


def test_nodes_that_change_places_save_what_they_hold(tmp_path: Path) -> None:
    """The versions of one node's blobs are not those of another's."""

    def job(epochs: int) -> Job:
        with Job("swap", nodes={"a": {"k": 1}, "b": {"k": 2}}) as made:
            with made.init, Node("*"):
                Task(lambda k: np.full(3, k), "k", out="w", name="start")
            with Node("*"):
                Task(lambda epoch: epoch, "epoch", out="n", name="count")
            made.stop(epochs=epochs)
        return made

    train(job(2), tmp_path)
    ended = train(job(4), tmp_path, request=Request(nodes=parse_maps(["a=b", "b=a"])))
    assert ended.epochs == 4
    for epoch, first in ((2, 1), (3, 2), (4, 2)):
        found = load_blobs(tmp_path, ["a:w", "b:w"], epoch=epoch)
        assert [int(found[n][0]) for n in ("a:w", "b:w")] == [first, 3 - first]


def test_another_number_of_nodes() -> None:
    assert resized("ab", "abcd") == NodeMap((("a", "a"), ("a", "c"), ("a", "d")))
    assert resized("abc", "ab") == NodeMap((("c", ""),))
    assert resized("ab", "ab") == NodeMap()
    assert resized("ab", "abcd").lines == ("new: c, d, with a copy of the part of a",)
    assert resized("abc", "a").lines == ("dropped: b, c",)


def test_which_nodes_get_a_copy() -> None:
    assert copied_nodes({"a": "a", "b": "b"}) == frozenset()
    assert copied_nodes({"x": "a", "y": "a", "a": "a"}) == {"x", "y"}
    assert copied_nodes({"x": "a", "y": "a", "b": "b"}) == {"y"}
