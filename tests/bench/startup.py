"""How long ``jobrun --help`` takes, against a bare interpreter and the import of click."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench.harness import Case, Contestant, Scale, Wanted, timed

BARE, CLICK, HELP = "python -c pass", "import click", "jobrun --help"


def cases(scale: Scale) -> Iterator[Case]:
    """Starts of processes; ``import jobrun`` and the libraries are there to compare with."""
    command = str(Path(sys.executable).with_name("jobrun"))
    yield Case(
        name="start-up",
        contestants=[
            Contestant(BARE, _python("pass")),
            Contestant(CLICK, _python("import click")),
            Contestant("import jobrun", _python("import jobrun")),
            Contestant("import numpy", _python("import numpy")),
            Contestant(HELP, _start(command, "--help")),
            Contestant("jobrun train --help", _start(command, "train", "--help")),
            Contestant("jobrun --version", _start(command, "--version")),
        ],
        reference=CLICK,
        floor=BARE,
        items=1,
        item="start",
        rounds=scale.of(40, 2),
        wanted=[Wanted(f"{HELP}: times {CLICK}", lambda m: m.ratio(HELP, CLICK), 1.5)],
    )


def _python(code: str) -> Callable[[Path], float]:
    return _start(sys.executable, "-c", code)


def _start(*command: str) -> Callable[[Path], float]:
    def call() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)

    return lambda directory: timed(call)
