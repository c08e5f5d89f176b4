"""A node's blobs by name."""

from __future__ import annotations

import threading
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.errors import TaskError
from jobrun.values.adoption import adopt
from jobrun.values.boxes import Tree, Value
from jobrun.values.views import view
from jobrun.values.workspace import Workspace


def filled(**blobs: Any) -> Workspace:
    workspace = Workspace()
    for name, obj in blobs.items():
        workspace.put(name, adopt([obj]))
    return workspace


def put(workspace: Workspace, path: str, obj: Any) -> None:
    workspace.put(path, adopt([obj]))


def keys(workspace: Workspace, path: str) -> list[str]:
    value = workspace.get(path)
    assert isinstance(value, Tree)
    return list(value.items)


def test_values_are_found_by_path() -> None:
    workspace = filled(m={"a": {"b": 1}, "l": [5, 6]}, x=2)
    assert workspace.read("m/a/b") == 1
    assert workspace.read("m/l/1") == 6
    assert workspace.read("m/l") == [5, 6]
    assert workspace.find("x") is not None
    for missing in ("y", "m/b", "m/a/b/c", "x/y", "m/l/2"):
        assert workspace.find(missing) is None


def test_what_is_missing_is_an_error_with_the_nearest_names() -> None:
    workspace = filled(model={"weight": 1})
    with pytest.raises(TaskError, match="'model/wieght' has no value") as caught:
        workspace.get("model/wieght")
    assert "model/weight" in caught.value.hint
    with pytest.raises(TaskError):
        workspace.borrow("modle")


def test_names_are_in_the_order_of_the_spec_whatever_came_first() -> None:
    ranks = {"a": 0, "m": 1, "m/x": 2, "m/y": 3, "z": 4}
    workspace = Workspace(ranks)
    for path in ("z", "m/y", "a", "m/x"):
        put(workspace, path, 1)
    assert list(workspace.names()) == ["a", "m", "m/x", "m/y", "z"]


def test_a_written_leaf_makes_a_new_tree() -> None:
    workspace = filled(m={"a": 1, "b": 2})
    before = workspace.get("m")
    put(workspace, "m/a", 9)
    assert view(before) == {"a": 1, "b": 2}
    assert workspace.read("m") == {"a": 9, "b": 2}


def test_a_list_keeps_its_length_and_kind() -> None:
    workspace = filled(m=[1, 2])
    put(workspace, "m/1", 9)
    assert workspace.read("m") == [1, 9]
    with pytest.raises(TaskError, match="no element '2'"):
        put(workspace, "m/2", 3)


def test_there_is_no_blob_under_a_blob() -> None:
    workspace = filled(a=np.zeros(2), t={"x": 1})
    for path in ("a/b", "t/x/y"):
        with pytest.raises(TaskError, match="not a tree"):
            put(workspace, path, 1)
    assert workspace.read("t") == {"x": 1}


def test_an_update_of_a_leaf_is_in_place() -> None:
    workspace = Workspace()
    cell: list[Any] = [{"w": np.zeros(1000), "b": np.zeros(3)}]
    place = cell[0]["w"].__array_interface__["data"][0]
    workspace.put("m", adopt(cell))
    for _ in range(3):
        taken = [workspace.borrow("m/w")]
        taken[0] += 1
        workspace.put("m/w", adopt(taken))
    read = workspace.read("m/w")
    assert read.__array_interface__["data"][0] == place
    assert read[0] == 3


