"""Runs the examples of a page of Markdown: files, commands with their output, Python, specs.

A block ```` ```yaml file=x.yaml ```` or ```` ```python file=x.py ```` is a file of the reader's;
```` ```console ```` holds commands after ``$`` and what they print, which is compared but for
times and sizes; ```` ```python ```` without a name is run as it stands.
``needs=torch`` after a language: the examples of the page are run where that package is there.
``JOBRUN_UPDATE_GOLDEN=1`` writes what differs into the page; read it before you keep it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import warm

# Seen at import, as in golden.py: the commands run without the variables of jobrun.
_UPDATE = bool(os.environ.get("JOBRUN_UPDATE_GOLDEN"))
ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?(?: needs=\w+)?\n(.*?)^```$", re.M | re.S)
NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")
NEEDS = re.compile(r"^```\w+.* needs=(\w+)$", re.M)
CHANGING = re.compile(
    r"\d+(\.\d+)? (ms|s|h|B|kB|MB)\b|\d+m\d\ds\b|\d+(\.\d+)?%|<1%|\d{4}-\d\d-\d\d[ T][\d:.]+Z?"
)
SLOW_SAVES = re.compile(r"^ +#? of this attempt went into checkpoints; .*\n?", re.M)
SLOW_NODE = re.compile(r"^ +slowest +node .*\n?", re.M)
REFERENCE = re.compile(r"`((?:specs|jobrun|tests)/[\w./-]+)`|\]\(([\w./-]+)\)")


def run(command: str, folder: Path) -> str:
    """What a command of the reader's prints; it must end well."""
    env = warm.environment()
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    words = shlex.split(command)
    if words[0] == "jobrun":
        code, out, err = warm.jobrun(words[1:], folder, env)
    else:
        done = subprocess.run(
            words, cwd=folder, env=env, capture_output=True, text=True, timeout=60
        )
        code, out, err = done.returncode, done.stdout, done.stderr
    assert code == 0, f"{command}\n{err}"
    return out


def without_changing(text: str, *, numbers: bool = False) -> list[str]:
    """The lines of a text without what differs from run to run, or on a slow disk.

    ``numbers``: without all numbers, those of a library differ from one version to the next.
    """
    text = SLOW_NODE.sub("", SLOW_SAVES.sub("", CHANGING.sub("#", text)))
    if numbers:
        text = NUMBER.sub("#", text)
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]


@dataclass(frozen=True)
class Page:
    """A page of Markdown and the examples in it."""

    path: Path

    @property
    def text(self) -> str:
        """All of it."""
        return self.path.read_text(encoding="utf-8")

    @property
    def needs(self) -> set[str]:
        """The packages without which its examples cannot be run."""
        return set(NEEDS.findall(self.text))

    def blocks(self, language: str) -> list[tuple[str | None, str]]:
        """The blocks of a language, each with the name of its file, if it has one."""
        found = BLOCK.findall(self.text)
        return [(name or None, text) for lang, name, text in found if lang == language]

    def write_files(self, folder: Path) -> None:
        """Write what the page gives as files."""
        for _, name, text in BLOCK.findall(self.text):
            if name:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text, encoding="utf-8")

    def commands(self) -> list[tuple[str, str]]:
        """Every command with what it is said to print."""
        console = "".join(text for _, text in self.blocks("console"))
        parts = re.split(r"^\$ ", console, flags=re.M)[1:]
        return [(command, out) for command, _, out in (part.partition("\n") for part in parts)]

    def check_commands(self, folder: Path) -> None:
        """Run every command in a folder that holds the page's files, and compare."""
        self.write_files(folder)
        place = 0
        for command, expected in self.commands():
            printed = run(command, folder)
            now, before = (
                without_changing(text.strip(), numbers=bool(self.needs))
                for text in (printed, expected)
            )
            same = now == before
            if _UPDATE:
                place = self._update(command, expected, expected if same else printed, place)
            else:
                assert same, command

    def _update(self, command: str, old: str, new: str, place: int) -> int:
        """Write what a command prints into the page, from ``place`` on; return where it ends."""
        text, head = self.text, f"$ {command}\n"
        start = text.index(head + old, place) + len(head)
        new = new.strip("\n") + "\n" if new.strip() else ""
        self.path.write_text(text[:start] + new + text[start + len(old) :], encoding="utf-8")
        return start + len(new)

    def check_python(self, folder: Path) -> None:
        """Run the Python that stands in the text, one block after the other."""
        self.write_files(folder)
        scripts = [text for name, text in self.blocks("python") if name is None]
        if scripts:
            (folder / "examples.py").write_text("\n".join(scripts), encoding="utf-8")
            run(f"{shlex.quote(sys.executable)} examples.py", folder)

    def check_references(self) -> None:
        """Every file of the project that is spoken of is there."""
        for quoted, linked in REFERENCE.findall(self.text):
            found = ROOT / quoted if quoted else self.path.parent / linked
            assert found.exists(), quoted or linked
