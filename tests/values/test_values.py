"""What can be a blob, and that nobody can change one from outside."""

from __future__ import annotations

import collections
import copy
import dataclasses
import random
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from engine import same
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jobrun.errors import ValueRefusedError
from jobrun.values.adoption import adopt, adopt_items
from jobrun.values.borrowing import borrow
from jobrun.values.boxes import Box, Tree, Value, all_locked, checksum, leaves, one_element
from jobrun.values.storable import is_storable
from jobrun.values.views import view, view_plain

quick = settings(deadline=None, max_examples=60)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def holding(name: str, make: Callable[[], Any]) -> dict[str, Value]:
    """A store with one value that nobody else holds."""
    return {name: adopt([make()])}


class Subclass(np.ndarray):
    """An array that is more than its elements."""


class Odd:
    """Something that is no blob by itself."""


# Kinds.


@pytest.mark.parametrize(
    ("obj", "kind"),
    [
        (True, "bool"),
        (3, "int"),
        (-(1 << 63), "int"),
        ((1 << 64) - 1, "int"),
        (0.5, "float"),
        ("text", "str"),
        (None, "none"),
        (np.float32(1.5), "scalar"),
        (np.float64(1.5), "scalar"),
        (np.bool_(True), "scalar"),
        (np.str_("x"), "scalar"),
        (np.datetime64("2020-01-01"), "scalar"),
        (ml_dtypes.bfloat16(1.5), "scalar"),
        (np.zeros(1, "i4,f8")[0], "scalar"),
        (np.array(2.0), "array"),
        (np.zeros((0, 3)), "array"),
        (np.array(["a", "bc"]), "array"),
        (np.zeros(2, np.longdouble), "array"),
        (np.array([{}, 1], object), "opaque"),
        (np.zeros(3).view(Subclass), "opaque"),
        (collections.OrderedDict(a=1), "dict"),
        ({1: 2}, "dict"),
        ({".hidden": 2}, "dict"),
        ({"a/b": 2}, "dict"),
        ({"zarr.json": 2}, "dict"),
        ({b"a": 2}, "opaque"),
        (collections.defaultdict(int, a=1), "opaque"),
        ({1, 2}, "opaque"),
        (b"bytes", "array"),
        (1j, "scalar"),
        (1 << 64, "str"),
        (Odd(), "opaque"),
        ({"a": 1}, "dict"),
        ({}, "dict"),
        ([1, 2], "list"),
        ([], "list"),
        ((1, 2), "list"),
    ],
)
def test_every_object_has_a_kind(obj: Any, kind: str) -> None:
    assert adopt([obj]).kind == kind


@pytest.mark.parametrize(
    "obj",
    [True, 3, 0.5, -0.0, float("nan"), "text", None, np.float32(1.5), np.array(2.0), np.bool_(0)],
)
def test_scalars_come_back_as_they_were(obj: Any) -> None:
    assert same(view(adopt([obj])), obj)


def test_tuples_stay_tuples_and_dicts_keep_their_order() -> None:
    value = adopt([{"b": (1, (2, None)), "a": [np.ones(2)], "c": {}}])
    read = view(value)
    assert list(read) == ["b", "a", "c"]
    assert read["b"] == (1, (2, None))
    assert [path for path, _ in leaves(value, "m")] == ["m/b/0", "m/b/1/0", "m/b/1/1", "m/a/0"]


@pytest.mark.parametrize("number", [1 << 64, -(1 << 63) - 1, 1 << 500])
def test_integers_beyond_64_bits_are_kept(number: int) -> None:
    value = adopt([{"n": [number]}])
    assert view(value) == {"n": [number]}
    assert view_plain(value) == {"n": [number]}
    assert one_element(value.items["n"].items["0"]) is None  # type: ignore[union-attr]


def test_integers_beyond_a_million_bits_are_refused() -> None:
    with pytest.raises(ValueRefusedError, match="bits cannot be a blob") as caught:
        adopt([{"n": [1 << (1 << 20)]}])
    assert "array" in caught.value.hint


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclasses.dataclass
class State:
    w: Any
    steps: int = 0


VALUES: list[Any] = [
    1j,
    complex("nan-infj"),
    b"",
    b"\0\xff",
    bytearray(b"abc"),
    (),
    (1, "a", [None]),
    {1: "a", (2, "b"): 0.5, None: 1 << 70, 0.5: {}, "a/b": [], "": 2},
    {"W": 1, "w": 2},
    Pair(1, {"x": (2,)}),
    State([1, 2], 3),
    {"deep": [State(Pair(1j, b"x"))]},
]


@pytest.mark.parametrize("obj", VALUES, ids=repr)
def test_objects_of_python_come_back_as_they_were(obj: Any) -> None:
    value = adopt([obj])
    assert all(box.kind != "opaque" for _, box in leaves(value))
    for again in (view(value), borrow({"x": value}, "x")):
        assert repr(again) == repr(obj)
        assert type(again) is type(obj)
        if type(obj) is dict:
            assert [*map(type, again)] == [*map(type, obj)]


def test_arrays_within_objects_are_protected_and_can_be_updated() -> None:
    state = State(np.zeros(3), 1)
    value = adopt([state])
    state.w[0] = 9  # still the task's own
    read = view(value)
    assert read.w.tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="read-only"):
        read.w[0] = 1
    updated = borrow({"x": value}, "x")
    updated.w[:] = 2
    assert view(adopt([updated])).w.tolist() == [2, 2, 2]