@pytest.mark.parametrize("held", ["m", "m/t", "m/t/w"])
def test_a_snapshot_keeps_what_is_updated_below_it(held: str) -> None:
    workspace = filled(m={"t": {"w": np.zeros(10)}})
    snapshot = workspace.snapshot([held, "missing"])
    assert list(snapshot) == [held]
    taken = [workspace.borrow("m/t/w")]
    taken[0] += 1
    workspace.put("m/t/w", adopt(taken))
    kept = view(snapshot[held])
    while isinstance(kept, dict):
        kept = next(iter(kept.values()))
    assert not kept.any()
    assert workspace.read("m/t/w").all()


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=4),
    st.sets(st.sampled_from("abcdefgh"), min_size=1, max_size=4),
    st.permutations("abcdefgh"),
    st.sets(st.sampled_from("abcdefgh")),
)
def test_key_order_does_not_depend_on_the_order_of_writes(
    existing: list[str], written: set[str], spec_order: list[str], ranked: set[str]
) -> None:
    """Tasks that write leaves of one tree run in parallel; a leaf of no task has no rank."""
    ranks = {f"m/{k}": i for i, k in enumerate(spec_order) if k in ranked | written}
    results = set()
    for order in permutations(sorted(written)):
        workspace = Workspace(ranks)
        put(workspace, "m", dict.fromkeys(existing, 0))
        for key in order:
            put(workspace, f"m/{key}", 1)
        results.add(tuple(keys(workspace, "m")))
    assert len(results) == 1
    final = next(iter(results))
    assert [k for k in final if k in existing] == existing, "what was there stays in order"
    fresh = [k for k in final if k not in existing]
    assert fresh == [k for k in spec_order if k in fresh]


def test_a_new_key_comes_last() -> None:
    workspace = Workspace({"m/a": 0, "m/new": 1})
    put(workspace, "m", {"b": 1, "a": 2})
    put(workspace, "m/a", 3)
    put(workspace, "m/new", 4)
    assert workspace.read("m") == {"b": 1, "a": 3, "new": 4}
    assert keys(workspace, "m") == ["b", "a", "new"]


def test_leaves_written_by_many_threads_are_all_there_in_order() -> None:
    names = [f"k{i}" for i in range(64)]
    workspace = Workspace({f"m/{n}": i for i, n in enumerate(names)})
    barrier = threading.Barrier(8)

    def write(part: list[str]) -> None:
        barrier.wait()
        for name in part:
            put(workspace, f"m/{name}", name)

    threads = [threading.Thread(target=write, args=(names[i::8],)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert workspace.read("m") == {n: n for n in names}
    assert keys(workspace, "m") == names


@pytest.mark.parametrize(
    ("path", "twin"),
    [
        ("m/X", "m/x"),
        ("m/x", None),
        ("m/y/P", "m/y/p"),
        ("m/Y/p", "m/y"),
        ("m/z/x", None),
        ("m/x/deep", None),
        ("M", "m"),
        ("new", None),
    ],
)
def test_a_name_that_differs_in_case_only(path: str, twin: str | None) -> None:
    assert filled(m={"x": 1, "y": {"p": 2}}).case_twin(path) == twin


def test_scratch_is_dropped() -> None:
    workspace = filled(a=1, m={"x": 1, "y": {"p": 2, "q": 3}}, s={"t": 1}, b=2)
    kept = workspace.get("a")
    workspace.drop(["m/y/q", "m/x", "a", "nothing", "s/other"])
    assert list(workspace.names()) == ["a", "m", "m/x", "m/y", "m/y/q"]
    assert workspace.get("a") is kept


def test_what_is_left_of_a_list_is_a_dict() -> None:
    """As when its leaves are saved and loaded one by one."""
    workspace = filled(m=[1, 2])
    workspace.drop(["m/1"])
    loaded = Workspace()
    loaded.put("m/1", workspace.get("m/1"))
    assert workspace.read("m") == loaded.read("m") == {"1": 2}


def test_a_tree_that_is_kept_whole_is_the_same_value() -> None:
    workspace = filled(m=[1, {"a": 2}])
    value: Value = workspace.get("m")
    workspace.drop(["m"])
    assert workspace.get("m") is value


def test_a_tied_leaf_is_not_updated_alone() -> None:
    w = np.zeros(3)
    space = Workspace()
    space.put("s", adopt([{"a": w, "b": {"x": w, "y": w}, "c": np.zeros(3)}]))
    for path, other in (("s/a", "s/b/x"), ("s/b/x", "s/a"), ("s/b", "s/a")):
        with pytest.raises(TaskError) as caught:
            space.borrow(path)
        assert f"is one array with {other!r}" in caught.value.message
        assert "'s' under 'update'" in caught.value.hint
    assert space.borrow("s/c").tolist() == [0, 0, 0]
    space.put("s/a", adopt([np.ones(3)]))
    taken = space.borrow("s/b")
    assert taken["x"] is taken["y"]
