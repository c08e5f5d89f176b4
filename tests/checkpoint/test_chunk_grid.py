from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.checkpoint import chunk_grid as grid_module
from jobrun.checkpoint.chunk_grid import Grid

shapes = st.lists(st.integers(0, 12), max_size=4).map(tuple)


@settings(deadline=None)
@given(shapes, st.integers(1, 20), st.integers(1, 200))
def test_chunks_tile_the_bytes_of_the_array(
    shape: tuple[int, ...], itemsize: int, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid_module, "CHUNK_BYTES", most)
        grid = Grid.of(shape, itemsize)
    chunks = list(grid)
    assert len(chunks) == grid.count
    assert len({c.key for c in chunks}) == len(chunks)
    end = 0
    for chunk in chunks:
        assert chunk.start == end
        assert chunk.length > 0
        assert chunk.payload == math.prod(grid.chunk) * itemsize
        assert chunk.payload <= max(most, itemsize)
        end += chunk.length
    assert end == math.prod(shape) * itemsize
    assert list(Grid.parse(shape, grid.chunk, itemsize)) == chunks


@settings(deadline=None)
@given(st.integers(1, 10**7), st.integers(1, 10**6))
def test_padding_is_less_than_one_row_a_chunk(rows: int, row: int) -> None:
    grid = Grid.of((rows, row), 1)
    padding = grid.blocks * grid.chunk[0] - rows
    assert 0 <= padding < grid.blocks


@pytest.mark.parametrize(
    ("shape", "itemsize", "chunk", "keys"),
    [
        ((), 8, (), ["0"]),
        ((5,), 4, (5,), ["0"]),
        ((32 << 20,), 1, (8 << 20,), ["0", "1", "2", "3"]),
        ((3, 4 << 20), 1, (2, 4 << 20), ["0.0", "1.0"]),
        ((2, 2, 6 << 20), 1, (1, 1, 6 << 20), ["0.0.0", "0.1.0", "1.0.0", "1.1.0"]),
        ((1, 20 << 20), 1, (1, -(-(20 << 20) // 3)), ["0.0", "0.1", "0.2"]),
        ((0, 3), 8, (1, 3), []),
        ((3, 0), 8, (3, 1), []),
        ((3,), 0, (3,), []),
    ],
)
def test_examples(
    shape: tuple[int, ...], itemsize: int, chunk: tuple[int, ...], keys: list[str]
) -> None:
    grid = Grid.of(shape, itemsize)
    assert grid.chunk == chunk
    assert [c.key for c in grid] == keys


@pytest.mark.parametrize(
    ("shape", "chunk"), [((4, 4), (2, 2)), ((4, 4), (4,)), ((4,), (0,)), ((4, 4, 4), (2, 1, 4))]
)
def test_chunks_that_are_not_contiguous_are_refused(
    shape: tuple[int, ...], chunk: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="chunks of"):
        Grid.parse(shape, chunk, 8)