def test_one_object_at_two_places_of_a_tree_stays_tied() -> None:
    state = State(np.zeros(2))
    items = {"x": adopt([{"a": state, "b": state}])}
    taken = borrow(items, "x")
    taken["a"].w[0] = 5
    assert taken["b"].w[0] == 5


def test_an_object_with_parts_of_its_own_stays_as_it_is() -> None:
    lock = State(threading.Lock())
    assert adopt([lock]).kind == "opaque"
    more = State(1)
    more.extra = 2  # type: ignore[attr-defined]
    assert adopt([more]).kind == "opaque"


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("bits", ["PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937"])
def test_generators_go_on_where_they_were(bits: str, seed: int) -> None:
    rng = np.random.Generator(getattr(np.random, bits)(seed))
    rng.integers(10, size=3, dtype=np.int32)
    value = adopt([{"rng": rng}])
    assert is_storable(value)
    assert view(value)["rng"].random(5).tolist() == rng.random(5).tolist()


def test_other_generators() -> None:
    for rng in (np.random.RandomState(3), random.Random(3)):
        rng.normal() if isinstance(rng, np.random.RandomState) else rng.gauss(0, 1)
        again = view(adopt([rng]))
        if isinstance(rng, np.random.RandomState):
            assert again.normal(size=3).tolist() == rng.normal(size=3).tolist()
        else:
            assert [again.gauss(0, 1) for _ in range(3)] == [rng.gauss(0, 1) for _ in range(3)]


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="numpy 1 has no StringDType")
@pytest.mark.parametrize("missing", [None, float("nan"), ...])
def test_arrays_of_strings_of_any_length(missing: Any) -> None:
    options = {} if missing is ... else {"na_object": missing}
    dtype: Any = np.dtypes.StringDType(**options)  # type: ignore[attr-defined]
    array = np.array([["a", ""], ["\u00fc" * 30, "x" if missing is ... else missing]], dtype)
    value = adopt([array])
    assert is_storable(value)
    again = view(value)
    assert again.dtype == dtype
    assert repr(again.tolist()) == repr(array.tolist())


def test_masked_arrays_are_refused_with_the_remedy() -> None:
    with pytest.raises(ValueRefusedError, match="masked") as caught:
        adopt([np.ma.array([1, 2], mask=[0, 1])])
    assert "filled" in caught.value.hint


def test_depth_has_an_end() -> None:
    nested: Any = 1
    for _ in range(60):
        nested = [nested]
    assert adopt([nested]).kind == "list"
    for _ in range(10):
        nested = [nested]
    with pytest.raises(ValueRefusedError, match="levels deep"):
        adopt([nested])
    endless: list[Any] = []
    endless += [endless, endless]
    with pytest.raises(ValueRefusedError, match="in itself"):
        adopt([endless])


# Arrays become plain.

_GRID = np.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(_GRID),
        _GRID.T,
        _GRID[:, ::2],
        _GRID[:, ::-1],
        _GRID[::-1],
        _GRID[0],
        np.broadcast_to(np.arange(3.0), (4, 3)),
        np.char.array(["a", "b"]),
        np.frombuffer(b"\0" + np.arange(3.0).tobytes(), np.float64, offset=1),
        np.arange(3, dtype=">i4"),
        np.arange(3, dtype=">f8")[::2],
        np.array(["ä", "bc"], ">U2"),
        np.zeros((3, 0)),
    ],
    ids=lambda a: f"{type(a).__name__}-{a.dtype.str}-{a.strides}",
)
def test_arrays_become_plain_contiguous_and_read_only(array: np.ndarray) -> None:
    expected = np.array(array, order="C", subok=False)
    stored = adopt([array]).value
    assert type(stored) is np.ndarray
    assert stored.flags.c_contiguous
    assert stored.flags.aligned
    assert not stored.flags.writeable
    assert same(stored, expected)


def test_memory_maps_become_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(5))
    for mode in ("r", "r+", "c"):
        mapped = np.load(tmp_path / "x.npy", mmap_mode=mode)
        stored = adopt([mapped]).value
        assert type(stored) is np.ndarray
        assert stored.base is None
        assert stored.tolist() == [0, 1, 2, 3, 4]


def test_setup_keeps_read_only_memory_maps(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6).reshape(3, 2))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    stored = adopt([mapped], keep_maps=True)
    assert isinstance(stored, Box)
    assert type(stored.value) is np.ndarray
    assert address(stored.value) == address(mapped)
    again = adopt([view(stored)], [stored], keep_maps=True)
    assert isinstance(again, Box)
    assert again.value is stored.value
    writable = np.load(tmp_path / "x.npy", mmap_mode="r+")
    assert address(adopt([writable], keep_maps=True).value) != address(writable)
    column = adopt([mapped[:, 0]], keep_maps=True).value
    assert column.flags.c_contiguous


def _padded() -> np.dtype:
    return np.dtype(
        [("a", "u1"), ("b", "f8"), ("c", [("x", ">i2"), ("y", "f4")], (2,))], align=True
    )


