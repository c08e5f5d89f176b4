"""The libraries that a result depends on: recorded in each checkpoint, compared on resume."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from functools import cache

__all__ = ["differences", "versions"]

_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


@cache
def _libraries() -> dict[str, str]:
    import numpy as np

    import jobrun

    found = {
        "jobrun": jobrun.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
    }
    try:
        config = np.show_config(mode="dicts")
        blas = config["Build Dependencies"]["blas"]
        found["blas"] = f"{blas['name']} {blas['version']}"
    except (TypeError, KeyError):
        pass  # a numpy built without BLAS, or one that does not say
    return found


def versions() -> dict[str, str]:
    """Libraries and their versions, and how many threads the BLAS library may use.

    The threads matter: sums are split between them, so that other numbers give other bits.
    """
    given = next((os.environ[v] for v in _THREAD_VARIABLES if os.environ.get(v)), None)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {**_libraries(), "blas_threads": given or str(cores)}


def differences(
    recorded: Mapping[str, str], now: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """What differs between the libraries of a checkpoint and those of now, one line each.

    ``now`` are those of this process by default.
    """
    now = versions() if now is None else now
    return tuple(
        f"{name.replace('_', ' ')}: {recorded[name]} -> {now[name]}"
        for name in now
        if name in recorded and recorded[name] != now[name]
    )
