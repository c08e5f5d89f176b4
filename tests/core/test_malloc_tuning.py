"""Memory that was freed is used again, without new page faults."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

REPLACING = """
import resource, sys, threading
import numpy as np
from jobrun.core.malloc_tuning import keep_freed_memory

if "tuned" in sys.argv:
    keep_freed_memory()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def replace():
    state = [np.zeros(1 << 20) for _ in range(8)]
    for _ in range(4):
        state = [array + 1 for array in state]
    before = faults()
    for _ in range(4):
        state = [array + 1 for array in state]
    print(faults() - before)

thread = threading.Thread(target=replace)
thread.start()
thread.join()
"""
PAGES = 64 * 256
"""Pages of the state."""


def last_faults(how: str, **environment: str) -> int:
    """The page faults of a thread that replaces 64 MiB four times, after as many times."""
    env = {k: v for k, v in os.environ.items() if "MALLOC" not in k and k != "GLIBC_TUNABLES"}
    done = subprocess.run(
        [sys.executable, "-c", REPLACING, how],
        env=env | environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_freed_memory_is_used_again() -> None:
    assert last_faults("as it is") > PAGES // 4
    assert last_faults("tuned") < PAGES // 20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_what_the_environment_sets_stays() -> None:
    assert last_faults("tuned", MALLOC_TRIM_THRESHOLD_="131072") > PAGES // 4