@pytest.mark.parametrize(
    "dtype",
    [
        _padded(),
        np.dtype({"names": ["a", "b"], "formats": ["f4", "i4"], "offsets": [4, 0]}),
        np.dtype({"names": ["a", "b"], "formats": ["f4", "i4"], "offsets": [8, 0]}),
        np.dtype({"names": ["a", "b"], "formats": ["u2", "u4"], "offsets": [0, 0]}),
        np.dtype([(("A title", "a"), "f4"), ("b", "S3")]),
        np.dtype((np.record, [("a", "i4"), ("b", "f8")])),
        np.dtype([("a", ml_dtypes.bfloat16), ("b", "u1")], align=True),
        np.dtype([]),
    ],
    ids=str,
)
def test_structured_arrays_are_packed_field_by_field(dtype: np.dtype) -> None:
    """Padding is no data; fields keep their bits wherever they lie in memory."""
    array = np.zeros(3, dtype)
    raw = np.random.default_rng(3).integers(0, 255, array.nbytes, np.uint8)
    array.view(np.uint8)[...] = raw if array.nbytes else 0
    stored = adopt([array]).value
    assert type(stored) is np.ndarray
    assert stored.dtype.type is np.void
    assert stored.dtype.names == dtype.names
    packed = sum(stored.dtype.fields[n][0].itemsize for n in stored.dtype.names)
    assert stored.dtype.itemsize == packed
    for name in dtype.names:
        if stored[name].dtype.names is None:
            assert same(stored[name], np.ascontiguousarray(array[name]))
        else:
            for inner in stored[name].dtype.names:
                assert same(stored[name][inner].copy(), array[name][inner].copy())


def test_metadata_of_dtypes_is_dropped() -> None:
    for code in ("f4", "M8[ns]", "U3"):
        array = np.zeros(2, np.dtype(code, metadata={"unit": "m"}))
        assert adopt([array]).value.dtype.metadata is None


@pytest.mark.filterwarnings("ignore:The chararray class:DeprecationWarning")
def test_arrays_of_strings_of_numpys_own_class_become_plain() -> None:
    class Mine(np.char.chararray):  # type: ignore[misc]
        pass

    for kind in (np.char.chararray, Mine):
        taken = adopt([np.array(["a", "bc"]).view(kind)])
        assert type(taken.value) is np.ndarray
        assert taken.value.tolist() == ["a", "bc"]


def test_importing_values_warns_of_nothing() -> None:
    """With numpy 2.5, naming ``np.char.chararray`` is deprecated."""
    code = "import numpy, jobrun.values.adoption"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_matrix_is_refused() -> None:
    """It became an array, whose * multiplies element by element, in the next task."""
    with pytest.raises(ValueRefusedError, match=r"a numpy\.matrix cannot be a blob"):
        adopt([np.zeros((2, 2)).view(np.matrix)])


def test_recarrays_become_structured_arrays() -> None:
    array = np.rec.array([(1, 2.5), (3, 4.5)], dtype=[("n", "i4"), ("x", "f8")])
    stored = adopt([array]).value
    assert type(stored) is np.ndarray
    assert stored.dtype == np.dtype([("n", "i4"), ("x", "f8")])
    assert stored["x"].tolist() == [2.5, 4.5]
    record = view(adopt([array[0]]))
    assert record["n"] == 1


def test_a_structured_scalar_is_cut_off_from_its_array() -> None:
    array = np.zeros(2, [("n", "i4")])
    value = adopt([array[0]])
    array["n"] = 7
    assert view(value)["n"] == 0
    with pytest.raises(ValueError, match="read-only"):
        view(value)["n"] = 3


