"""Every example of the README is run here, and its output compared."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from jobrun.spec.build import build
from jobrun.spec.resolve import load

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.M | re.S)
TIMES = re.compile(r"\d+(\.\d+)? (ms|s)\b|\d+(\.\d+)?%|<1%")


def blocks(language: str) -> list[tuple[str | None, str]]:
    return [(name or None, text) for lang, name, text in BLOCK.findall(README) if lang == language]


def run(command: str, folder: Path) -> str:
    words = shlex.split(command)
    env = {k: v for k, v in os.environ.items() if not k.startswith("JOBRUN_")}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


def without_times(text: str) -> list[str]:
    return [re.sub(r"\s+", " ", TIMES.sub("#", line)).strip() for line in text.splitlines()]


def test_console_examples_print_what_the_readme_says(tmp_path: Path) -> None:
    for name, text in [*blocks("python"), *blocks("yaml")]:
        if name is not None:
            (tmp_path / name).write_text(text)
    console = [text for _, text in blocks("console")]
    assert console
    for part in re.split(r"^\$ ", "".join(console), flags=re.M)[1:]:
        command, _, expected = part.partition("\n")
        printed = run(command, tmp_path)
        assert without_times(printed.strip()) == without_times(expected.strip()), command


def test_python_examples_run(tmp_path: Path) -> None:
    scripts = [text for name, text in blocks("python") if name is None]
    assert scripts
    (tmp_path / "examples.py").write_text("\n".join(scripts))
    run(f"{shlex.quote(sys.executable)} examples.py", tmp_path)


def fragments() -> list[str]:
    """The parts of specs that stand in the text: an ``epoch``, or one pipe a line."""
    found = []
    for text in re.findall(r"^  ```yaml\n(.*?)^  ```$", README, re.M | re.S):
        body = textwrap.dedent(text)
        if body.startswith("epoch:"):
            found.append(body)
        else:
            do = "do: [{call: digits:step, out: loss}]"
            found += [f"epoch:\n  - {line}\n    {do}\n" for line in body.splitlines()]
    return found


@pytest.mark.parametrize("text", fragments())
def test_parts_of_specs_are_in_the_language(text: str, tmp_path: Path) -> None:
    spec = tmp_path / "part.yaml"
    spec.write_text(text + "stop: {epochs: 1}\n")
    job = build(load(spec))  # raises SpecError for what is no spec
    assert len(job.epoch.tasks) == 1


def test_files_the_readme_speaks_of_are_there() -> None:
    for path in re.findall(r"`((?:specs|jobrun|tests)/[\w./-]+)`|\]\(([\w./-]+)\)", README):
        assert (ROOT / (path[0] or path[1])).exists(), path


@pytest.mark.parametrize("target", ["demo", "test", "crash", "bench", "help"])
def test_make_targets_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), target
