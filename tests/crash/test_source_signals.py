"""SIGINT and SIGTERM while a pipe is inside its source, a ``map`` or a ``do`` step.

Once: what runs may end, nothing begins, the place is saved, and the run that goes on ends as one
left alone.  Twice: it is left at once, though the step never ends.  No process is left either way.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from children import Child, Nursery, Places
from source_job import Reading, result_of, spec_of, write_files

from jobrun import load_blobs

RUN = Path("runs/reading")
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
HELD = {"next": "iterator", "item": "items", "map": "csv", "do": "npy"}
"""A place to be in, and a source that comes there."""

Start = Callable[..., Child]


@pytest.fixture(scope="module")
def files(nursery: Nursery, module_places: Places) -> Path:
    nursery.warm("source_job")
    folder = module_places()
    write_files(folder)
    return folder


@pytest.fixture
def started(nursery: Nursery, files: Path, place: Path) -> Start:
    """Starts the command in a folder of its own, held at a place if one is given."""
    for path in files.glob("*"):
        (place / path.name).symlink_to(path)

    def start(reading: Reading, threads: int, held: str = "") -> Child:
        (place / "reading.yaml").write_text(spec_of([reading], threads))
        return nursery.start("source_job:held", held, "train", "reading.yaml", folder=place)

    return start


def finish(started: Start, reading: Reading, place: Path) -> dict[str, Any]:
    """Go on to the end; gives the result."""
    child = started(reading, 2)
    assert child.wait() == 0, child.text
    reading.check(load_blobs(place / RUN)["log_0"].tolist())
    return result_of(place / RUN)


def nothing_is_left(child: Child) -> bool:
    """Whether the process group of a child that has ended is empty."""
    try:
        os.killpg(child.pid, 0)
    except ProcessLookupError:
        return True
    return False


def threads_for(where: str, long: bool) -> list[int]:
    """All numbers in the long version, else one with reading ahead and one without."""
    return list(range(1, 9)) if long else [1, 2 + list(HELD).index(where)]


@pytest.mark.parametrize("where", list(HELD))
def test_once(started: Start, place: Path, where: str, long: bool) -> None:
    reading = Reading(HELD[where], shuffle=HELD[where] in ("items", "npy"), batches_per_epoch=7)
    alone = finish(started, reading, place)
    for threads in threads_for(where, long):
        number = list(CODES)[threads % 2]
        again(place)
        child = started(reading, threads, f"{where} 9")
        child.wait_for(place / "at")
        child.send_group(number)
        child.wait_for_text(f"{number.name}: no new work starts")
        (place / "go").touch()
        assert child.wait() == CODES[number], child.text
        assert "Traceback" not in child.text
        assert child.text.splitlines()[-1] == "jobrun resume runs/reading"
        assert nothing_is_left(child)
        assert finish(started, reading, place) == alone


@pytest.mark.parametrize("where", list(HELD))
def test_twice(started: Start, place: Path, where: str, long: bool) -> None:
    reading = Reading(HELD[where], batches_per_epoch=7)
    alone = finish(started, reading, place)
    for threads in threads_for(where, long):
        again(place)
        child = started(reading, threads, f"{where} 9")
        child.wait_for(place / "at")
        child.send_group(signal.SIGTERM)
        child.wait_for_text("SIGTERM: no new work starts")
        child.send_group(signal.SIGINT)
        assert child.wait() == 130, child.text
        assert "SIGINT again: exited at once; the last checkpoint is whole" in child.text
        assert nothing_is_left(child)
        (place / "go").touch()
        assert finish(started, reading, place) == alone


def again(folder: Path) -> None:
    """Make the folder as it was."""
    for name in ("at", "go"):
        (folder / name).unlink(missing_ok=True)
    if (folder / "runs").exists():
        (folder / "runs").rename(folder / f"runs-{len(list(folder.glob('runs-*')))}")
