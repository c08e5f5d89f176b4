"""Messages of plain values between two processes, with large arrays in shared memory.

A message is a prefix (lengths), a header in JSON, and bytes.  Small arrays travel in the
bytes.  Others are written into a *slot*: shared memory that the sender makes, passes on once by its
descriptor, and reuses.  The receiver gets arrays that are views of the slot: nothing is copied
there.  With each of its own messages it gives back the slots of which no view is left, as reference
counts show; a slot that is not given back is not written again.  So there is one slot for each
message whose arrays are still in use, and no more.

The header is ``[node, slot, size, dropped, released]``: the number of the slot (-1: none), its size
if it is new (else 0), the numbers of the sender's slots that are dropped, and of the receiver's
that are given back.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.session.workers.shared_memory import anonymous_file, mapped
from jobrun.session.workers.wire import ALIGNMENT, Packed, unpack
from jobrun.values.holders import held_alone

__all__ = ["Channel"]

Array = npt.NDArray[Any]

_PREFIX = struct.Struct("<II")
_SMALL = 16 << 10
"""Bytes up to which arrays travel in the message: below, a slot costs more than it saves."""
_GRAIN = 64 << 10
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_DECODER = json.JSONDecoder()
_COUNTS = held_alone([np.empty(1)], 0)
"""Whether reference counts show that no view is left; else each slot is copied at once."""


class Channel:
    """One end of a connection; for one thread at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._own: dict[int, Array] = {}
        self._free: list[int] = []
        self._made = 0
        self._lent: dict[int, Array] = {}
        self._used: list[int] = []

    def fileno(self) -> int:
        """Return the descriptor, to wait for messages."""
        return self._connection.fileno()

    def close(self) -> None:
        """Close this end.  Views of received arrays stay valid, and keep their memory alone."""
        self._connection.close()
        self._own.clear()
        self._lent.clear()
        self._used.clear()

    # Sending.

    def send(self, value: Any) -> None:
        """Send a plain value.

        Raises UnsendableError before anything is sent, OSError if the other end is gone.
        """
        packed = Packed(value)
        inline = b""
        slot, size = -1, 0
        dropped: list[int] = []
        descriptors: list[int] = []
        if packed.size > _SMALL:
            slot, dropped = self._choose(packed.size)
            if slot < 0:
                slot, size = self._make(packed.size, descriptors)
            packed.fill(self._own[slot])
        elif packed.size:
            area = np.zeros(packed.size, np.uint8)
            packed.fill(area)
            inline = area.tobytes()
        try:
            header = [packed.node, slot, size, dropped, self._released()]
            self._write(_ENCODER.encode(header).encode(), inline, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _choose(self, size: int) -> tuple[int, list[int]]:
        """Return a free slot that is large enough, or -1; and the slot that a new one replaces."""
        for slot in reversed(self._free):  # the last used is still in the caches
            if len(self._own[slot]) >= size:
                self._free.remove(slot)
                return slot, []
        if not self._free:
            return -1, []
        smallest = min(self._free, key=lambda slot: len(self._own[slot]))
        self._free.remove(smallest)
        del self._own[smallest]
        return -1, [smallest]

    def _make(self, wanted: int, descriptors: list[int]) -> tuple[int, int]:
        """Create a slot; return its number and size.  Its descriptor is to be sent."""
        size = -(-wanted // _GRAIN) * _GRAIN
        descriptor = anonymous_file(size)
        descriptors.append(descriptor)
        slot, self._made = self._made, self._made + 1
        self._own[slot] = mapped(os.dup(descriptor))
        return slot, size

    def _released(self) -> list[int]:
        """Return the other end's slots of which no view is left."""
        released = [slot for slot in self._used if held_alone(self._lent, slot)]
        self._used = [slot for slot in self._used if slot not in released]
        return released

    def _write(self, header: bytes, inline: bytes, descriptors: list[int]) -> None:
        header = header.ljust(-(-len(header) // ALIGNMENT) * ALIGNMENT)  # blanks, before arrays
        data = b"".join((_PREFIX.pack(len(header), len(inline)), header, inline))
        sent = 0
        if descriptors:
            sent = socket.send_fds(self._connection, [data[: _PREFIX.size]], descriptors)
        self._connection.sendall(memoryview(data)[sent:])

    # Receiving.

    def receive(self) -> Any:
        """Return the next value, once it is there; arrays in it are read-only.

        Raises EOFError if the other end is gone, or OSError.
        """
        descriptors: list[int] = []
        try:
            header, inline = self._read_message(descriptors)
            node, slot, size, dropped, released = _DECODER.decode(header.tobytes().decode())
            self._free += released
            for number in dropped:
                del self._lent[number]
            if size:
                if not descriptors:  # this process can have no more, and the system dropped it
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                self._lent[slot] = mapped(descriptors.pop())
        finally:  # the sender may have died within the message
            for descriptor in descriptors:
                os.close(descriptor)
        if slot < 0:
            return unpack(node, inline)
        self._used.append(slot)
        area = self._lent[slot]
        return unpack(node, area if _COUNTS else area.copy())

    def _read_message(self, descriptors: list[int]) -> tuple[Array, Array]:
        """Return header and bytes of a message; add the descriptor of a new slot."""
        prefix, received, _, _ = socket.recv_fds(self._connection, _PREFIX.size, 1)
        descriptors += received
        if not prefix:
            raise EOFError
        prefix += self._read(np.empty(_PREFIX.size - len(prefix), np.uint8)).tobytes()
        header_size, inline_size = _PREFIX.unpack(prefix)
        data = self._read(np.empty(header_size + inline_size, np.uint8))
        return data[:header_size], data[header_size:]

    def _read(self, area: Array) -> Array:
        view, done = area.data, 0
        while done < len(area):
            count = self._connection.recv_into(view[done:])
            if not count:
                raise EOFError
            done += count
        return area
