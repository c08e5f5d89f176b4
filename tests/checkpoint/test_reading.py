"""Blobs survive a save and a load bit for bit, through us and through zarr."""

from __future__ import annotations

import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import zarr
from checkpoint_helpers import (
    SAMPLE,
    CountingFs,
    array,
    arrays,
    blobs,
    frozen,
    same,
    same_bits,
    same_blobs,
    save,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobrun.checkpoint.dtypes import storage_of, swapped
from jobrun.checkpoint.reading import read_part
from jobrun.checkpoint.slices import read_slice
from jobrun.errors import DamagedError, NotFoundError
from jobrun.values.boxes import Box, Tree, Value, leaves
from tests.support.chunks import cut_into

pytestmark = pytest.mark.usefixtures("small_chunks")
quick = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@quick
@given(blobs())
def test_blobs_come_back_bit_for_bit(given_blobs: dict[str, Value]) -> None:
    with TemporaryDirectory() as run:
        path = save(run, given_blobs)
        found = read_part(path, "main")
        assert same_blobs(given_blobs, found)
        for value in found.values():
            assert all(box.version == 0 for _, box in leaves(value))


@settings(quick, max_examples=25)
@given(blobs())
def test_every_leaf_opens_with_zarr_and_equals_the_blob(given_blobs: dict[str, Value]) -> None:
    with TemporaryDirectory() as run, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        group = zarr.open_group(save(run, given_blobs), mode="r")
        for name, value in given_blobs.items():
            for path, box in leaves(value, name):
                stored = group[f"main/{path}"]
                assert stored.attrs["jobrun"]["kind"] == box.kind
                assert seen_by_zarr(box, stored[...]), path


def seen_by_zarr(box: Box, element: Any) -> bool:
    """Whether zarr's array is the value, or holds its bits where zarr has no such dtype."""
    if isinstance(element, str) and isinstance(box.value, str):
        return list(element) == list(box.value)
    text = isinstance(element, str) and not isinstance(box.value, str)
    found = np.asarray(element, storage_of(box.value.dtype).memory if text else None)
    if box.kind == "none":
        return found.shape == ()
    if isinstance(box.value, str):
        if found.dtype == np.uint8:
            return found.tobytes() == "".join(box.value).encode("utf-8", "surrogatepass")
        return list(found.item()) == list(box.value)
    if isinstance(box.value, bytes):
        return found.tobytes() == bytes(box.value)
    if box.kind not in ("array", "scalar"):
        wanted = np.array(box.value)
        return found.shape == () and found.tobytes() == wanted.tobytes()
    value = np.array(box.value, box.value.dtype)
    memory = storage_of(value.dtype).memory
    little = value if value.dtype == memory else swapped(value, memory)
    if storage_of(value.dtype).extra and found.dtype == np.uint8:
        return found.tobytes() == little.tobytes()
    return found.shape == value.shape and found.tobytes() == little.tobytes()


@pytest.mark.parametrize("shape", [(), (2,)])
def test_characters_that_are_none_keep_their_bits(tmp_path: Path, shape: tuple[int, ...]) -> None:
    bits = np.full(shape, 0xFFFFFFFF, "<u4")
    box = Box(frozen(bits.view("<U1")), "array")
    found = read_part(save(tmp_path, {"x": box}), "main")["x"]
    assert isinstance(found, Box)
    assert found.value.tobytes() == bits.tobytes()
    assert found.value.dtype == "<U1"


@quick
@given(arrays().filter(lambda a: a.ndim > 0), st.data())
def test_a_slice_is_that_of_the_whole(whole: np.ndarray[Any, Any], data: st.DataObject) -> None:
    index = tuple(
        data.draw(
            st.slices(n) if n == 0 else st.one_of(st.slices(n), st.integers(-n, n - 1)),
            label=f"axis {axis}",
        )
        for axis, n in enumerate(whole.shape[: data.draw(st.integers(1, whole.ndim))])
    )
    with TemporaryDirectory() as run:
        path = save(run, {"x": Box(whole, "array")})
        found = read_slice(path, "main", "x", index)
    assert same_bits(found, whole[(*index, ...)])  # an array, also where it is 0-d
    assert not found.flags.writeable


def test_a_slice_reads_only_the_chunks_it_touches(tmp_path: Path) -> None:
    path = save(tmp_path, {"x": Box(frozen(np.arange(64, dtype="f8")), "array")})
    for chunk in (0, 2, 3, 4, 5, 6, 7):
        (path / "main/x" / str(chunk)).unlink()
    assert read_slice(path, "main", "x", slice(9, 15)).tolist() == [9, 10, 11, 12, 13, 14]
    with pytest.raises(DamagedError, match="missing"):
        read_slice(path, "main", "x", slice(9, 17))


@pytest.mark.parametrize("index", [3, -4, (0, 0)])
def test_an_index_outside_of_the_array_is_refused(tmp_path: Path, index: Any) -> None:
    path = save(tmp_path, {"x": array(1, 2, 3), "n": Box(1, "int")})
    with pytest.raises(NotFoundError):
        read_slice(path, "main", "x", index)
    with pytest.raises(NotFoundError, match="not an array"):
        read_slice(path, "main", "n", 0)


def test_names_give_leaves_trees_and_levels_of_names(tmp_path: Path) -> None:
    given_blobs = {**SAMPLE, "net/a": array(1), "net/b": array(2), "empty": Tree("dict", {})}
    path = save(tmp_path, given_blobs)
    model = SAMPLE["model"]
    assert isinstance(model, Tree)
    found = read_part(path, "main", ["model/w", "model", "net", "net/b", "empty", "model/steps"])
    assert list(found) == ["model/w", "model", "net", "net/b", "empty", "model/steps"]
    assert same(found["model/w"], model.items["w"])
    assert same(found["model"], model)
    assert same(found["net"], Tree("dict", {"a": array(1), "b": array(2)}))
    assert same(found["net/b"], array(2))
    assert same(found["empty"], Tree("dict", {}))
    assert same(found["model/steps"], model.items["steps"])


def test_a_name_that_begins_like_a_tree_is_not_in_it(tmp_path: Path) -> None:
    path = save(tmp_path, {"a": Tree("dict", {"x": array(1)}), "a-b": array(2), "a.c": array(3)})
    assert same(read_part(path, "main", ["a"])["a"], Tree("dict", {"x": array(1)}))


def test_a_missing_name_is_an_error_with_the_nearest(tmp_path: Path) -> None:
    path = save(tmp_path)
    with pytest.raises(NotFoundError, match="did you mean 'total'"):
        read_part(path, "main", ["totl"])
    with pytest.raises(NotFoundError, match="no node 'trainer'; it has main"):
        read_part(path, "trainer")


def test_a_load_by_name_touches_the_files_of_that_blob_alone(tmp_path: Path) -> None:
    path, fs = save(tmp_path), CountingFs()
    read_part(path, "main", ["model/w"], fs=fs)
    touched = {Path(name).relative_to(path).as_posix() for _, name in fs.done}
    assert touched == {
        "_SUCCESS",
        "manifest.main.json",
        "main/model/w/zarr.json",
        *(f"main/model/w/{i}.0" for i in range(3)),
    }


def test_arrays_are_fresh_read_only_and_own_their_memory(tmp_path: Path) -> None:
    path = save(
        tmp_path, {"x": array(1, 2), "big": Box(frozen(np.arange(3, dtype=">f4")), "array")}
    )
    for value in read_part(path, "main").values():
        assert isinstance(value, Box)
        assert value.value.flags.owndata
        assert not value.value.flags.writeable


def test_swapped_chunk_files_of_equal_shape_are_found(tmp_path: Path) -> None:
    path = save(tmp_path)
    one, two = path / "main/model/w/0.0", path / "main/model/b/0.0"
    assert one.stat().st_size == two.stat().st_size
    a, b = one.read_bytes(), two.read_bytes()
    one.write_bytes(b)
    two.write_bytes(a)
    with pytest.raises(DamagedError, match="checksum") as error:
        read_part(path, "main")
    assert str(error.value.where).endswith("main/model/w/0.0")


def test_a_large_array_has_chunks_of_at_most_16_mib_and_little_padding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_into(monkeypatch, 16 << 20)
    whole = frozen(np.arange(9 << 20, dtype="f4").reshape(9 << 10, 1 << 10))
    path = save(tmp_path, {"x": Box(whole, "array")})
    sizes = [p.stat().st_size - 4 for p in (path / "main/x").iterdir() if p.name != "zarr.json"]
    assert len(sizes) == 3
    assert max(sizes) <= 16 << 20
    assert sum(sizes) == whole.nbytes
    assert same(read_part(path, "main")["x"], Box(whole, "array"))
