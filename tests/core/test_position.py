"""The place in a run survives JSON exactly."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.core.position import PipeState, Position, ReaderState

_names = st.text(min_size=1, max_size=5)
_counts = st.integers(0, 10**12)
_readers = st.builds(
    ReaderState,
    _counts,
    _counts,
    st.none() | _counts,
    st.dictionaries(_names, _names, max_size=2),
    st.none() | _counts | st.dictionaries(_names, _counts, max_size=2) | st.lists(_counts),
)
_numbers = st.floats(allow_nan=False) | st.integers() | st.booleans()
_pipes = st.builds(
    PipeState,
    _counts,
    st.dictionaries(
        _names,
        st.tuples(st.sampled_from(["mean", "sum", "min"]), _numbers, _counts),
        max_size=2,
    ),
)
_positions = st.builds(
    Position,
    _counts,
    st.lists(_names, max_size=3).map(tuple),
    st.dictionaries(_names, _pipes, max_size=2),
    st.dictionaries(_names, _readers, max_size=2),
)


@settings(deadline=None, max_examples=100)
@given(_positions)
def test_positions_survive_json(position: Position) -> None:
    text = json.dumps(position.to_json())
    again = Position.from_json(json.loads(text))
    assert again == position
    assert repr(again) == repr(position), "also the type of each number"


def test_the_boundary_of_an_epoch() -> None:
    readers = {"p": ReaderState(1, 2, 3, {"x": "<f8"})}
    inside = Position(2, ("a",), {"p": PipeState(4)}, readers)
    assert Position(3).at_boundary
    assert not inside.at_boundary
    assert not Position(2, ("a",)).at_boundary
    assert not Position(2, (), {"p": PipeState(0)}).at_boundary
    assert inside.next_epoch(readers) == Position(3, (), {}, readers)


@pytest.mark.parametrize(
    ("position", "place", "batches"),
    [
        (Position(2), "epoch 2", "0"),
        (Position(2, ("a",)), "epoch 3, after 1 task", "0"),
        (Position(2, ("a", "b")), "epoch 3, after 2 tasks", "0"),
        (
            Position(2, ("a",), {"train": PipeState(10)}),
            "epoch 3, after batch 10 of pipe 'train'",
            "10",
        ),
        (
            Position(0, (), {"x:train": PipeState(8), "y:train": PipeState(9)}),
            "epoch 1, after batch 8 of pipe 'x:train', batch 9 of pipe 'y:train'",
            "8..9",
        ),
        (
            Position(0, (), {f"{n}:train": PipeState(8 + n % 2) for n in range(5)}),
            "epoch 1, after batch 8..9 of 5 pipes",
            "8..9",
        ),
    ],
)
def test_the_place_in_words(position: Position, place: str, batches: str) -> None:
    assert (position.place, position.batches) == (place, batches)
