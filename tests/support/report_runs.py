"""Runs to report on, trained in a folder."""

from __future__ import annotations

from pathlib import Path

from jobrun.cli.app import run

__all__ = ["HOSTILE", "trained"]

SPEC = """\
name: many
vars: {rate: 0.01, label: plain}
init: [{call: "steps:start", out: x}]
epoch: [{call: "steps:step", in: [x, rate], out: {x: x, loss: loss, gain: gain}}]
metrics: {loss: min, gain: max}
stop: {epochs: EPOCHS}
checkpoint: {every: EVERY}
"""
STEPS = """\
import math

def start():
    return 10.0

def step(x, rate):
    x = x * (1 - rate)
    return {"x": x, "loss": x, "gain": math.sin(x)}
"""
HOSTILE = "<script>document.title='owned'</script>"
"""What a user may call a metric or print: it has to stay text."""


def trained(folder: Path, epochs: int, every: int, *sets: str) -> Path:
    """A run that was trained in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "steps.py").write_text(STEPS)
    text = SPEC.replace("EPOCHS", str(epochs)).replace("EVERY", str(every))
    (folder / "many.yaml").write_text(text)
    options = [word for item in sets for word in ("--set", item)]
    runs = folder / "runs"
    before = set(runs.iterdir()) if runs.is_dir() else set()
    train = ["train", str(folder / "many.yaml"), "--runs-dir", str(runs), "-q", "--fresh"]
    assert run([*train, *options]) == 0
    (made,) = set(runs.iterdir()) - before
    return made
