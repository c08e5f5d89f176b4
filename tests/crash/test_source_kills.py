"""Kill runs that read sources of every kind: what was consumed in the end is every row, once.

The runs are the command ``jobrun train`` and the same line again, killed at a place that is named
(in a user's function, before a file operation) or at any instant.  Saves fall within epochs.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import source_job
from children import COMMAND, Nursery, Places
from crash_job import leftovers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from source_job import ROWS, SOURCES, Reading, result_of, spec_of, write_files

from jobrun import load_blobs
from jobrun.checkpoint.catalog import listed, prove

LONG = bool(os.environ.get("JOBRUN_LONG"))
RUN = Path("runs/reading")
How = tuple[int, int | None]
"""``threads`` and ``ahead`` of the pipes."""


@dataclass(frozen=True)
class Kill:
    """Where a run is ended: at a visit of a place, at a file operation, or after seconds."""

    place: str = ""
    operation: int | None = None
    seconds: float | None = None


VISITS = ("open", "next", "item", "state", "load", "map", "do")
kills = st.one_of(
    st.builds(lambda p, n: Kill(f"{p} {n}"), st.sampled_from(VISITS), st.integers(1, ROWS)),
    st.builds(lambda n: Kill(operation=n), st.integers(0, 400)),
    st.builds(lambda s: Kill(seconds=s), st.floats(0, 0.3)),
)
readings = st.builds(
    Reading,
    source=st.sampled_from(list(SOURCES)),
    batch=st.integers(1, 5),
    shuffle=st.booleans(),
    buffer=st.integers(1, 9),
    drop_last=st.booleans(),
    batches_per_epoch=st.none() | st.integers(1, 12),
    passes=st.none() | st.integers(1, 2),
    shard=st.sampled_from([(0, 1), (0, 1), (0, 2), (1, 2), (2, 3)]),
).filter(lambda reading: reading.taken > 0)
counts = st.tuples(st.integers(1, 8), st.none() | st.integers(1, 9))
"""``threads`` and ``ahead``, which may differ from start to start."""


@pytest.fixture(scope="module")
def files(nursery: Nursery, module_places: Places) -> Path:
    """A folder with the files that the sources read."""
    nursery.warm("source_job", "zarr")
    folder = module_places()
    write_files(folder)
    return folder


def run_in(files: Path, name: str) -> Path:
    """A folder of its own, beside the files that it reads."""
    folder = files / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in files.iterdir():
        if path.name.startswith(("d.", "part-")):
            (folder / path.name).symlink_to(path)
    return folder


def start(
    nursery: Nursery,
    folder: Path,
    readings: Sequence[Reading],
    how: How,
    kill: Kill,
    *words: str,
) -> int:
    """Start the command, as it is typed each time, and end it; gives how it ended."""
    (folder / "reading.yaml").write_text(spec_of(readings, *how))
    operation = None if kill.operation is None else [kill.operation]
    words = ("train", "reading.yaml", *words)
    child = nursery.start("source_job:command", kill.place, operation, *words, folder=folder)
    if kill.seconds is not None and not child.ends_within(kill.seconds):
        child.send(signal.SIGKILL)
    code = child.wait()
    assert code in (0, -signal.SIGKILL), child.text
    return code


def check_end(
    nursery: Nursery, files: Path, folder: Path, readings: Sequence[Reading], *words: str
) -> None:
    """The run that is done is as one, on one thread, that nobody disturbed."""
    alone = run_in(files, "undisturbed")
    assert start(nursery, alone, readings, (1, None), Kill(), *words) == 0
    for place in (alone, folder):
        blobs = load_blobs(place / RUN)
        for number, reading in enumerate(readings):
            reading.check(blobs[f"log_{number}"].tolist())
    assert result_of(folder / RUN) == result_of(alone / RUN)
    assert leftovers(folder / RUN) == []


def kill_and_go_on(
    nursery: Nursery,
    files: Path,
    readings: Sequence[Reading],
    struck: Sequence[tuple[How, Kill]],
    *words: str,
) -> int:
    """Start and kill, again and again, then to the end; gives how often it really was killed."""
    folder, killed = run_in(files, "disturbed"), 0
    for how, kill in struck:
        killed += start(nursery, folder, readings, how, kill, *words) != 0
        records = listed(folder / RUN) if (folder / RUN).exists() else []
        if records:
            prove(folder / RUN, records[-1])
    assert start(nursery, folder, readings, (3, 4), Kill(), *words) == 0
    check_end(nursery, files, folder, readings, *words)
    return killed


@pytest.mark.parametrize("odd", [0, 1] if LONG else [0])
def test_sources_of_every_kind_are_read_on_where_they_were_left(
    nursery: Nursery, files: Path, odd: int
) -> None:
    """A pipe of each kind; on as many threads, so that every kill finds them all inside an epoch.

    Every second one is shuffled.  From start to start the pipes have other numbers of threads.
    """
    readings = [Reading(s, 2 + n % 3, shuffle=n % 2 == odd, batches_per_epoch=7)
                for n, s in enumerate(SOURCES)]  # fmt: skip
    places = ["do 60", "map 80", "next 30", "item 20", "state 15", "do 60"]
    struck = [((n % 8 + 1, n), Kill(place)) for n, place in enumerate(places, 1)]
    threads = ("--threads", str(len(readings)))
    assert kill_and_go_on(nursery, files, readings, struck, *threads) == len(places)


@settings(
    deadline=None,
    max_examples=300 if LONG else 8,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(readings, st.lists(st.tuples(counts, kills), min_size=1, max_size=5 if LONG else 3))
def test_any_reading_killed_anywhere_is_that_of_an_undisturbed_run(
    nursery: Nursery,
    files: Path,
    reading: Reading,
    struck: list[tuple[How, Kill]],
) -> None:
    kill_and_go_on(nursery, files, [reading], struck)


@pytest.mark.parametrize("source", list(SOURCES) if LONG else ["concat of streams"])
def test_the_installed_command(nursery: Nursery, files: Path, source: str) -> None:
    """Processes of their own from the start on, killed from outside or by themselves."""
    choice = random.Random(source)
    reading = Reading(source, shuffle=True, batches_per_epoch=5, drop_last=True, passes=2)
    folder = run_in(files, "command")
    shutil.copy(source_job.__file__, folder)
    shutil.copy(Path(source_job.__file__).with_name("crash_job.py"), folder)
    line = [*COMMAND, "train", "reading.yaml"]
    for number in range(4 if LONG else 2):
        (folder / "reading.yaml").write_text(spec_of([reading], choice.randint(1, 8), 4))
        place = f"do {choice.randint(4, 8)}" if number % 2 == 0 else ""
        process = subprocess.Popen(
            line,
            cwd=folder,
            env={**os.environ, "STRIKE": place},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if not place:
            time.sleep(choice.uniform(0.3, 1.2))
            process.kill()
        out, _ = process.communicate(timeout=90)
        assert process.returncode in (-signal.SIGKILL, 0), out
        assert number or process.returncode == -signal.SIGKILL, out
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    check_end(nursery, files, folder, [reading])
