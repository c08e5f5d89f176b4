from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from jobrun.checkpoint import zarr_metadata
from jobrun.checkpoint.zarr_metadata import Layout, store
from jobrun.errors import DamagedError
from jobrun.values.boxes import Box

VALUES: list[tuple[str, Any]] = [
    ("float", 1.5),
    ("float", -0.0),
    ("float", math.inf),
    ("int", 0),
    ("int", -7),
    ("int", 1 << 63),
    ("bool", False),
    ("bool", True),
    ("none", None),
    ("str", '"fill_value":0,"codecs":'),
    ("str", ""),
]


def filled(layout: Layout) -> Box:
    return layout.filled(layout.fill)


def parsed(box: Box, meta: bytes) -> Layout:
    form = store(box).form
    return Layout.parse(meta, form.kind, form.dtype, form.shape or ())


def test_each_of_many_leaves_has_its_own_value() -> None:
    for kind, value in VALUES * 2:
        box = Box(value, kind)
        found = filled(parsed(box, store(box).form.meta))
        assert (repr(found.value), found.kind) == (repr(value), kind)


def test_metadata_that_differ_in_the_value_alone_are_parsed_once() -> None:
    zarr_metadata._frame.cache_clear()
    for i in range(20):
        box = Box(i + 0.5, "float")
        assert filled(parsed(box, store(box).form.meta)).value == i + 0.5
        array = Box(np.full(3, i), "array")
        assert parsed(array, store(array).form.meta).grid.count == 1
    assert zarr_metadata._frame.cache_info().misses == 2


@pytest.mark.parametrize("fill", [b"", b"1.5,", b"nul", b'"', b"[1"])
def test_a_fill_value_that_is_no_json_is_damage(fill: bytes) -> None:
    box = Box(1.5, "float")
    meta = store(box).form.meta
    assert filled(parsed(box, meta)).value == 1.5
    assert b'"fill_value":1.5,' in meta
    with pytest.raises(DamagedError, match="not those of a blob"):
        parsed(box, meta.replace(b'"fill_value":1.5,', b'"fill_value":' + fill + b","))


def test_a_layout_is_not_shared_by_leaves_of_different_kinds() -> None:
    meta = store(Box(1, "int")).form.meta
    assert filled(Layout.parse(meta, "int", None, ())).value == 1
    with pytest.raises(DamagedError, match="its metadata have"):
        Layout.parse(meta, "float", None, ())
    with pytest.raises(DamagedError):
        Layout.parse(meta, "int", None, (2,))
