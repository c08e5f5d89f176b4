"""Channels: messages arrive as they were sent, and a slot in use is never written again."""

from __future__ import annotations

import gc
import os
import resource
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine import within
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.session.workers import channel as channels
from jobrun.session.workers.channel import Channel
from jobrun.session.workers.shared_memory import anonymous_file
from jobrun.session.workers.wire import UnsendableError

LARGE = 100_000


def memory_files() -> int:
    """How many pieces of shared memory this process holds."""
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found += "memfd:jobrun" in os.readlink(entry)
        except OSError:
            continue
    return found


@pytest.fixture
def pair() -> Iterator[tuple[Channel, Channel]]:
    """The two ends of a channel; no shared memory is left after it."""
    gc.collect()
    before = memory_files()
    ends = [Channel(end) for end in socket.socketpair()]
    yield ends[0], ends[1]
    for end in ends:
        end.close()
    gc.collect()
    assert memory_files() == before


def passed(ours: Channel, theirs: Channel, value: Any) -> Any:
    """A value as the other end gets it."""
    thread = threading.Thread(target=ours.send, args=(value,), daemon=True)
    thread.start()
    found = within(20, theirs.receive)
    thread.join(20)
    return found


@pytest.mark.parametrize("size", [0, 1, 2000, 2049, LARGE, 3 * LARGE])
def test_small_and_large_arrays_arrive(pair: tuple[Channel, Channel], size: int) -> None:
    for number in range(3):
        found = passed(*pair, {"a": np.arange(size) + number, "b": [np.arange(3), "x"]})
        assert (found["a"] == np.arange(size) + number).all()
        assert found["b"][0].tolist() == [0, 1, 2]
        assert found["b"][1] == "x"


def test_a_long_text_arrives(pair: tuple[Channel, Channel]) -> None:
    assert passed(*pair, ["x" * 3_000_000, 1]) == ["x" * 3_000_000, 1]


def test_large_arrays_are_views_of_shared_memory_that_is_used_again(
    pair: tuple[Channel, Channel],
) -> None:
    ours, theirs = pair
    before = memory_files()
    for number in range(20):
        found = passed(ours, theirs, np.full(LARGE, number))
        assert type(found.base) is np.ndarray
        assert not found.base.flags.owndata
        assert found[-1] == number
        del found
        passed(theirs, ours, "done")
    assert memory_files() <= before + 4  # two slots at most, mapped at both ends


def test_what_is_kept_is_never_written_again(pair: tuple[Channel, Channel]) -> None:
    ours, theirs = pair
    kept = []
    for number in range(12):
        found = passed(ours, theirs, np.full(LARGE, number))
        kept.append(found[::7] if number % 3 == 0 else found.view())
        del found
        if number % 4 == 3:
            del kept[0]
        passed(theirs, ours, "done")
    assert all((array == array[0]).all() for array in kept)
    assert len({int(array[0]) for array in kept}) == len(kept)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 5)), max_size=25))
def test_any_sizes_kept_for_any_time(steps: list[tuple[int, int]]) -> None:
    ours, theirs = (Channel(end) for end in socket.socketpair())
    kept: list[tuple[int, Any]] = []
    most = 0
    for number, (size, keep) in enumerate(steps):
        kept.append((number, passed(ours, theirs, np.full(size, number))))
        del kept[: max(0, len(kept) - keep)]
        passed(theirs, ours, None)
        most = max(most, len(kept))
        assert all((array == n).all() for n, array in kept)
        assert len(ours._own) <= 7
    ours.close()
    theirs.close()


def test_without_reference_counts_everything_is_copied(
    pair: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "_COUNTS", False)
    found = passed(*pair, np.arange(LARGE))
    assert found.base.flags.owndata


def test_what_cannot_be_sent_leaves_the_channel_as_it_was(pair: tuple[Channel, Channel]) -> None:
    with pytest.raises(UnsendableError):
        pair[0].send([np.zeros(LARGE), object()])
    assert passed(*pair, 1) == 1


def test_the_end_of_the_other_side_is_an_error(pair: tuple[Channel, Channel]) -> None:
    pair[0].close()
    with pytest.raises(EOFError):
        pair[1].receive()
    with pytest.raises(OSError, match="Broken pipe"):
        pair[1].send(np.zeros(LARGE))


@pytest.mark.parametrize("sent", [3, 8, 20])
def test_a_sender_that_dies_within_a_message_leaves_no_descriptor(sent: int) -> None:
    gc.collect()
    before = memory_files()
    ours, theirs = socket.socketpair()
    descriptor = anonymous_file(100)
    message = struct.pack("<II", 64, 0) + bytes(64)
    socket.send_fds(ours, [message[:sent]], [descriptor])
    os.close(descriptor)
    ours.close()
    channel = Channel(theirs)
    with pytest.raises(EOFError):
        within(20, channel.receive)
    channel.close()
    assert memory_files() == before


def test_where_there_are_no_descriptors_left_it_is_an_error_of_the_system() -> None:
    """The system then passes on the message without the one of its shared memory."""
    ours, theirs = socket.socketpair()
    sender, receiver = Channel(ours), Channel(theirs)
    thread = threading.Thread(target=sender.send, args=(np.zeros(LARGE),), daemon=True)
    thread.start()
    thread.join(20)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(free := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            within(20, receiver.receive)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for end in (sender, receiver):
            end.close()
