"""Which blobs are meant, and what is shown of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jobrun.checkpoint.manager import CheckpointManager
from jobrun.errors import NotFoundError, UsageError
from jobrun.report.formatting import json_values
from jobrun.tools.inspect import describe, pick, read

W1 = np.arange(20.0).reshape(5, 4)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of one node."""
    blobs: dict[str, Any] = {
        "model": {"w1": W1, "b1": np.zeros(4, np.float32), "deep": {"x": np.int8(3)}},
        "modelled": 1,
        "file": np.array([1, 2]),
        "name": "é [bold]",
        "nothing": None,
        "half": np.array([1, 2.5, 3], ml_dtypes.bfloat16),
    }
    root = tmp_path_factory.mktemp("one")
    CheckpointManager(root).save(3, {"main": blobs})
    return root / "checkpoint_0"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of three nodes."""
    root = tmp_path_factory.mktemp("three")
    nodes = {f"trainer_{i}": {"total": np.array([i])} for i in range(3)}
    CheckpointManager(root).save(0, nodes)
    return root / "checkpoint_0"


ALL = ["model/w1", "model/b1", "model/deep/x", "modelled", "file", "name", "nothing", "half"]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ([], ALL),
        (["model"], ALL[:3]),
        (["model/"], ALL[:3]),
        (["model/deep"], ["model/deep/x"]),
        (["model/w1"], ["model/w1"]),
        (["file", "model/w1"], ["file", "model/w1"]),
        (["model/?1"], ["model/w1", "model/b1"]),
        (["*/w1", "model"], ["model/w1", "model/b1", "model/deep/x"]),
        (["*deep"], ["model/deep/x"]),
        (["model/[wb]1"], ["model/w1", "model/b1"]),
        (["model/w[12]"], ["model/w1"]),
        (["model/w1[0:2]"], ["model/w1[0:2]"]),
        (["model/?1[ 0 ]"], ["model/w1[0]", "model/b1[0]"]),
    ],
)
def test_names(one: Path, names: list[str], found: list[str]) -> None:
    record, picked = pick(one, names)
    assert record.epoch == 3
    assert [leaf.name for leaf in picked] == found


def test_several_nodes_have_their_names_in_front(three: Path) -> None:
    _, picked = pick(three, ["trainer_*:total"])
    assert [leaf.name for leaf in picked] == [f"trainer_{i}:total" for i in range(3)]
    values = read(three, pick(three, ["trainer_2:total", "trainer_0:total"])[1])
    assert [int(box.value[0]) for box in values.values()] == [2, 0]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("model/w2", "did you mean 'model/w1'"),
        ("zzzz*", "there are model/w1, model/b1"),
        ("zzz[0]", "there are model/w1"),
    ],
)
def test_a_name_that_means_nothing(one: Path, name: str, hint: str) -> None:
    with pytest.raises(NotFoundError, match="no blob") as caught:
        pick(one, [name])
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ("0", W1[0]),
        ("-1", W1[-1]),
        ("1:3", W1[1:3]),
        ("::2, 1", W1[::2, 1]),
        (":,0:2", W1[:, 0:2]),
        ("4:0:-2", W1[4:0:-2]),
    ],
)
def test_slices(one: Path, index: str, expected: np.ndarray[Any, Any]) -> None:
    _, picked = pick(one, [f"model/w1[{index}]"])
    (box,) = read(one, picked).values()
    np.testing.assert_array_equal(box.value, expected)


@pytest.mark.parametrize("index", ["1:2:3:4", "::0", "1-2", ",", "1,,2", ":::"])
def test_what_is_no_index(one: Path, index: str) -> None:
    with pytest.raises(UsageError, match="no index"):
        pick(one, [f"model/w1[{index}]"])


def test_only_the_files_that_are_needed_are_read(one: Path, tmp_path: Path) -> None:
    copy = tmp_path / "checkpoint_0"
    import shutil

    shutil.copytree(one, copy)
    for file in (copy / "main/model/w1").iterdir():
        file.write_bytes(b"damaged")
    _, picked = pick(copy, ["model/b1"])
    assert read(copy, picked)["model/b1"].value.shape == (4,)


def test_descriptions(one: Path) -> None:
    boxes = read(one, pick(one)[1])
    facts = {name: describe(box) for name, box in boxes.items()}
    assert facts["model/w1"] == {
        "kind": "array",
        "dtype": "float64",
        "shape": [5, 4],
        "bytes": 160,
        "min": 0.0,
        "mean": 9.5,
        "max": 19.0,
    }
    assert facts["model/b1"]["value"] == [0.0] * 4
    assert facts["model/deep/x"] == {
        "kind": "scalar",
        "dtype": "int8",
        "shape": [],
        "bytes": 1,
        "value": 3,
    }
    assert facts["modelled"] == {"kind": "int", "value": 1}
    assert facts["name"] == {"kind": "str", "value": "é [bold]"}
    assert facts["nothing"] == {"kind": "none", "value": None}
    assert facts["half"]["value"] == [1.0, 2.5, 3.0]
    assert facts["half"]["dtype"] == "bfloat16"
    assert describe(boxes["model/w1"], values=True)["value"] == W1.tolist()


STATISTICS = [
    (np.arange(10), {"min": 0, "mean": 4.5, "max": 9}),
    (np.array([1, 2, 3, np.nan, np.inf]), {"min": 1.0, "mean": 2.0, "max": 3.0, "not_finite": 2}),
    (np.full(5, np.nan), {"not_finite": 5}),
    (np.zeros((0, 3)), {"value": []}),
    (np.array([True, False] * 3), {"min": False, "mean": 0.5, "max": True}),
    (np.ones(5, complex), {}),
    (np.array(["a"] * 5), {}),
    (np.array(["2020-01-02"] * 4 + ["NaT"], "M8[D]"), {"min": "2020-01-02", "max": "2020-01-02"}),
    (np.full(5, "NaT", "M8[s]"), {}),
    (np.zeros(5, [("a", "i4")]), {}),
    (np.arange(5).astype(ml_dtypes.bfloat16), {"min": 0.0, "mean": 2.0, "max": 4.0}),
    (np.array([b"a", b"\xff"]), {"value": ["b'a'", "b'\\xff'"]}),
    (np.array([1 + 2j]), {"value": ["(1+2j)"]}),
    (np.array("2020-01-02", "M8[D]"), {"value": "2020-01-02"}),
    (np.full(5, 6e4, np.float16), {"min": 59996.8, "mean": 59996.8, "max": 59996.8}),
]


@pytest.mark.parametrize(("array", "expected"), STATISTICS)
def test_statistics_of_every_dtype(array: np.ndarray[Any, Any], expected: dict[str, Any]) -> None:
    from jobrun.values.boxes import Box

    facts = describe(Box(array, "array"))
    json.dumps(json_values(facts), allow_nan=False)
    for key in ("kind", "dtype", "shape", "bytes"):
        del facts[key]
    assert facts == pytest.approx(expected, rel=1e-3) if "mean" in expected else facts == expected