@quick
@given(
    hnp.arrays(
        st.one_of(
            hnp.scalar_dtypes(), hnp.array_dtypes(allow_subarrays=True), hnp.unicode_string_dtypes()
        ),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
    st.sampled_from(["as is", "F", "T", "every other", "reversed"]),
)
def test_any_array_comes_back_bit_for_bit(array: np.ndarray, layout: str) -> None:
    if layout == "F":
        array = np.asfortranarray(array)
    elif layout == "T":
        array = array.T
    elif layout != "as is" and array.ndim:
        array = array[::2] if layout == "every other" else array[::-1]
    expected = [np.array(array[n], order="C") for n in array.dtype.names or ()] or [
        np.array(array, order="C")
    ]
    read = view(adopt([array]))
    got = [np.array(read[n], order="C") for n in read.dtype.names or ()] or [read]
    assert read.shape == array.shape
    assert all(g.dtype.kind == "V" or same(g, e) for g, e in zip(got, expected, strict=True))


# Frozen without a copy, if nobody else holds it.


def test_an_array_that_nobody_holds_is_not_copied() -> None:
    places: list[int] = []

    def make() -> dict[str, Any]:
        first, second = np.arange(1000.0), np.arange(1000.0).reshape(10, 100)
        places.extend([address(first), address(second)])
        return {"first": first, "nested": [second]}

    value = adopt([make()])
    assert [address(box.value) for _, box in leaves(value)] == places


def test_a_small_part_of_a_large_array_does_not_keep_it() -> None:
    def head() -> np.ndarray:
        return np.arange(100_000.0)[:3]

    stored = adopt([head()]).value
    assert stored.base is None or stored.base.nbytes <= 2 * stored.nbytes
    assert stored.tolist() == [0, 1, 2]


_KEPT: dict[str, Any] = {}


def _kept_array() -> Any:
    a = _KEPT["a"] = np.zeros(4)
    return a


def _kept_view() -> Any:
    a = np.zeros(4)
    _KEPT["a"] = a[1:]
    return a


def _kept_original_of_reshape() -> Any:
    a = _KEPT["a"] = np.zeros(4)
    return a.reshape(2, 2)


def _kept_sibling_view() -> Any:
    a = np.zeros((2, 2))
    _KEPT["a"] = a[:]
    return a.reshape(4)


def _kept_transposed() -> Any:
    a = np.zeros((2, 2))
    _KEPT["a"] = a.T
    return a


def _kept_memoryview() -> Any:
    a = np.zeros(4)
    _KEPT["a"] = memoryview(a)
    return a


def _kept_ctypes() -> Any:
    a = np.zeros(4)
    _KEPT["a"] = np.ctypeslib.as_ctypes(a)
    return a


def _kept_flat() -> Any:
    a = np.zeros(4)
    _KEPT["a"] = a.flat
    return a


def _kept_bytearray() -> Any:
    memory = bytearray(32)
    _KEPT["a"] = memoryview(memory).cast("d")
    return np.frombuffer(memory, np.float64)


def _kept_dict() -> Any:
    tree = _KEPT["tree"] = {"w": np.zeros(4)}
    _KEPT["a"] = tree["w"]
    return tree


def _kept_dict_only() -> Any:
    _KEPT["tree"] = {"w": np.zeros(4)}
    return _KEPT["tree"]


def _kept_inner_list() -> Any:
    inner = _KEPT["list"] = [np.zeros(4)]
    return {"deep": [inner]}


def _kept_by_generator() -> Any:
    def serve() -> Iterator[Any]:
        a = np.zeros(4)
        yield a
        a += 1

    _KEPT["generator"] = serve()
    return next(_KEPT["generator"])


def _kept_by_closure() -> Any:
    a = np.zeros(4)

    def add() -> None:
        a[:] = 1

    _KEPT["call"] = add
    return a


def _kept_by_object() -> Any:
    odd = Odd()
    odd.a = np.zeros(4)
    _KEPT["odd"] = odd
    return odd.a


def _kept_attributes() -> Any:
    odd = _KEPT["odd"] = Odd()
    odd.a = np.zeros(4)
    return vars(odd)


def _kept_subclass() -> Any:
    a = np.zeros(4)
    _KEPT["a"] = a
    return a.view(np.recarray)


_MAKERS = [value for name, value in list(globals().items()) if name.startswith("_kept_")]


def _spoil() -> None:
    """Write 1 through whatever the maker has kept."""
    kept = _KEPT.get("a")
    if isinstance(kept, np.ndarray):
        kept[...] = 1
    elif kept is not None:
        kept[0] = 1.0
    for array in (*_KEPT.get("tree", {}).values(), *_KEPT.get("list", [])):
        array[...] = 1
    if "generator" in _KEPT:
        list(_KEPT["generator"])
    if "call" in _KEPT:
        _KEPT["call"]()
    if "odd" in _KEPT:
        _KEPT["odd"].a[:] = 1


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("make", _MAKERS, ids=lambda f: f.__name__)
def test_a_maker_cannot_change_what_it_gave(make: Callable[[], Any]) -> None:
    _KEPT.clear()
    value = adopt([make()])
    assert _KEPT, "the maker keeps something"
    _spoil()
    assert all(not box.value.any() for _, box in leaves(value))
    assert all(not box.value.flags.writeable for _, box in leaves(value))


def test_a_weak_reference_gives_a_frozen_array() -> None:
    refs: list[Any] = []

    def make() -> np.ndarray:
        a = np.zeros(4)
        refs.append(weakref.ref(a))
        return a

    value = adopt([make()])
    found = refs[0]()
    if found is not None:
        with pytest.raises(ValueError, match="read-only"):
            found[0] = 1
    assert value.kind == "array"


_trees = st.recursive(
    st.one_of(
        st.integers(-5, 5),
        st.sampled_from([None, True, 0.5, "s"]),
        hnp.arrays(
            st.sampled_from(["f4", "i8", ">f8", "f4,i2"]),
            hnp.array_shapes(min_dims=1, max_dims=2, max_side=4),
            elements=None,
            fill=st.nothing(),
        ),
    ),
    lambda below: st.one_of(
        st.lists(below, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b", "c"]), below, max_size=3),
    ),
    max_leaves=8,
)


def _arrays_in(obj: Any) -> Iterator[np.ndarray]:
    if isinstance(obj, np.ndarray):
        yield obj
    elif isinstance(obj, dict | list):
        for item in obj.values() if isinstance(obj, dict) else obj:
            yield from _arrays_in(item)


@quick
@given(_trees, st.data())
def test_no_nested_value_is_changed_by_what_was_kept_of_it(obj: Any, data: st.DataObject) -> None:
    expected = copy.deepcopy(obj)
    kept: list[Any] = []
    for array in _arrays_in(obj):
        match data.draw(st.sampled_from(["nothing", "array", "view", "reversed", "bytes"])):
            case "array":
                kept.append(array)
            case "view":
                kept.append(array[:1])
            case "reversed":
                kept.append(array[::-1])
            case "bytes" if array.dtype.names is None:
                kept.append(memoryview(array.reshape(-1).view(np.uint8)))
    keep_whole = data.draw(st.booleans())
    cell = [obj]
    whole = obj if keep_whole else None
    del obj
    if "array" in locals():
        del array
    value = adopt(cell)
    for thing in (*kept, *_arrays_in(whole)):
        try:
            thing[...] = b"" if isinstance(thing, memoryview) else np.zeros(1, thing.dtype)
        except (ValueError, TypeError, NotImplementedError):
            continue
    for thing in kept:
        if isinstance(thing, memoryview) and len(thing):
            thing[0] = thing[0] ^ 255
    assert same(view(value), view(adopt([expected])))


# Shared and returned values.


def test_one_object_under_two_names_shares_memory_and_is_not_tied() -> None:
    a, odd = np.zeros(3), Odd()
    first, second, third, fourth = adopt_items([(a, a, odd, odd)], range(4))
    assert isinstance(first, Box)
    assert isinstance(second, Box)
    assert first is not second
    assert first.value is second.value
    assert not first.tied
    assert third is fourth
    assert isinstance(third, Box)
    assert third.value is odd


def test_items_are_taken_in_order_and_the_rest_is_left() -> None:
    values = adopt_items([{"a": 1, "b": 2.0, "c": "x"}], ["c", "a"])
    assert [view(v) for v in values] == ["x", 1]


def test_an_input_that_is_returned_shares_its_memory() -> None:
    stored = adopt([np.arange(6.0)])
    stored.version = 3
    held = view(stored)
    for returned in (view(stored), held, held[:]):
        again = adopt([returned], [stored])
        assert again.value is stored.value
        assert again.version == -1  # that of the one may not be that of the other


def test_leaves_of_an_input_that_are_returned_share_their_memory() -> None:
    stored = adopt([{"w": np.ones(3), "b": np.zeros(2)}])
    assert isinstance(stored, Tree)
    again = adopt([{"b": view(stored)["b"]}], [stored])
    assert isinstance(again, Tree)
    assert again.items["b"].value is stored.items["b"].value


@pytest.mark.parametrize(
    "part",
    [
        lambda a: a[1:],
        lambda a: a[::-1],
        lambda a: a.reshape(2, 3),
        lambda a: a.view("i8"),
        lambda a: a.copy(),
    ],
)
def test_a_part_of_an_input_is_a_value_of_its_own(part: Callable[[Any], Any]) -> None:
    stored = adopt([np.arange(6.0)])
    expected = part(stored.value).copy()
    other = adopt([part(view(stored))], [stored])
    assert other is not stored
    assert not np.shares_memory(other.value, stored.value)
    assert same(other.value, expected)


def test_a_memory_map_is_not_shared_with_a_blob(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))
    mapped = Box(np.asarray(np.load(tmp_path / "x.npy", mmap_mode="r")), "array")
    stored = adopt([view(mapped)], [mapped])
    assert not np.shares_memory(stored.value, mapped.value)


# What tasks are given.


def test_readers_get_views_that_cannot_be_written_or_unlocked() -> None:
    stored = adopt([{"w": np.zeros(3)}])
    read = view(stored)["w"]
    assert isinstance(stored, Tree)
    assert read is not stored.items["w"].value
    with pytest.raises(ValueError, match="read-only"):
        read[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        read.setflags(write=True)
    with pytest.raises(ValueError, match="resize"):
        read.resize(5)


def test_a_reader_may_change_the_containers_it_was_given() -> None:
    stored = adopt([{"l": [1, 2]}])
    read = view(stored)
    read["l"].append(3)
    read["new"] = 1
    assert view(stored) == {"l": [1, 2]}


def test_an_update_is_in_place_when_nobody_else_holds_the_value() -> None:
    store = holding("w", lambda: np.zeros(1000))
    place = address(store["w"].value)
    for _ in range(3):
        cell = [borrow(store, "w")]
        assert store["w"].value is None, "a half-updated value must not be readable"
        cell[0] += 1
        store["w"] = adopt(cell)
    assert address(store["w"].value) == place
    assert store["w"].value[0] == 3
    assert not store["w"].value.flags.writeable


def test_an_update_of_a_reshaped_array_is_in_place() -> None:
    store = holding("w", lambda: np.zeros(1000).reshape(10, 100))
    place = address(store["w"].value)
    taken = borrow(store, "w")
    assert taken.flags.writeable
    assert address(taken) == place


@pytest.mark.parametrize(
    "hold",
    [
        lambda store: view(store["w"]),
        lambda store: view(store["w"])[1:],
        lambda store: view(store["w"]).T,
        lambda store: memoryview(view(store["w"])),
        lambda store: store["w"],
        lambda store: dict(store),
        lambda store: store.setdefault("alias", store["w"]) and None,
        lambda store: Tree("dict", {"w": store["w"]}),
    ],
    ids=["view", "part", "transposed", "memoryview", "value", "snapshot", "alias", "tree"],
)
@pytest.mark.parametrize("shape", [(1000,), (10, 100)])
def test_an_update_copies_what_somebody_holds(hold: Callable[[Any], Any], shape: Any) -> None:
    store = holding("w", lambda: np.zeros(1000).reshape(shape))
    box = store["w"]
    stored = box.value
    held = hold(store)
    del box
    taken = borrow(store, "w")
    taken += 1
    assert not np.shares_memory(taken, stored)
    assert not stored.any()
    del held


def test_an_update_of_a_tree_is_a_dict_of_writable_arrays() -> None:
    store = holding("m", lambda: {"w": np.zeros(3), "l": [np.ones(2), 5], "n": 1.5})
    tree = store["m"]
    assert isinstance(tree, Tree)
    place = address(tree.items["w"].value)
    del tree
    taken = borrow(store, "m")
    assert list(taken) == ["w", "l", "n"]
    assert address(taken["w"]) == place
    taken["w"] += 1
    taken["l"][0] += 1
    taken["fresh"] = taken.pop("n")
    cell = [taken]
    del taken
    store["m"] = adopt(cell)
    assert list(view(store["m"])) == ["w", "l", "fresh"]
    assert address(store["m"].items["w"].value) == place
    assert view(store["m"])["l"][0].tolist() == [2, 2]


def test_a_snapshot_of_a_tree_keeps_all_its_leaves() -> None:
    store = holding("m", lambda: {"a": np.zeros(3), "t": {"b": np.zeros(3)}})
    snapshot = dict(store)
    taken = borrow(store, "m")
    taken["a"] += 1
    taken["t"]["b"] += 1
    assert not view(snapshot["m"])["a"].any()
    assert not view(snapshot["m"])["t"]["b"].any()


def facts(cell: list[Any], pick: Callable[[Any], Any], hold: bool) -> list[Any]:
    """What becomes of the array ``pick(cell[0])`` when it is adopted and then borrowed."""
    kept = [pick(cell[0])] if hold else []
    old = address(pick(cell[0]))
    store = {"b": adopt(cell)}
    box = next(box for _, box in leaves(store["b"]))
    stored = address(box.value)
    found = [box.kind, box.value.flags.num, box.value.dtype, box.value.shape, stored == old]
    kept += [box.value] if hold else []
    lent = pick(borrow(store, "b"))
    return [*found, lent.flags.num, lent.tolist(), address(lent) == stored, box.value is None]


@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(4.0),
        lambda: np.arange(6).reshape(2, 3),
        lambda: np.arange(40)[:4],
        lambda: np.arange(40)[::2],
        lambda: np.asfortranarray(np.ones((2, 3))),
        lambda: np.zeros(3, np.dtype(float, metadata={"a": 1})),
        lambda: np.zeros(3, ">f8"),
        lambda: np.zeros(3, [("a", int)]),
        lambda: np.zeros(9, np.uint8)[1:].view(np.float64),
        lambda: np.frombuffer(b"abcd", np.uint8),
        lambda: np.array(3.0),
        lambda: np.zeros((0, 2)),
    ],
)
def test_an_array_in_a_tree_is_treated_as_one_alone(
    make: Callable[[], np.ndarray], hold: bool
) -> None:
    """Trees have a shorter way for arrays of which nothing has to be decided."""
    alone = facts([make()], lambda value: value, hold)
    assert facts([{"x": make()}], lambda value: value["x"], hold) == alone
    assert facts([[make()]], lambda value: value[0], hold) == alone


