"""The checksums and the digest of a chunk, however its bytes come."""

from __future__ import annotations

import random

import crc32c
import pytest

from jobrun.checkpoint.block_checksums import BLOCK
from jobrun.checkpoint.chunk_sums import ChunkSums, described

LENGTHS = [0, 7, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 7]


def digest(data: bytes) -> str:
    hashed: str = pytest.importorskip("xxhash").xxh3_128(data).hexdigest()
    return hashed


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("has_digest", [False, True])
def test_a_payload_in_several_buffers(length: int, has_digest: bool) -> None:
    data = random.Random(length).randbytes(length)
    wanted = digest(data) if has_digest else ""
    for cut in (0, length // 3, length):
        file = described("0", [data[:cut], memoryview(data)[cut:]], has_digest=has_digest)
        assert (file.name, file.length, file.crc) == ("0", length, crc32c.crc32c(data))
        assert file.digest == wanted
        blocks = [data[first : first + BLOCK] for first in range(0, length, BLOCK)]
        sums = "".join(f"{crc32c.crc32c(block):08x}" for block in blocks)
        assert file.blocks == (sums if length > BLOCK else "")


@pytest.mark.parametrize("length", LENGTHS)
def test_bytes_that_were_seen_before_count_once(length: int) -> None:
    data = random.Random(length).randbytes(length)
    sums = ChunkSums(has_digest=True)
    sums.see(0, data[: length // 2])
    sums.see(length // 4, data[length // 4 : length // 3])
    sums.see(0, b"")
    sums.see(length // 4, data[length // 4 :])
    expected = described("0", [data], has_digest=True)
    assert sums.file("0")._replace(blocks=expected.blocks) == expected
    assert sums.tail() == expected.crc.to_bytes(4, "little")
