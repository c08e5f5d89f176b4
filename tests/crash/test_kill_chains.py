"""Kill, start again, kill again, … until done: the end is that of a run nobody disturbed.

A kill comes at a random instant, or before a random file operation.  Nothing is done by hand in
between: the same start is made again and again.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crash_job
import pytest
from children import COMMAND, WAIT, Child, Nursery, Places
from crash_job import (
    POLICIES,
    SPEC,
    STOPS_AFTER,
    leftovers,
    prove_all,
    result_of,
    said_saved,
)

from jobrun import load_blobs
from jobrun.checkpoint.catalog import listed, prove

MOST_IN_A_CHAIN = 12


@dataclass(frozen=True)
class Undisturbed:
    """The result of a run that nobody killed; per policy its seconds and file operations."""

    result: dict[str, Any]
    seconds: dict[str, float]
    operations: dict[str, int]


@pytest.fixture(scope="module")
def undisturbed(nursery: Nursery, module_places: Places) -> Undisturbed:
    seconds, operations, results = {}, {}, []
    for number, policy in enumerate(POLICIES):
        run = module_places() / str(number)
        start = time.monotonic()
        child = nursery.start("crash_job:count_operations", run, policy)
        assert child.wait() == 0, child.text
        seconds[policy] = time.monotonic() - start
        operations[policy] = int(child.text)
        results.append(result_of(run))
        assert leftovers(run) == []
    assert all(result == results[0] for result in results)  # how it is saved changes nothing
    assert results[0]["epoch"] == STOPS_AFTER
    return Undisturbed(results[0], seconds, operations)


def test_chains_of_kills(
    nursery: Nursery, undisturbed: Undisturbed, place: Path, long: bool
) -> None:
    wanted = 1000 if long else 15
    kills = orphans = chain = 0
    while kills < wanted:
        policy = list(POLICIES)[chain % len(POLICIES)]
        more = chain_of_kills(nursery, undisturbed, place / str(chain), policy, chain)
        kills, orphans, chain = kills + more[0], orphans + more[1], chain + 1
    print(f"{kills} kills in {chain} chains, {orphans} orphans")
    assert orphans


def chain_of_kills(
    nursery: Nursery, undisturbed: Undisturbed, run: Path, policy: str, seed: int
) -> tuple[int, int]:
    """Kill a run until it is done, and compare; gives the number of kills, and of the orphans that
    were alive all the while.
    """
    choice = random.Random(seed)
    kills = 0
    while True:
        last = kills == MOST_IN_A_CHAIN
        child = start_and_kill(nursery, undisturbed, run, policy, choice, last)
        assert child.wait() in (0, -signal.SIGKILL), child.text
        check_disk(run, f"seed {seed}, after {kills} kills")
        if child.code == 0:
            break
        kills += 1
    assert result_of(run) == undisturbed.result, f"seed {seed}"
    assert leftovers(run) == [], f"seed {seed}"
    check_retention(run, policy)
    return kills, end_orphans(run)


def start_and_kill(
    nursery: Nursery,
    undisturbed: Undisturbed,
    run: Path,
    policy: str,
    choice: random.Random,
    last: bool,
) -> Child:
    """Start the run, and kill it somewhere, unless it is to be the ``last`` start.

    Of every second start a child is left behind, once a checkpoint is saved.
    """
    threads = choice.choice([1, 2, 8])
    if last:
        return nursery.start("crash_job:train", run, policy, threads)
    number = choice.randrange(10**9)
    orphan = str(run.with_name(f"{run.name}.orphan-{number}")) if number % 2 else ""
    how = choice.random()
    if how < 0.5:
        child = nursery.start("crash_job:train", run, policy, threads, None, orphan)
        if not child.ends_within(choice.uniform(0, 0.7) * undisturbed.seconds[policy]):
            child.send(signal.SIGKILL)
        return child
    early = how < 0.65  # while it starts, cleans up and loads
    most = 30 if early else undisturbed.operations[policy] * 2 // 3
    kill_at = [choice.randrange(most)]
    return nursery.start("crash_job:train", run, policy, threads, kill_at, orphan)


def end_orphans(run: Path) -> int:
    """Let the children end that starts of a run have left behind; gives how many there were."""
    files = list(run.parent.glob(f"{run.name}.orphan-*"))
    # Nothing is in the file of one that was made at the very instant of the kill.
    numbers = [int(text) for text in (file.read_text() for file in files) if text]
    for number in numbers:
        os.kill(number, 0)  # it is alive
    for file in files:
        file.unlink()
    return len(numbers)


def check_disk(run: Path, when: str) -> None:
    """What was said to be saved is there, or something newer; and it is whole."""
    said = said_saved(run)
    if said:
        records = listed(run)
        assert records, when
        assert records[-1].id >= max(said), when
        prove(run, records[-1])


def check_retention(run: Path, policy: str) -> None:
    """As many checkpoints as are to be kept, and each of them whole."""
    records = prove_all(run)
    keep = POLICIES[policy].keep
    if not keep.all and keep.every is None:
        assert keep.last is not None
        assert keep.last <= len(records) <= keep.last + (keep.best is not None)


def test_an_orphan_does_not_hold_the_lock(
    nursery: Nursery, undisturbed: Undisturbed, place: Path
) -> None:
    """A child of the killed process lives on, with all that a fork inherits."""
    run, orphan = place / "run", place / "orphan"
    child = nursery.start("crash_job:train", run, "one", 2, None, orphan)
    try:
        while not (said_saved(run)[1:] and orphan.exists() and orphan.read_text()):
            assert not child.ends_within(0.005), child.text
        assert child.kill() == -signal.SIGKILL
        os.kill(int(orphan.read_text()), 0)  # it is alive
        again = nursery.start("crash_job:train", run, "one")
        assert again.wait() == 0, again.text
    finally:
        orphan.unlink()
    assert result_of(run) == undisturbed.result
    assert leftovers(run) == []


def test_chains_of_kills_of_the_command(undisturbed: Undisturbed, place: Path, long: bool) -> None:
    """The command line, and then the same line again, until it says that it is done."""
    (place / "chain.yaml").write_text(SPEC)
    (place / "crash_job.py").write_text(Path(crash_job.__file__).read_text())
    for seed in range(20 if long else 1):
        choice = random.Random(seed)
        run = place / f"runs-{seed}/chain"
        for number in range(choice.randint(1, 3)):
            process = start_command(run, batch_seconds="0.02")  # slow: it is not done before
            if number and choice.random() < 0.3:
                time.sleep(choice.uniform(0.0, 0.8))  # while it starts, cleans up and loads
            else:
                wait_for_checkpoint(process, run, choice)
            process.kill()
            out, _ = process.communicate()
            assert process.returncode == -signal.SIGKILL, out
        process = start_command(run)
        out, _ = process.communicate(timeout=WAIT)
        assert process.returncode == 0, out
        assert result_of(run) == undisturbed.result
        assert leftovers(run) == []
        assert len(listed(run)) == 1
        assert load_blobs(run)["trace"].shape == (STOPS_AFTER, 3)


def start_command(run: Path, batch_seconds: str = "0.0005") -> subprocess.Popen[str]:
    """The installed command; the spec lies above the directory of the runs."""
    return subprocess.Popen(
        [*COMMAND, "train", "chain.yaml", "--runs-dir", run.parent.name],
        cwd=run.parent.parent,
        env={**os.environ, "BATCH_SECONDS": batch_seconds},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for_checkpoint(process: subprocess.Popen[str], run: Path, choice: random.Random) -> None:
    """Return when a process has saved one to four checkpoints more, or while it saves the last."""
    begun = choice.random() < 0.5
    wanted = newest_id(run) + choice.randint(1, 4)
    give_up = time.monotonic() + WAIT
    while newest_id(run, begun) < wanted:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < give_up
        time.sleep(0.0005)
    if not begun:
        time.sleep(choice.uniform(0.0, 0.03))


def newest_id(run: Path, begun: bool = False) -> int:
    """The id of the newest checkpoint, also of one that is ``begun``; -1 if there is none."""
    names = os.listdir(run) if run.exists() else []
    found = [re.fullmatch(r"(\.?)checkpoint_(\d+)(\.partial-.*)?", name) for name in names]
    return max((int(m[2]) for m in found if m and (begun or not m[1])), default=-1)