def test_a_leaf_that_is_shared_alone_is_copied() -> None:
    store = holding("m", lambda: {"a": np.zeros(3), "b": np.zeros(3)})
    tree = store["m"]
    assert isinstance(tree, Tree)
    store["alias"] = tree.items["a"]
    place = address(tree.items["b"].value)
    del tree
    taken = borrow(store, "m")
    taken["a"] += 1
    assert address(taken["b"]) == place
    assert not view(store["alias"]).any()


# Looking at values.


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (True, True),
        (3, 3),
        (0.5, 0.5),
        ("x", "x"),
        (None, None),
        (np.float32(0.5), 0.5),
        (np.array([[7]]), 7),
        (np.array(1.5), 1.5),
        (ml_dtypes.bfloat16(1.5), 1.5),
        (np.zeros(2), None),
        (np.zeros(0), None),
        ([1], None),
        ({}, None),
        (Odd(), None),
    ],
)
def test_one_element(obj: Any, expected: Any) -> None:
    found = one_element(adopt([obj]))
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "other",
    [
        np.array([[1.0, 2.0], [3.0, 5.0]]),
        np.array([1.0, 2.0, 3.0, 4.0]),
        np.array([[1.0, 2.0], [3.0, 4.0]]).view("i8"),
        np.array([[1.0, 2.0], [3.0, 4.0]]).view("M8[s]"),
    ],
)
def test_a_checksum_sees_elements_shape_and_dtype(other: Any) -> None:
    def sum_of(array: Any) -> int:
        return checksum(adopted_box(array))

    assert sum_of(np.array([[1.0, 2.0], [3.0, 4.0]])) == sum_of(np.array([[1.0, 2], [3, 4]]))
    assert sum_of(np.array([[1.0, 2.0], [3.0, 4.0]])) != sum_of(other)


