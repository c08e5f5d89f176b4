"""Run directories in memory, where there is a file system for that: saves then wait for no disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from whole_runs import MEMORY


@pytest.fixture(scope="session")
def memory() -> Iterator[Path]:
    """A folder for all runs of a session."""
    with TemporaryDirectory(dir=MEMORY, prefix="jobrun-") as folder:
        yield Path(folder)


@pytest.fixture
def run_dir(memory: Path) -> Iterator[Path]:
    """A run directory that does not exist yet, in a folder of its own."""
    with TemporaryDirectory(dir=memory) as folder:
        yield Path(folder) / "run"
