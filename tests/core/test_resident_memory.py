"""The memory of this process and of the machine."""

from __future__ import annotations

import os

import numpy as np
import pytest

from jobrun.core.resident_memory import memory_available, memory_now, memory_peak


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the system does not tell")
def test_memory_that_is_used_is_counted() -> None:
    before = memory_now()
    assert before
    held = np.ones(8 << 20)  # 64 MiB
    now = memory_now()
    assert now
    assert now - before > 50 << 20
    peak = memory_peak()
    assert peak
    assert peak >= now
    del held


@pytest.mark.skipif(not os.path.exists("/proc/meminfo"), reason="the system does not tell")
def test_the_available_memory_is_a_part_of_what_the_machine_has() -> None:
    available = memory_available()
    assert available
    assert 1 << 20 < available <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