@pytest.mark.parametrize("array", [np.zeros(3, "V0"), np.zeros((0, 2)), np.zeros(())])
def test_a_checksum_of_any_array(array: Any) -> None:
    assert checksum(adopted_box(array)) == checksum(adopted_box(array.copy()))


def test_what_is_no_array_has_no_checksum() -> None:
    assert checksum(adopted_box("text")) == checksum(adopted_box(None)) == 0


def adopted_box(obj: Any) -> Box:
    """The box of a value that is no container."""
    value = adopt([obj])
    assert isinstance(value, Box)
    return value


def test_a_stored_array_that_somebody_made_writable_is_seen() -> None:
    value = adopt([{"a": 1, "l": [np.zeros(2), np.ones(3)]}])
    assert all_locked([value])
    view(value)["l"][1].base.setflags(write=True)
    assert not all_locked([value])


# Ties: one array at two places of a tree.


def tie_groups(value: Value) -> list[list[str]]:
    """The paths of arrays of a tree that are one."""
    found: dict[int, list[str]] = {}
    for path, box in leaves(value):
        if box.kind == "array":
            found.setdefault(id(box), []).append(path)
    assert all(b.tied for p in found.values() if len(p) > 1 for b in [dict(leaves(value))[p[0]]])
    return [paths for paths in found.values() if len(paths) > 1]


def kept(obj: Any) -> list[Any]:
    """A cell with an object that somebody else holds too."""
    _HELD.append(obj)
    return [obj]


_HELD: list[Any] = []


def views_of_one(w: Any) -> Any:
    return {"a": w, "b": w[:], "c": w.view(), "d": [w.reshape(w.shape)]}


@pytest.mark.parametrize("cell", [lambda obj: [obj], kept])
def test_identical_memory_in_a_tree_is_tied(cell: Callable[[Any], list[Any]]) -> None:
    w = np.zeros((2, 3))
    assert tie_groups(adopt(cell({"a": w, "b": w, "c": np.zeros((2, 3))}))) == [["a", "b"]]
    assert tie_groups(adopt(cell(views_of_one(w)))) == [["a", "b", "c", "d/0"]]
    assert tie_groups(adopt(cell({"a": w.T, "b": w.T}))) == [["a", "b"]]
    assert tie_groups(adopt(cell({"a": w.T, "b": w}))) == []
    assert tie_groups(adopt(cell({"a": w[0], "b": w[1], "c": w[:1]}))) == []
    assert tie_groups(adopt(cell({"a": w.view("i8"), "b": w}))) == []
    assert tie_groups(adopt(cell([w[:, :1], np.lib.stride_tricks.as_strided(w, (2, 1))]))) == []
    empty = np.zeros((0, 3))
    assert tie_groups(adopt(cell({"a": empty, "b": empty[:]}))) == []


def test_two_views_whose_array_is_gone_are_tied() -> None:
    assert tie_groups(adopt([(lambda w: {"a": w[:], "b": w[:]})(np.zeros(3))])) == [["a", "b"]]


def test_tied_arrays_are_adopted_without_a_copy() -> None:
    cell = [(lambda w: {"a": w, "b": [w, w]})(np.zeros(1000))]
    place = address(cell[0]["a"])
    value = adopt(cell)
    assert tie_groups(value) == [["a", "b/0", "b/1"]]
    assert address(view(value)["b"][1]) == place
    assert all_locked([value])


def test_tied_arrays_that_somebody_holds_are_copied() -> None:
    w = np.zeros(1000)
    value = adopt([{"a": w, "b": w}])
    w += 1
    assert tie_groups(value) == [["a", "b"]]
    assert not view(value)["b"].any()


def test_a_tied_array_below_a_container_that_somebody_holds_is_copied() -> None:
    inner = [np.zeros(1000)]
    value = adopt([{"a": inner[0], "b": inner}])
    inner[0] += 1
    assert tie_groups(value) == [["a", "b/0"]]
    assert not view(value)["a"].any()


def test_read_only_arrays_are_tied_where_they_are_one_object() -> None:
    """Separate blobs may share memory, in this run and not in a resumed one."""
    first, second = adopt_items([(lambda w: (w, w))(np.zeros(3))], range(2))
    x, y = view(first), view(second)
    given = (first, second)
    assert address(x) == address(y)
    assert tie_groups(adopt([{"a": x, "b": x}], given)) == [["a", "b"]]
    assert tie_groups(adopt([{"a": x, "b": y}], given)) == []
    assert tie_groups(adopt([{"a": x[:2], "b": y[:2]}], given)) == []
    assert tie_groups(adopt([{"a": x, "b": x[:]}], given)) == []


def test_a_tied_tree_that_is_read_and_returned_stays_tied() -> None:
    w = np.zeros(3)
    value = adopt([{"a": w, "b": [w]}])
    read = view(value)
    assert read["a"] is read["b"][0]
    assert tie_groups(adopt([read], [value])) == [["a", "b/0"]]
    assert tie_groups(adopt([{"p": read["b"][0], "q": read["a"]}], [value])) == [["p", "q"]]


def test_each_of_several_results_is_a_tree_of_its_own() -> None:
    w = np.zeros(3)
    first, second = adopt_items([({"a": w, "b": w}, {"a": w})], range(2))
    assert tie_groups(first) == [["a", "b"]]
    assert tie_groups(Tree("list", {"0": first, "1": second})) == [["0/a", "0/b"]]


@pytest.mark.parametrize("held", [False, True])
def test_an_update_gets_one_array_for_tied_places(held: bool) -> None:
    store = holding("s", lambda: (lambda w: {"a": w, "b": [w], "c": np.ones(3)})(np.zeros(3)))
    snapshot = dict(store) if held else {}
    place = address(view(store["s"])["a"])
    taken = borrow(store, "s")
    assert taken["a"] is taken["b"][0]
    assert (address(taken["a"]) == place) is not held
    taken["a"] += 1
    store["s"] = adopt([taken])
    del taken
    assert tie_groups(store["s"]) == [["a", "b/0"]]
    assert view(store["s"])["b"][0].tolist() == [1, 1, 1]
    assert not held or not view(snapshot["s"])["a"].any()


def test_an_update_of_a_tree_of_which_a_snapshot_holds_a_part() -> None:
    """The part leads to the tied array as well: it must be copied at both places."""
    w = np.zeros(3)
    value = adopt([{"a": {"x": w}, "b": {"x": w}}])
    assert isinstance(value, Tree)
    part = value.items["b"]
    store: dict[str, Value] = {"s": Tree("dict", {"a": value.items["a"], "b": part})}
    del value
    borrow(store, "s")["a"]["x"][...] = 5
    assert not view(part)["x"].any()


OVERLAPS = [
    lambda w: {"a": w, "b": w[1:]},
    lambda w: {"a": w, "b": [w.reshape(2, 2)]},
    lambda w: {"a": w[:3], "b": w[2:]},
    lambda w: {"a": w[::2], "b": w[::-1]},
    lambda w: {"a": w, "b": w.view("i8")},
]


@pytest.mark.parametrize("make", OVERLAPS)
def test_views_that_overlap_are_refused_in_what_is_updated(make: Callable[[Any], Any]) -> None:
    w = np.zeros(4)
    with pytest.raises(ValueRefusedError) as caught:
        adopt([make(w)], updated="s")
    assert "'s/a' and 's/b" in caught.value.message
    assert "overlap in memory" in caught.value.message
    assert "copy" in caught.value.hint
    assert next(leaves(adopt([make(w)])))[0] == "a"


