"""Record the live view of a real run as an SVG: ``python .docs/record.py [EPOCH]`` (needs pyte).

The picture is what a terminal of this size shows while ``COMMAND`` is in that epoch.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from io import StringIO
from pathlib import Path

import pyte
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parent.parent
COMMAND = ["train", "specs/digits.yaml", "--set", "batch=1", "--set", "lr=0.001"]
COLUMNS, ROWS = 84, 12
STYLES = {"brown": "yellow", "default": ""}
"""Colours of pyte that rich calls otherwise."""


def record(command: list[str], folder: Path, epoch: int) -> pyte.Screen:
    """Return the screen of a terminal once the view of a command has reached an epoch."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    with subprocess.Popen(
        command, cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs
    ) as run:
        os.close(theirs)
        try:
            while not _shows(screen, epoch):
                stream.feed(os.read(ours, 65536))
        finally:
            run.terminate()
            _drain(ours)
    return screen


def _shows(screen: pyte.Screen, epoch: int) -> bool:
    """Return whether the view is in a batch of the epoch, and complete."""
    text = "\n".join(screen.display)
    return bool(
        re.search(rf"epoch {epoch}/\d+ .*left", text) and re.search(r"batch [2-9]\d\d/", text)
    )


def _drain(terminal: int) -> None:
    """Read to the end, so that the command can write its last lines."""
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:  # the other end is closed
        pass


def _line(screen: pyte.Screen, row: int) -> Text:
    """Return a line of the screen with its colours."""
    text = Text()
    for column in range(COLUMNS):
        char = screen.buffer[row][column]
        words = ["bold"] * char.bold + [STYLES.get(char.fg, char.fg)]
        style = " ".join(f"#{w}" if re.fullmatch("[0-9a-f]{6}", w) else w for w in words if w)
        text.append(char.data, style=style)
    return text


def main() -> None:
    """Record the view, and write the picture beside this file."""
    epoch = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    program = str(Path(sys.executable).parent / "jobrun")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "specs", Path(folder) / "specs")
        screen = record([program, *COMMAND], Path(folder), epoch)
    console = Console(width=COLUMNS, record=True, force_terminal=True, file=StringIO())
    for row in range(ROWS):
        console.print(_line(screen, row), no_wrap=True)
    svg = console.export_svg(title=" ".join(["jobrun", *COMMAND]), theme=MONOKAI)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)  # nothing is loaded from elsewhere
    svg = re.sub(r' clip-path="url\(#[\w-]+\)"', "", svg)  # it would cut underscores
    (ROOT / ".docs" / "live.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
