"""Plain values to stored ones and back, and the state of live objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jobrun.errors import ValueRefusedError
from jobrun.values import plain
from jobrun.values.adapters.base import Note, Plain
from jobrun.values.borrowing import reclaim
from jobrun.values.boxes import Tree, Value, leaves
from jobrun.values.buffers import BUFFERS
from jobrun.values.plain import put_back, read_state, to_plain
from jobrun.values.storable import is_storable


class Net:
    """A live object: two layers that share a weight, and a number of steps."""

    def __init__(self) -> None:
        self.a = np.zeros((300, 300))
        self.b = self.a
        self.steps = 0


class NetAdapter:
    name = "test.Net"
    version = 3

    def state(self, obj: Net) -> Plain:
        return {"weights": [obj.a, obj.b], 0: obj.steps, "doubled": obj.a * 2}

    def restore(self, obj: Net, state: Plain) -> Net:
        obj.a = obj.b = state["weights"][0]
        assert state["weights"][1] is obj.a
        obj.steps = state[0]
        return obj

    def copy(self, obj: Net) -> Net:
        raise NotImplementedError


class Given:
    """An adapter whose objects are their own states."""

    name = "test"
    version = 1

    def state(self, obj: Any) -> Plain:
        return obj

    def restore(self, obj: Any, state: Plain) -> Any:
        return state

    def copy(self, obj: Any) -> Any:
        raise NotImplementedError


def test_state_is_copied_once_and_put_back() -> None:
    net, adapter = Net(), NetAdapter()
    net.a += 1
    items: dict[str, Value] = {"net": read_state(adapter, net)}
    value = items["net"]
    assert isinstance(value, Tree)
    assert value.note == Note("test.Net", 3, {"live": True})
    assert value.keys == ("weights", 0, "doubled")
    assert is_storable(value)
    net.a += 1  # the live object goes on
    net.steps = 7
    stored = {path: box.value for path, box in leaves(value) if box.kind == "array"}
    assert stored["weights/0"] is stored["weights/1"]
    assert stored["weights/0"].max() == 1
    assert stored["doubled"].max() == 2
    assert not np.shares_memory(stored["weights/0"], net.a)
    address = stored["weights/0"].__array_interface__["data"][0]
    del stored, value
    again = put_back(adapter, net, items, "net")
    assert again is net
    assert (net.a.max(), net.steps) == (1, 0)
    assert net.a.flags.writeable
    assert net.a.__array_interface__["data"][0] == address  # handed over, not copied


def test_state_of_another_adapter_is_refused() -> None:
    class Other(NetAdapter):
        name = "test.Other"

    class Older(NetAdapter):
        version = 2

    items: dict[str, Value] = {"net": read_state(NetAdapter(), Net())}
    with pytest.raises(ValueRefusedError, match=r"read by the adapter 'test\.Net'"):
        put_back(Other(), Net(), items, "net")
    with pytest.raises(ValueRefusedError, match="version 3"):
        put_back(Older(), Net(), items, "net")


def test_a_second_copy_uses_the_memory_of_the_first() -> None:
    BUFFERS.release()
    net, adapter = Net(), NetAdapter()
    items: dict[str, Value] = {"net": read_state(adapter, net)}
    reclaim(items, "net")
    del items
    assert BUFFERS.free >= net.a.nbytes
    read_state(adapter, net)
    assert BUFFERS.free == 0
    BUFFERS.release()


def test_plain_values_of_any_key_come_back() -> None:
    plain_value: Any = {"W": np.ones(2), "w": [1, (2, 1j)], ("a", 1): b"x", None: {"": 1 << 70}}
    value = read_state(Given(), plain_value)
    found = to_plain(value)
    assert [*found] == [*plain_value]
    assert found["w"] == [1, (2, 1j)]
    assert found[None] == {"": 1 << 70}
    assert found["a", 1] == b"x"
    assert not found["W"].flags.writeable
    mine = to_plain(value, writable=True)
    mine["W"][0] = 5
    assert to_plain(value)["W"].tolist() == [1, 1]
    assert value.note is not None
    assert value.note.name == "test"


@pytest.mark.parametrize("writable", [False, True])
def test_a_value_that_others_read_is_not_changed_meanwhile(
    writable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tasks may copy the objects of the best checkpoint at once."""
    value: Value = read_state(Given(), {"w": np.ones(2)})
    note, notes = value.note, []

    def watched(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            notes.append(value.note)
            return function(*args, **kwargs)

        return call

    for name in ("borrow", "lend"):
        monkeypatch.setattr(plain, name, watched(getattr(plain, name)))
    assert to_plain(value, writable=writable)["w"].tolist() == [1, 1]
    assert notes == [note]
    assert note is not None


def test_a_state_that_is_no_plain_value() -> None:
    with pytest.raises(ValueRefusedError, match=r"returned a python\.tuple"):
        read_state(Given(), (1, 2))
    assert not is_storable(read_state(Given(), {"a": {"b": object()}}))
