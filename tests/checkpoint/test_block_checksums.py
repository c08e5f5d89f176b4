"""The checksum of a chunk follows from those of its blocks, wherever its pieces end."""

from __future__ import annotations

import itertools
import random

import crc32c
import pytest

from jobrun.checkpoint.block_checksums import BLOCK, BlockChecksums


@pytest.mark.parametrize("length", [0, 1, 5, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 7])
def test_the_whole_and_each_block(length: int) -> None:
    data = random.Random(length).randbytes(length)
    ends = sorted({0, length, *(random.Random(1).randrange(length + 1) for _ in range(4))})
    sums = BlockChecksums()
    for start, end in itertools.pairwise(ends):
        sums.add(data[start:end])
    assert sums.whole() == crc32c.crc32c(data)
    blocks = [data[first : first + BLOCK] for first in range(0, length, BLOCK)]
    assert sums.digits() == "".join(f"{crc32c.crc32c(block):08x}" for block in blocks)
