"""``python -m tests.bench [BENCH...]``: measure, and print what was measured, whatever it is."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from tests.bench.harness import Measured, Scale, measure
from tests.bench.report import facts, table, to_json, verdict

BENCHES = {
    "tasks": "what a no-op task costs",
    "plans": "what it costs to plan and compile a group of tasks",
    "pipes": "what a batch of a pipe costs",
    "workers": "map steps that hold the interpreter, and large arrays, in worker processes",
    "feeding": "what threads ahead make of a map step; data loaders",
    "nodes": "what jobs of several nodes cost on dask.distributed",
    "startup": "how long the command takes to start",
    "restarts": "how long a run takes to its first epoch: a new one, and one that was killed",
    "save": "durable saves",
    "load": "verified loads: all, one, a slice",
    "changed": "durable saves after a little has changed",
    "grown": "durable saves of one array that grows, or of which a part changed",
    "kept": "durable saves of a run that keeps two checkpoints",
    "size": "how checkpoints grow with nodes, blobs, bytes, and how many are kept",
    "large_jobs": "how jobs grow with the leaves of a tree, with blobs and with tasks",
    "long_runs": "10,000 checkpoints kept, 100,000 epochs, 1,000 runs",
    "stall": "what a save in the background costs the loop that asks for it",
    "memory": "the resident memory of a run, at most",
    "spec_jobs": "what an epoch costs of jobs with PyTorch, JAX and XGBoost",
    "torch_jobs": "what a batch of a job with PyTorch costs, and the epoch after a save",
}
"""Name (its module here has ``cases(scale)``) and what it measures."""


def _arguments(args: Sequence[str] | None) -> argparse.Namespace:
    listed = "\n".join(f"  {name:10}{text}" for name, text in BENCHES.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Benchmarks of jobrun against plain loops, raw files and other libraries.",
        epilog=f"benches:\n{listed}",
    )
    parser.add_argument("benches", nargs="*", metavar="BENCH", help="by default all of them")
    parser.add_argument("--quick", action="store_true", help="small sizes: no numbers to quote")
    parser.add_argument("--rounds", type=int, metavar="N", help="instead of each case's own number")
    parser.add_argument("--case", metavar="TEXT", default="", help="only cases with TEXT in them")
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path("build/bench"),
        help="where the disk is measured (%(default)s); emptied of it at the end",
    )
    parser.add_argument(
        "--gib",
        type=float,
        default=8,
        help="how much of the disk a case may fill before that is deleted (%(default)s)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every repetition there")
    parser.add_argument("--seed", type=int, default=0, help="of the random order")
    given = parser.parse_args(args)
    unknown = [b for b in given.benches if b not in BENCHES]
    if unknown:
        parser.error(f"no bench {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    if given.rounds is not None and given.rounds < 1:
        parser.error("--rounds must be 1 or more")
    return given


def main(args: Sequence[str] | None = None) -> int:
    """Run the benches; the exit code does not depend on the numbers."""
    given = _arguments(args)
    given.dir.mkdir(parents=True, exist_ok=True)
    machine = facts(given.dir)
    print("\n".join(f"{name:12} {text}" for name, text in machine.items()), flush=True)
    root = Path(tempfile.mkdtemp(prefix="repetitions-", dir=given.dir))
    try:
        found = _run(given, root)
    finally:
        shutil.rmtree(root)
    print("\n" + verdict(found) if any(m.case.wanted for m in found) else "", flush=True)
    if given.json:
        cases = [to_json(measured) for measured in found]
        given.json.write_text(json.dumps({"machine": machine, "cases": cases}, indent=1) + "\n")
    return 0


def _run(given: argparse.Namespace, root: Path) -> list[Measured]:
    found = []
    for bench in given.benches or BENCHES:
        for number, case in enumerate(
            import_module(f"tests.bench.{bench}").cases(Scale(given.quick))
        ):
            if given.case not in case.name:
                continue
            place = root / f"{bench}-{number}"
            measured = measure(case, place, given.rounds, given.seed, given.gib * 2**30)
            print(f"\n{table(measured)}", flush=True)
            found.append(measured)
            if case.bytes:  # few files, and large; many small ones are deleted when all is over
                shutil.rmtree(place, ignore_errors=True)
    return found


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the disk is emptied
    sys.exit(main())
