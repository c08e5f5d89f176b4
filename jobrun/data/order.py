"""The order of the rows in a pass: a random permutation, in little memory for any number of rows.

A permutation of a few million rows is drawn as an array.  Of more rows it is computed place by
place: a Feistel network over the next power of two, whose results beyond the rows are put through
it again until they are within ("cycle walking").  Luby and Rackoff, "How to construct pseudorandom
permutations from pseudorandom functions", 1988; Black and Rogaway, "Ciphers with arbitrary finite
domains", 2002.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from jobrun.data.source import Permutation

__all__ = ["Walk", "pass_order"]

_DRAWN = 1 << 22
"""So many rows at most are permuted as an array, of 32 MiB."""
_AT_ONCE = 1 << 16
_ROUNDS = 6

Words = npt.NDArray[np.uint64]


def pass_order(rows: int, rng: np.random.Generator) -> Permutation | Walk:
    """Return the rows of a pass in a random order, to be sliced."""
    return rng.permutation(rows) if rows <= _DRAWN else Walk(rows, rng)


class Walk:
    """A permutation of ``range(rows)`` that is computed where it is looked at."""

    def __init__(self, rows: int, rng: np.random.Generator) -> None:
        self._rows = rows
        bits = max(2, (rows - 1).bit_length())
        self._low_bits = np.uint64(bits // 2)
        self._low = np.uint64((1 << bits // 2) - 1)
        self._high = np.uint64((1 << bits - bits // 2) - 1)
        self._keys = rng.integers(0, 1 << 64, _ROUNDS, np.uint64)
        self._start = 0
        self._kept: Permutation = np.empty(0, np.intp)

    def __getitem__(self, where: slice) -> Permutation:
        """Return the rows at the places of a slice."""
        low, high, step = where.indices(self._rows)
        if low < self._start or high > self._start + len(self._kept):
            self._start = low
            more = min(max(high, low + _AT_ONCE), self._rows)
            self._kept = self._walked(np.arange(low, more, dtype=np.uint64))
        return self._kept[low - self._start : high - self._start : step]

    def _walked(self, places: Words) -> Permutation:
        found = self._network(places)
        outside = np.flatnonzero(found >= self._rows)
        while len(outside):
            found[outside] = self._network(found[outside])
            outside = outside[found[outside] >= self._rows]
        return found.astype(np.intp)

    def _network(self, places: Words) -> Words:
        """Return a permutation of the power of two.

        Each half in turn is masked by a hash of the other.
        """
        low, high = places & self._low, places >> self._low_bits
        for number, key in enumerate(self._keys):
            if number % 2:
                low = low ^ (_hash(high, key) & self._low)
            else:
                high = high ^ (_hash(low, key) & self._high)
        return low | (high << self._low_bits)


def _hash(words: Words, key: np.uint64) -> Words:
    """Return the finalizer of splitmix64 (Steele, Lea and Flood, 2014)."""
    mixed = words + key
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed
