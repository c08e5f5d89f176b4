"""The libraries that a result depends on."""

from __future__ import annotations

import numpy as np
import pytest

import jobrun
from jobrun.usercode.environment import differences, versions


def test_what_is_recorded() -> None:
    found = versions()
    assert found["jobrun"] == jobrun.__version__
    assert found["numpy"] == np.__version__
    assert {"python", "machine", "blas_threads"} <= set(found)
    assert all(isinstance(v, str) and v for v in found.values())


def test_the_threads_of_blas_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert int(versions()["blas_threads"]) >= 1
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert versions()["blas_threads"] == "3"
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "5")
    assert versions()["blas_threads"] == "5"


def test_the_kernels_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that goes on, on another processor, may have other bits."""
    assert versions()["simd"].isupper()
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    before = versions()
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    assert differences(before) == ("blas kernels: of the processor -> Haswell",)


def test_differences_are_lines() -> None:
    now = versions()
    assert differences(now) == ()
    assert differences({}) == ()
    older = {**now, "numpy": "1.0", "blas_threads": "99", "gone": "1"}
    assert differences(older) == (
        f"numpy: 1.0 -> {now['numpy']}",
        f"blas threads: 99 -> {now['blas_threads']}",
    )