def test_views_that_do_not_overlap_are_none() -> None:
    w = np.zeros((4, 4))
    tree = {"a": w[:2], "b": w[2:, ::2], "c": w[2:, 1::2], "d": np.zeros(3), "e": w[:2]}
    assert tie_groups(adopt([tree], updated="s")) == [["a", "e"]]
    x = view(adopt([np.zeros(3)]))
    adopt([{"a": x, "b": x[1:]}], updated="s")  # read-only: nobody could write into one


@quick
@given(picks=st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=7))
def test_an_update_is_what_python_does(picks: list[tuple[int, bool, bool]]) -> None:
    """Any arrangement of arrays in a tree, updated twice, with and without other holders."""

    def build() -> dict[str, Any]:
        arrays = [np.full(2, float(n)) for n in range(4)]
        tree: dict[str, Any] = {}
        for number, (pick, as_view, nested) in enumerate(picks):
            array = arrays[pick][:] if as_view else arrays[pick]
            tree[f"k{number}"] = [array] if nested else array
        return tree

    def change(tree: dict[str, Any], by: float) -> None:
        for item in tree.values():
            array = item[0] if isinstance(item, list) else item
            array += by

    expected, store = build(), {"s": adopt([build()])}
    for by in (1.0, 2.0):
        snapshot = dict(store)
        before = copy.deepcopy(view(store["s"]))
        change(expected, by)
        taken = borrow(store, "s")
        change(taken, by)
        store["s"] = adopt([taken], updated="s")
        del taken
        assert same(view(snapshot["s"]), before)
        assert same(view(store["s"]), expected)


def update(store: dict[str, Value], change: Callable[[Any], Any]) -> Value:
    """Borrow ``store["m"]``, and put back what ``change`` returns for it."""
    cell = [borrow(store, "m")]
    cell[0] = change(cell[0])
    store["m"] = adopt(cell, old=store["m"])
    return store["m"]


def two_arrays() -> dict[str, np.ndarray]:
    return {"a": np.zeros(3), "b": np.zeros((2, 2), np.int32)}


def added(m: Any) -> Any:
    for array in m.values() if isinstance(m, dict) else m:
        array += 1
    return m


@pytest.mark.parametrize("make", [two_arrays, lambda: [np.zeros(3), np.ones(1)]])
def test_an_update_of_plain_arrays_uses_the_emptied_tree_again(make: Callable[[], Any]) -> None:
    store = holding("m", make)
    tree = id(store["m"])
    places = [address(box.value) for _, box in leaves(store["m"])]
    for _, box in leaves(store["m"]):
        box.version, box.last_checksum = 7, 1
    del box
    assert id(update(store, added)) == tree
    boxes = [box for _, box in leaves(store["m"])]
    assert [address(box.value) for box in boxes] == places
    assert [(box.version, box.last_checksum) for box in boxes] == [(-1, None)] * 2
    assert all_locked([store["m"]])
    assert boxes[0].value.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("change", "whole"),
    [
        (lambda m: {"b": m["b"], "a": m["a"]}, True),
        (lambda m: {"a": m["a"]}, True),
        (lambda m: {**m, "c": np.ones(2)}, True),
        (lambda m: [m["a"], m["b"]], True),
        (lambda m: (m["a"], m["b"]), True),
        (lambda m: {1: m["a"], 2: m["b"]}, True),
        (lambda m: {"a": m["a"], "b": 5}, False),
        (lambda m: {"a": m["a"], "b": m["a"]}, False),
        (lambda m: {"a": m["a"], "b": m["b"].T}, False),
        (lambda m: {"a": m["a"], "b": m["b"].astype(">i4")}, False),
        (lambda m: {"a": m["a"], "b": np.ones(2, np.longdouble)}, False),
        (lambda m: {"a": m["a"], "b": np.ones(2, np.dtype("f8", metadata={"x": 1}))}, False),
        (lambda m: {"a": m["a"], "b": {"c": m["b"]}}, False),
        (lambda m: np.ones(3), False),
    ],
)
def test_an_update_may_make_another_tree(change: Callable[[Any], Any], whole: bool) -> None:
    """What it becomes is what a task that returns it would have made."""
    store = holding("m", two_arrays)
    old = id(store["m"])
    new = update(store, change)
    assert id(new) != old
    expected = adopt([change(two_arrays())])
    assert same(view(new), view(expected))
    assert is_storable(new) == is_storable(expected)
    assert all_locked([new])
    assert getattr(new, "whole", False) == whole
    del new
    assert same(view(update(store, lambda m: m)), view(expected))


def test_an_update_leaves_alone_what_a_snapshot_holds() -> None:
    store = holding("m", two_arrays)
    update(store, added)
    snapshot = dict(store)
    new = update(store, added)
    assert new is not snapshot["m"]
    assert view(snapshot["m"])["a"].tolist() == [1, 1, 1]
    assert view(new)["a"].tolist() == [2, 2, 2]


def test_an_array_of_an_update_that_the_task_keeps_is_copied() -> None:
    store = holding("m", two_arrays)
    kept = []

    def keep(m: Any) -> Any:
        kept.append(m["a"])
        return m

    new = update(store, keep)
    kept[0] += 5
    assert view(new)["a"].tolist() == [0, 0, 0]


def test_the_arrays_of_a_dict_of_an_update_that_the_task_keeps_are_copied() -> None:
    store = holding("m", lambda: {"inner": two_arrays(), "b": np.zeros(2)})
    kept = []

    def keep(m: Any) -> Any:
        kept.append(m["inner"])
        return m

    new = update(store, keep)
    added(kept[0])
    assert view(new)["inner"]["a"].tolist() == [0, 0, 0]
