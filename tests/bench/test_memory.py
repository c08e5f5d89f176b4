"""A run's resident memory: the blobs, what is being saved by copy, and 60 MB."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from jobrun import load_blobs
from jobrun.core.resident_memory import memory_peak
from tests.bench.memory import LOOP, MARGIN, OURS, STYLES, peak

pytestmark = pytest.mark.skipif(memory_peak() is None, reason="the system does not tell")
GIB6 = 6 << 10


@pytest.mark.parametrize("style", STYLES)
def test_a_run_holds_its_blobs_and_what_is_copied(style: str, tmp_path: Path) -> None:
    """So does one that resumes: a live object is there as setup made it, and as it was saved."""
    mib = 48
    copied = STYLES[style] * mib * 2**20 / 1e6
    loop = peak(LOOP, style, mib, tmp_path)
    for epochs in (2, 4):
        ours = peak(OURS, style, mib, tmp_path, epochs)
        assert loop <= ours <= loop + copied + MARGIN


@pytest.mark.skipif(not os.environ.get("JOBRUN_LONG"), reason="JOBRUN_LONG is not set")
@pytest.mark.parametrize("style", STYLES)
def test_six_gib_of_state(style: str, tmp_path: Path) -> None:
    """On a machine with 24 GiB: twelve in memory, and as much on the disk."""
    memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if memory < 13 << 30 or shutil.disk_usage(tmp_path).free < 26 << 30:
        pytest.skip("there is not enough room")
    try:
        used = [peak(OURS, style, GIB6, tmp_path, epochs) for epochs in (2, 3)]
        assert max(used) <= 2 * GIB6 * 2**20 / 1e6 + MARGIN
        name = "net/w7" if style == "live" else "w/w7"
        assert (load_blobs(tmp_path / "run", name)[name] == 4.0).all()
    finally:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
