"""States of iterators as JSON values."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from jobrun.data.iterator_state import state_from_json, state_to_json
from jobrun.errors import JobrunError, ValueRefusedError
from jobrun.values.adapted import same_plain

STATES: dict[str, Any] = {
    "plain": {"a": 1, "b": [0.5, None, True, "x"], "c": {}},
    "keys": {1: "a", None: "b", (1, "x"): "c"},
    "ours": {"__jobrun__": "array", "a": 1},
    "array": {"x": np.arange(6, dtype=">i2").reshape(2, 3), "empty": np.zeros((0, 2))},
    "scalar": np.float32(0.1),
    "zero": np.array(3),
    "bytes": b"\x00\xff",
    "tuple": (1, (2, [3])),
    "large": 1 << 100,
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_comes_back(name: str) -> None:
    back = state_from_json(json.loads(json.dumps(state_to_json(STATES[name]))))
    assert same_plain(back, STATES[name])


def test_generators_come_back() -> None:
    rng = np.random.default_rng(3)
    rng.random(5)
    back = state_from_json(json.loads(json.dumps(state_to_json({"rng": rng}))))
    assert back["rng"].random() == rng.random()


def test_arrays_that_come_back_are_writable() -> None:
    back = state_from_json(state_to_json(np.zeros(3)))
    back[0] = 1


def test_what_cannot_be_kept_is_named() -> None:
    with pytest.raises(ValueRefusedError, match=r"its state\['a'\]\[1\] is an object, which"):
        state_to_json({"a": [1, object()]})


@pytest.mark.parametrize(
    "value",
    [
        {"__jobrun__": "array"},
        {"__jobrun__": "array", "dtype": "O", "shape": [1], "data": ""},
        {"__jobrun__": "array", "dtype": "f8", "shape": [9], "data": "AAAA"},
        {"__jobrun__": "array", "dtype": "f8", "shape": [0], "data": "é"},
        {"__jobrun__": "dict", "items": [1]},
        {"__jobrun__": "dict", "items": [[{}, 1]]},
        {"__jobrun__": "object", "note": {}, "plain": 1},
        {"__jobrun__": "object", "note": {"name": "os.system"}, "plain": "ls"},
        {"__jobrun__": 3},
    ],
)
def test_hostile_values_are_errors_of_jobrun(value: Any) -> None:
    with pytest.raises(JobrunError):
        state_from_json(value)
