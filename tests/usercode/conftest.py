"""The user's modules and folders, apart for each test."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from jobrun.usercode import modules


@pytest.fixture(autouse=True)
def clean_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test starts without the folders and modules of the others."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(modules, "_folders", [])
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]
