"""One run of a sweep, in its own process: ``cli.fleet`` starts it and listens to it.

Its stdin holds an order, one line of JSON, and then the names of signals, a line each, as they
reach the sweep; at its end the sweep was killed, and the run ends as if by SIGTERM.  Its
stdout holds events, a line of JSON each, with the lines to show to a person, and at
the end the result of the run.  The output of tasks, and errors, are on stderr.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from jobrun.cli.failure import show
from jobrun.cli.options import Settings
from jobrun.cli.signals import Signals
from jobrun.core import gc_tuning
from jobrun.core.children import kill_children
from jobrun.core.events import PASSING, Event
from jobrun.core.paths import seen_from_here
from jobrun.storage.lock import VARIABLE

__all__ = ["Order", "main"]

_GRACE = 10.0
"""The seconds to reach a place where the run can be saved, once the sweep has been killed."""


@dataclass(frozen=True, slots=True)
class Order:
    """The order for a run: JSON values alone.

    ``path``, ``text`` and ``folder`` are of the spec, ``values`` of its matrix (see
    ``core.json_floats``), ``run`` is the directory of the run.  ``spec_path`` and ``spec_text``
    are what is kept in it of the spec; ``events``: an error that ends the run is an event too,
    not text.
    With ``local`` the run uses this process, whatever session its spec has, and ``lock`` is the
    value of JOBRUN_LOCK, if not this process's own.  The rest are options, and commands for
    messages.
    """

    path: str
    text: str
    folder: str
    sets: tuple[str, ...]
    epochs: int | None
    values: Mapping[str, Any]
    run: str
    spec_path: str
    spec_text: str
    accept_changes: bool
    again: str
    afresh: str
    program: str
    threads: int
    check: bool
    wait: bool
    verbosity: int
    events: bool
    traceback: bool
    scheduler: str | None = None
    local: bool = False
    lock: str = ""


def main() -> NoReturn:
    """Run the order on stdin, and end the process with the run's exit code."""
    stdin, events = _channels()
    order = Order(**json.loads(stdin.readline()))
    if order.lock:
        os.environ[VARIABLE] = order.lock
    louder = {"quiet": order.verbosity < 0, "verbose": order.verbosity > 0}
    settings = Settings(**louder, json=True, color="never", traceback=order.traceback)
    gc_tuning.rare()
    try:
        with seen_from_here(), Signals() as signals:
            threading.Thread(target=_receive_signals, args=(stdin,), daemon=True).start()
            code = _run(order, settings, signals, Wire(events, order.verbosity))
    except KeyboardInterrupt:
        code = 130
    except Exception as error:  # shown as a bug unless it is a jobrun error
        code = show(error, settings)
    with suppress(OSError):  # the sweep has been killed
        sys.stdout.flush()
    sys.exit(code)


def _channels() -> tuple[BinaryIO, BinaryIO]:
    """Return stdin and stdout under descriptors that no task and no program uses."""
    stdin = os.fdopen(os.dup(0), "rb", buffering=0)
    events = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return stdin, events


def _receive_signals(stdin: BinaryIO) -> None:
    """Send this process the signals that reach the sweep."""
    own = os.getpid()
    for line in stdin:
        os.kill(own, signal.Signals[line.decode().strip()])
    os.kill(own, signal.SIGTERM)
    time.sleep(_GRACE)
    os.kill(own, signal.SIGTERM)  # the second one exits at once
    time.sleep(1)
    kill_children()
    os._exit(143)


def _run(order: Order, settings: Settings, signals: Signals, wire: Wire) -> int:
    from jobrun.cli.running import Engine
    from jobrun.cli.waiting import once_free
    from jobrun.cli.watching import Watching
    from jobrun.core.json_floats import from_json
    from jobrun.engine.resume_policy import Request
    from jobrun.jobspec.resolve import dump_resolved, load, with_values
    from jobrun.jobspec.validate import job_of

    whole = load(
        order.path,
        order.sets,
        epochs=order.epochs,
        folder=order.folder,
        data=order.text.encode(),
        scheduler=order.scheduler,
    )
    spec = with_values(whole, from_json(order.values))
    request = Request(
        "resume",  # never another run beside it: the sweep decides that
        accept_changes=order.accept_changes,
        folder=Path(order.folder),
        spec_path=Path(order.spec_path),
        spec_text=order.spec_text,
        resolved_text=dump_resolved(spec),
        program=order.program,
        again=order.again,
        afresh=order.afresh,
    )
    on_error = wire.write if order.events else None
    run = Path(order.run)

    def start() -> int:
        watching = Watching(settings, instead=wire, on_error=on_error)
        engine = Engine(
            watching, signals, threads=order.threads, check=order.check, local=order.local
        )
        return engine.run(job_of(spec), request, str(run.parent), run)

    return once_free(start, signals, wait=order.wait)


class Wire:
    """A writer of events and their lines to the sweep."""

    def __init__(self, stream: BinaryIO, verbosity: int) -> None:
        from jobrun.report.lines import Describer

        self._stream = stream
        self._describe = Describer(verbosity)

    def __call__(self, event: Event) -> None:
        """Write ``event``; progress within an epoch is left out."""
        from jobrun.report.formatting import json_values

        if isinstance(event, PASSING):
            return
        self.write({"lines": self._describe(event), **json_values(event.to_json())})

    def write(self, values: Mapping[str, Any]) -> None:
        """Write a line."""
        self._stream.write(json.dumps(values).encode() + b"\n")
