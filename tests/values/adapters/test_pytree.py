"""The adapters by structure of live objects: ``state_dict``, and trees of arrays."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.pytree import PYTREE, is_pytree, live_adapter_of
from jobrun.values.adapters.state_dict import STATE_DICT
from jobrun.values.boxes import Value
from jobrun.values.plain import put_back, read_state


class Net:
    """A live object."""

    def __init__(self) -> None:
        self.w = np.zeros(2)

    def state_dict(self) -> dict[str, Any]:
        return {"w": self.w}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.w = state["w"]


class Layer(NamedTuple):
    """A container of a tree."""

    w: Any
    b: Any = None


@dataclass(frozen=True)
class Train:
    """A container with a function, as train states have one."""

    params: Any
    step: int
    apply: Any = None


def tree() -> Any:
    return {
        "dict": {1: np.arange(3.0), "B": np.float32(2), "b": 1.5},
        "list": [np.zeros((2, 2), np.int8), True, None, "text"],
        "tuple": (1, (), []),
        "named": Layer(np.ones(2)),
        "ordered": OrderedDict(x=np.zeros(0)),
        "train": Train({"w": np.ones(3, ">f4")}, 4, tree),
        "net": Net(),
    }


def restored(template: Any, obj: Any) -> Any:
    """``obj`` after the way through a stored state, put into a template."""
    items: dict[str, Value] = {"t": read_state(PYTREE, obj)}
    return put_back(PYTREE, template, items, "t")


def test_a_tree_comes_back_with_its_containers_and_every_bit() -> None:
    old = tree()
    old["dict"][1][:] = [1, np.nan, -0.0]
    old["net"].w = np.array([3.0, 4.0])
    old["train"] = Train({"w": np.full(3, 7, ">f4")}, 9, len)
    new = tree()
    net = new["net"]
    made = restored(new, old)
    assert made["dict"][1].tobytes() == old["dict"][1].tobytes()
    assert type(made["named"]) is Layer
    assert type(made["ordered"]) is OrderedDict
    assert type(made["tuple"]) is tuple
    assert made["tuple"] == (1, (), [])
    assert (made["train"].step, made["train"].apply) == (9, tree)
    assert made["train"].params["w"].dtype == ">f4"
    assert made["net"] is net
    assert net.w.tolist() == [3.0, 4.0]
    assert made["dict"]["B"].dtype == np.float32


def test_the_order_of_keys_is_that_of_the_state() -> None:
    """Steps of JAX sort them, and the next checkpoint is to have the same bytes."""
    assert [*restored({"w": 1, "b": len, "a": 2}, {"a": 3, "w": 4})] == ["a", "w", "b"]


def test_a_single_array_is_a_tree() -> None:
    assert restored(np.zeros(2), np.ones(2)).tolist() == [1, 1]


def test_an_array_comes_back_in_the_layout_of_its_template() -> None:
    made = restored([np.zeros((2, 3), order="F")], [np.ones((2, 3), order="F")])
    assert made[0].flags.f_contiguous


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda t: t["dict"].update({1: np.arange(4.0)}), "['dict'][1], expected float64[3]"),
        (lambda t: t["dict"].update({1: np.arange(3)}), "['dict'][1], expected float64[3]"),
        (lambda t: t["dict"].pop("b"), "['dict']['b'], expected float, got nothing"),
        (lambda t: t["dict"].update(c=1), "['dict']['c'], expected nothing, got int"),
        (lambda t: t.update(named=Layer(None)), "['named'].w, expected float64[2], got NoneType"),
        (lambda t: t["list"].append(1), "['list'][4], expected nothing, got int"),
        (
            lambda t: t.update(train=Train({}, 4, tree)),
            "['train'].params['w'], expected >f4[3], got",
        ),
        (lambda t: t.update(list=3), "['list'], expected list, got int"),
    ],
)
def test_another_structure_is_refused_by_its_place(change: Any, place: str) -> None:
    other = tree()
    change(other)
    with pytest.raises(ValueRefusedError) as restoring:
        restored(tree(), other)
    assert place.split(",")[0] in str(restoring.value)
    with pytest.raises(ValueRefusedError) as checking:
        PYTREE.check(other, PYTREE.structure(tree()))
    assert "structure is not that of the tree that 'setup' made" in str(checking.value)


def test_another_layout_is_refused_at_the_save() -> None:
    structure = PYTREE.structure([np.zeros((2, 3))])
    PYTREE.check([np.ones((2, 3))], structure)
    with pytest.raises(ValueRefusedError, match="in F order"):
        PYTREE.check([np.ones((2, 3), order="F")], structure)


def test_a_copy_shares_nothing() -> None:
    old = tree()
    made = PYTREE.copy(old)
    made["dict"][1][0] = 9
    assert old["dict"][1][0] == 0


def test_what_is_a_live_object_and_what_is_a_tree() -> None:
    assert live_adapter_of(Net()) is STATE_DICT
    assert live_adapter_of(Net) is None
    assert live_adapter_of({}) is None
    assert is_pytree({"w": 1})
    assert not is_pytree(object())


@dataclass
class Agent:
    """A container that can change, with parts that stand elsewhere too."""

    table: Any
    options: Any


def shared_tree(start: float) -> Any:
    """A tree in which each part stands at two places."""
    table, options, net = np.full(2, start), {"lr": start}, Net()
    rng = np.random.default_rng(int(start))
    agent = Agent(table, options)
    return {
        "options": options,
        "agents": [agent, agent],
        "net": net,
        "all": (net, [table], rng),
        "rng": rng,
    }


def check_shared(made: Any) -> None:
    assert made["agents"][0] is made["agents"][1]
    assert made["agents"][0].options is made["options"]
    assert made["agents"][0].table is made["all"][1][0]
    assert made["net"] is made["all"][0]
    assert made["rng"] is made["all"][2]


def test_what_stood_at_two_places_is_one_object_again() -> None:
    old = shared_tree(5.0)
    made = restored(shared_tree(1.0), old)
    check_shared(made)
    assert (made["options"], made["all"][1][0].tolist()) == ({"lr": 5.0}, [5, 5])
    assert made["rng"].random() == old["rng"].random()


def test_what_stood_apart_stays_apart_where_setup_has_one() -> None:
    """The best parameters and the present ones are one object at the start."""
    start = {"w": np.zeros(2)}
    template = {"now": start, "best": start}
    made = restored(template, {"now": {"w": np.ones(2)}, "best": {"w": np.full(2, 2.0)}})
    assert made["now"] is not made["best"]
    assert (made["now"]["w"].tolist(), made["best"]["w"].tolist()) == ([1, 1], [2, 2])


def test_what_can_change_is_filled_in_place() -> None:
    """Other objects of setup may hold it."""
    template = shared_tree(1.0)
    table, options, agents = template["all"][1][0], template["options"], template["agents"]
    made = restored(template, shared_tree(5.0))
    assert made is template
    assert made["agents"] is agents
    assert agents[0].table is table
    assert (table.tolist(), options, made["rng"]) == ([5, 5], {"lr": 5.0}, template["rng"])


def test_a_read_only_array_is_replaced() -> None:
    fixed = np.zeros(2)
    fixed.setflags(write=False)
    assert restored([fixed], [np.ones(2)])[0].tolist() == [1, 1]
    assert fixed.tolist() == [0, 0]
