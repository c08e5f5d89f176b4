"""Bytes taken apart into lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobrun.core.process import LineDecoder


def lines(*pieces: bytes) -> list[str]:
    found: list[str] = []
    decoder = LineDecoder(found.append)
    for piece in pieces:
        decoder.add(piece)
    decoder.end()
    return found


def test_lines_end_with_either_end_or_none() -> None:
    assert lines(b"a\nb\r\n\nc") == ["a", "b", "", "c"]
    assert lines() == []
    assert lines(b"\xff\n") == ["\ufffd"]


@given(st.lists(st.text(st.characters(exclude_characters="\r\n"))), st.integers(1, 5))
def test_it_does_not_matter_in_which_pieces_they_come(texts: list[str], size: int) -> None:
    data = "".join(t + "\n" for t in texts).encode("utf-8", "replace")
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    assert lines(*pieces) == lines(data)
    assert len(lines(data)) == len(texts)
