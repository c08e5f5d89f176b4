"""Files of weights, as new dicts and in live objects."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from engine import Driver
from safetensors.numpy import save_file

from jobrun.core.events import Warned
from jobrun.core.template import Template
from jobrun.errors import BindError, SpecError, TaskError
from jobrun.model.job import Job, Task
from jobrun.model.options import Load

W = np.arange(6, dtype=np.float32).reshape(2, 3)
FULL = {"0.w": W, "head/b": np.array([1.5, 2])}
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


class Net:
    """Two arrays, and a number that is no array."""

    def __init__(self) -> None:
        self.w, self.b, self.steps = np.zeros((2, 3), np.float32), np.zeros(2), 7

    def state_dict(self) -> dict[str, Any]:
        return {"0.w": self.w, "head": {"b": self.b}, "steps": self.steps}

    def load_state_dict(self, state: Any) -> None:
        self.w[...], self.b[...] = state["0.w"], state["head"]["b"]
        self.steps = state["steps"]


def look(net: Net) -> dict[str, Any]:
    return {"w": net.w.copy(), "b": net.b.copy(), "steps": net.steps}


def write_torch(path: Path, arrays: dict[str, Any]) -> None:
    import torch

    torch.save({k: torch.from_numpy(np.array(v)) for k, v in arrays.items()}, path)


WRITERS: dict[str, Callable[[Path, dict[str, Any]], None]] = {
    "x.npz": lambda path, arrays: np.savez(path, **arrays),
    "x.safetensors": lambda path, arrays: save_file(arrays, path),
    "x.pt": write_torch,
}
each_form = pytest.mark.parametrize(
    "file", [pytest.param(n, marks=needs_torch if n == "x.pt" else ()) for n in WRITERS]
)


def write(folder: Path, arrays: dict[str, Any], file: str = "x.npz", above: str = "model/") -> None:
    WRITERS[file](folder / file, {f"{above}{k}": v for k, v in arrays.items()})


def loading(folder: Path, out: dict[str, str], file: str = "x.npz", strict: bool = True) -> Driver:
    """Run setup and init of a job that loads a file."""
    job = Job("j", state=["net"])
    with job.setup:
        Task(Net, out="net")
    with job.init:
        Task(Load(file=file, strict=strict), out=out, name="load")
        Task(look, "net", out="seen")
    driver = Driver(job, spec_dir=folder)
    driver.start()
    return driver


@each_form
def test_an_object_under_state_gets_the_weights(file: str, tmp_path: Path) -> None:
    write(tmp_path, FULL, file)
    seen = loading(tmp_path, {"model/*": "net"}, file).blob("seen")
    np.testing.assert_array_equal(seen["w"], W)
    assert seen["b"].tolist() == [1.5, 2]
    assert seen["steps"] == 7  # no array: the file need not have it


@each_form
def test_a_blob_is_made_of_the_file(file: str, tmp_path: Path) -> None:
    write(tmp_path, {**FULL, "half": np.array([1, 2.5], ml_dtypes.bfloat16)}, file) if (
        file == "x.safetensors"
    ) else write(tmp_path, FULL, file)
    driver = loading(tmp_path, {"model/*": "tree", "model/0.w": "one"}, file)
    tree = driver.blob("tree")
    assert tree["head"]["b"].tolist() == [1.5, 2]
    np.testing.assert_array_equal(tree["0.w"], W)
    np.testing.assert_array_equal(driver.blob("one"), W)
    if file == "x.safetensors":
        assert tree["half"].dtype == ml_dtypes.bfloat16


def test_names_may_be_joined_by_dots(tmp_path: Path) -> None:
    write(tmp_path, {"0.w": W, "head.b": np.ones(2)}, above="model.")
    assert loading(tmp_path, {"model.*": "net"}).blob("seen")["b"].tolist() == [1, 1]


def test_numbers_take_the_dtype_of_the_object(tmp_path: Path) -> None:
    write(tmp_path, {"0.w": W.astype(np.float64), "head/b": np.array([1, 2], np.float16)})
    seen = loading(tmp_path, {"model/*": "net"}).blob("seen")
    assert (seen["w"].dtype, seen["b"].dtype) == (np.float32, np.float64)
    np.testing.assert_array_equal(seen["w"], W)


def test_what_does_not_fit_is_named_and_without_strict_reported(tmp_path: Path) -> None:
    write(tmp_path, {"0.w": W, "more": np.ones(2)})
    with pytest.raises(TaskError) as caught:
        loading(tmp_path, {"model/*": "net"})
    for part in ("x.npz", "'more', for which there is no place", "the file lacks 'head/b'"):
        assert part in caught.value.message
    assert "strict: false" in (caught.value.hint or "")
    driver = loading(tmp_path, {"model/*": "net"}, strict=False)
    assert driver.blob("seen")["b"].tolist() == [0, 0]
    np.testing.assert_array_equal(driver.blob("seen")["w"], W)
    [warned] = [e.message for e in driver.events if isinstance(e, Warned)]
    assert "'more', for which there is no place; the file lacks 'head/b'" in warned


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"0.w": np.ones(3)}, r"'0.w' has shape \(3,\) in the file, and \(2, 3\) in the state"),
        ({"0.w": W.astype(complex)}, "'0.w' has dtype complex128 in the file, and float32 in the"),
        ({"x": W}, "no key of the file fits: it has 'x', and the state"),
    ],
)
def test_misfits_name_file_key_and_shape(
    arrays: dict[str, Any], message: str, tmp_path: Path
) -> None:
    write(tmp_path, arrays)
    with pytest.raises(TaskError, match=f"x.npz: .*{message}"):
        loading(tmp_path, {"model/*": "net"}, strict=False)


def test_the_object_is_as_it_was_after_a_misfit(tmp_path: Path) -> None:
    write(tmp_path, {"0.w": W, "head/b": np.ones(3)})
    net = Net()
    job = Job("j", state=["net"])
    with job.setup:
        Task(lambda: net, out="net", name="make")
    with job.init:
        Task(Load(file="x.npz"), out={"model/*": "net"})
    with pytest.raises(TaskError, match="has shape"):
        Driver(job, spec_dir=tmp_path).start()
    assert not net.w.any()


def test_an_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, FULL)
    with pytest.raises(TaskError, match=r"no key of the file is 'model/0\.v'") as caught:
        loading(tmp_path, {"model/0.v": "one"})
    assert "model/0.w" in (caught.value.hint or "")
    write(tmp_path, {"a": W, "a/b": W})
    with pytest.raises(TaskError, match="the beginning of another key"):
        loading(tmp_path, {"model/*": "tree"})


@pytest.mark.parametrize("file", ["x.npz", "x.safetensors", "x.pt", "x.pth"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\xff" * 64, b"\x93NUMPY\x01\x00"])
def test_damaged_files_are_errors(file: str, content: bytes, tmp_path: Path) -> None:
    if file.startswith("x.p"):
        pytest.importorskip("torch")
    (tmp_path / file).write_bytes(content)
    with pytest.raises(TaskError, match=f"{file}: "):
        loading(tmp_path, {"*": "net"}, file)


def test_files_that_are_not_there_or_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"x.npz: it cannot be read: No such file"):
        loading(tmp_path, {"*": "net"})
    with pytest.raises(BindError, match=r"unknown ending '.safetensor' of a file") as caught:
        loading(tmp_path, {"*": "net"}, "x.safetensor")
    assert ".safetensors" in (caught.value.hint or "")


class Evil:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('ran')",))


@needs_torch
def test_nothing_is_unpickled(tmp_path: Path) -> None:
    import torch

    torch.save({"w": Evil()}, tmp_path / "x.pt")
    with pytest.raises(TaskError, match="torch refuses it with weights_only=True"):
        loading(tmp_path, {"*": "net"}, "x.pt")
    np.savez(tmp_path / "x.npz", w=np.array([Evil()], object))
    with pytest.raises(TaskError, match=r"x\.npz: it is not a file of arrays"):
        loading(tmp_path, {"*": "tree"})
    (tmp_path / "x.npz").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(TaskError, match=r"x\.npz: "):
        loading(tmp_path, {"*": "tree"})


@pytest.mark.parametrize(
    ("load", "out", "message"),
    [
        (Load(), {"w": "w"}, "expected either 'run' or 'file'"),
        (Load("r", file="x.npz"), {"w": "w"}, "expected either 'run' or 'file'"),
        (Load(file="x.npz", epoch=1), {"w": "w"}, "'epoch' and 'id' are for a run"),
        (Load(file=Template("x", ())), {"a*b*": "w"}, r"'a\*b\*' has more than one '\*'"),
    ],
)
def test_loads_that_cannot_be(load: Load, out: dict[str, str], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Task(load, out=out)
