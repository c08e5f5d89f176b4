"""The libraries that results depend on: recorded in each checkpoint, compared on resume."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from jobrun._version import __version__

__all__ = ["differences", "versions"]

_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


@cache
def _libraries() -> dict[str, str]:
    import numpy as np

    found = {
        "jobrun": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
    }
    config: Any = np.show_config(mode="dicts")
    with suppress(TypeError, KeyError):  # a numpy built without BLAS, or one that does not say
        blas = config["Build Dependencies"]["blas"]
        found["blas"] = f"{blas['name']} {blas['version']}"
    with suppress(TypeError, KeyError, IndexError):
        simd = config["SIMD Extensions"]
        found["simd"] = [*simd["baseline"], *simd.get("found", ())][-1]
    return found


def versions() -> dict[str, str]:
    """Return the libraries with their versions, and the other settings that results depend on.

    The BLAS library splits sums between its threads, and its kernels and numpy's depend on the
    processor, or on the one selected by a variable: other settings give other bits.
    """
    given = next((os.environ[v] for v in _THREAD_VARIABLES if os.environ.get(v)), None)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    kernels = os.environ.get("OPENBLAS_CORETYPE") or "of the processor"
    return {**_libraries(), "blas_threads": given or str(cores), "blas_kernels": kernels}


def differences(
    recorded: Mapping[str, str], now: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the differences between the libraries of a checkpoint and those of now, as lines.

    ``now`` defaults to those of this process.
    """
    now = versions() if now is None else now
    return tuple(
        f"{name.replace('_', ' ')}: {recorded[name]} -> {now[name]}"
        for name in now
        if name in recorded and recorded[name] != now[name]
    )
