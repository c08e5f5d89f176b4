"""Steps for worker processes, which find them by the name of this module."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import jobrun


def noisy(x: Any, rng: Any, epoch: int, node: str = "") -> Any:
    """Bits that depend on the batch, the epoch and random numbers."""
    return np.sin(x) * rng.random(len(x)) + epoch


def twice(y: Any) -> Any:
    return y * 2


def split(x: Any, text: str = "n") -> Any:
    """A tree of all kinds of values."""
    return {
        "low": x,
        "deep": {"high": x + 1, "name": text, "none": None, "flag": True, "nan": float("nan")},
        "list": [1, 2.5, np.float32(x.sum()), [np.array(len(x))]],
        "empty": np.zeros((0, 3), np.float32),
    }


def odd(x: Any, y: Any) -> Any:
    keep = x.astype(int) % 2 == 1
    return x[keep], y[keep]


def large(x: Any, cells: int) -> Any:
    """A large array for each batch, which says by its first cell which one it is of."""
    found = np.full(cells, x[0], np.float64)
    found[0] = x[0]
    return found


def same(x: Any) -> Any:
    return x


def fails(x: Any, at: int, text: str = "no") -> Any:
    """Fails from row ``at`` on."""
    if x[0] >= at:
        raise ValueError(f"{text} {x[0]}")
    return x


def once(x: Any, file: str, how: str) -> Any:
    """Fails in some way at its first call of all, as ``file`` remembers, on row 3."""
    if x[0] == 3 and not Path(file).exists():
        Path(file).write_text("")
        if how == "raise":
            raise ValueError("once")
        if how == "sleep":
            time.sleep(600)
        dies(x, 3, how)
    return x


def dies(x: Any, at: int, how: str) -> Any:
    """Ends its process at row ``at``."""
    if x[0] == at:
        print("last words", flush=True)
        if how == "exit":
            os._exit(3)
        os.kill(os.getpid(), getattr(signal, how))
        time.sleep(600)
    return x


def leaves_a_printer(x: Any) -> Any:
    """Ends its process, of which a fork prints on, and keeps the connection open."""
    if not os.fork():
        for _ in range(4000):
            os.write(1, b"still here\n")
            time.sleep(0.005)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
    return x


def slow(x: Any, at: int, seconds: float = 600.0, file: str = "") -> Any:
    """Takes its time at row ``at``; ``file`` then holds its process."""
    if x[0] == at:
        if file:
            Path(file + ".new").write_text(str(os.getpid()))
            os.replace(file + ".new", file)
        time.sleep(seconds)
    return x


def endless(x: Any, file: str) -> Any:
    """Never gives the interpreter away for long, and never ends."""
    Path(f"{file}.{os.getpid()}").write_text("")
    while True:
        sum(range(10_000))


def prints(x: Any) -> Any:
    print("row", x[0])
    print("err", x[0], file=sys.stderr)
    jobrun.progress(0.5)
    os.write(1, b"raw\n")
    return x


class Thing:
    """No plain value."""

    def __len__(self) -> int:
        return 7


def opaque(x: Any) -> Any:
    return Thing()


def opaque_from(x: Any, at: int) -> Any:
    """Puts out what cannot be sent from row ``at`` on."""
    return Thing() if x[0] >= at else x


def other(x: Any) -> Any:
    """Values that cannot be saved, but sent."""
    return b"ab", {1: x.tolist(), (2, 3): {4}}, [bytearray(b"c"), 1j, {"a b": None}]


def masked(x: Any) -> Any:
    return np.ma.masked_array(x, x > 1)


def adds_in_place(x: Any) -> Any:
    """Puts out the column that it changed."""
    x += 1
    return x


def doubles_in_place(x: Any) -> None:
    """Changes a column and puts out nothing."""
    x *= 2


def keeps(x: Any, kept: list[Any] = []) -> Any:  # noqa: B006 - it is to be kept
    """Holds on to every batch, and gives the sum over all of them."""
    kept.append(x)
    return float(sum(k.sum() for k in kept))


def pid(x: Any) -> Any:
    return os.getpid()


def late_pid(x: Any) -> Any:
    """Takes so long that each worker gets a batch."""
    time.sleep(0.3)
    return os.getpid()


def busy(x: Any, loops: int) -> Any:
    """Holds the interpreter: a loop in plain Python."""
    total = 0
    for i in range(loops):
        total += i * i % 7
    return x + total
