"""A job that waits, wherever it is told to, until it may go on; and the command that runs it."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from jobrun.cli import main
from jobrun.jobspec import resolve
from jobrun.storage.fs import DEFAULT

SPEC = """\
name: pausing
seed: 5
setup:
  - {call: "pausing:setup_rows", out: rows}
  - {call: "pausing:after_setup", in: [rows], out: x}
init:
  - {call: "pausing:init_model", in: [rng], out: model}
  - {call: "pausing:after_init", in: [model], out: total}
epoch:
  - {call: "pausing:before_pipe", in: [model, epoch], out: scale}
  - name: train
    pipe: {from: {x: x}, batch: 4, shuffle: true}
    do: [{call: "pausing:batch", in: [x, scale, epoch], update: [model], out: loss}]
  - {call: "pausing:after_pipe", in: [scale, loss, total], out: total}
metrics: {loss: min}
stop: {epochs: 3}
download:
  - {call: "pausing:download_model", in: [model], out: copy}
  - {call: "pausing:after_download", in: [copy], out: copy_2}
exit:
  - {call: "pausing:exit_report", in: [copy_2], out: told}
  - {call: "pausing:after_exit", in: [told, total], with: {path: "${run.dir}/report.txt"}}
"""

PHASES = ("setup", "init", "epoch", "batch", "save", "load", "download", "exit")
"""``load`` is that of a run that goes on: a chunk of its checkpoint is about to be read."""


def pause(phase: str) -> None:
    """Say that a phase is reached, if it is the one, and wait until the file ``go`` is there."""
    if os.environ.get("PAUSE") != phase or Path(f"at-{phase}").exists():
        return
    if phase.startswith("struck "):  # by a signal that does not wake the main thread
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    Path(f"at-{phase}").touch()
    give_up = time.monotonic() + 120
    while not Path("go").exists():
        time.sleep(0.002)
        if time.monotonic() > give_up:
            raise RuntimeError("nobody says go")


def setup_rows() -> int:
    pause("setup")
    if os.environ["PAUSE"] == "fail":
        raise ValueError("no rows")
    return 40


def after_setup(rows: int) -> np.ndarray:
    return np.linspace(0.0, 1.0, rows)


def init_model(rng: np.random.Generator) -> np.ndarray:
    pause("init")
    return rng.normal(size=8)


def after_init(model: np.ndarray) -> float:
    return float(model.sum())


def before_pipe(model: np.ndarray, epoch: int) -> float:
    if epoch == 2:
        pause("epoch")
        pause("struck epoch")
    return float(model.max())


def batch(x: np.ndarray, scale: float, epoch: int, model: np.ndarray) -> float:
    if epoch == 2:
        pause("batch")
    model += x.mean() * scale
    return float(model.mean())


def after_pipe(scale: float, loss: float, total: float) -> float:
    return total + scale * loss


def download_model(model: np.ndarray) -> np.ndarray:
    pause("download")
    return model * 2


def after_download(copy: np.ndarray) -> np.ndarray:
    return copy + 1


def exit_report(copy_2: np.ndarray) -> float:
    pause("exit")
    return float(copy_2.sum())


def after_exit(told: float, total: float, path: str) -> None:
    Path(path).write_text(f"{told!r} {total!r}\n")


def signal_in_a_callback(number: signal.Signals) -> None:
    """Be struck by a signal where an exception is only printed: before there is a run to stop."""

    class Callback:
        def __del__(self) -> None:
            signal.raise_signal(number)

    load = resolve.load

    def loading(*arguments: Any, **more: Any) -> Any:
        Callback()
        return load(*arguments, **more)

    resolve.load = loading


def pause_at_operations(phase: str) -> None:
    """Wait before a file operation, in a phase of which no task is part."""

    def at(op: str, path: str) -> None:
        if op == "rename" and path.endswith("checkpoint_2"):
            pause("save")
            pause("struck save")
        elif op == "open" and path.endswith("checkpoint_1/main/model/0"):
            pause("load")

    if phase in ("save", "struck save", "load"):
        DEFAULT.at = at  # type: ignore[method-assign]


def command(phase: str, *words: str) -> int:
    """``jobrun`` with some arguments, which waits in a phase."""
    os.environ["PAUSE"] = phase
    if phase.startswith("lost "):
        signal_in_a_callback(signal.Signals[phase.removeprefix("lost ")])
    pause_at_operations(phase)
    try:
        main(words)
    except SystemExit as leave:
        return int(leave.code or 0)
