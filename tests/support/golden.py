"""Golden texts: what a command printed, as a file that a person can read.

``JOBRUN_UPDATE_GOLDEN=1`` writes the files anew; read what changed before you keep it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Seen at import: the tests of the command line run without the variables of jobrun.
_UPDATE = bool(os.environ.get("JOBRUN_UPDATE_GOLDEN"))
_CHANGING = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?"), "WHEN"),
    (re.compile(r"(?<![\d.])\d+(\.\d+)? m?s\b|\b\d+m\d\ds\b"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? [kMG]?B\b"), "SIZE"),
    (re.compile(r"; the run waited TIME"), ""),
    (re.compile(r"(<0\.1|<1|\b\d+(\.\d)?)% (in|of)"), r"SHARE \3"),
    (re.compile(r"(?<= )(<1|\d+)%(?= )"), "SHARE"),
    (re.compile(r"( versions +).*"), r"\1VERSIONS"),
    (re.compile(r"\(slowest: .*\)"), "(slowest: TASKS)"),
    (re.compile(r"(?m)^(\d+),[\d.]+,[\d.]+,"), r"\1,SECONDS,SECONDS,"),
    (re.compile(r"local, \d+ threads?"), "local, N threads"),
    (re.compile(r"partial-[0-9a-f]+"), "partial-HEX"),
    (re.compile(r"pid \d+"), "pid N"),
    (re.compile(r"process \d+ \(on [^)]*\)|process \d+ on \S+"), "process N"),
)
_TASK_TIMES = re.compile(r"(^\w+  (?:init|epoch|exit)  TIME.*\n)+", re.M)


def check(golden: Path, text: str) -> None:
    """Compare a text with its golden file."""
    if _UPDATE:
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def transcript(command: str, code: int, out: str, err: str) -> str:
    """What was typed, and how it ended; parts that are empty are left out."""
    parts = [f"$ {command}\n", f"exit code {code}\n"]
    for name, text in (("stdout", out), ("stderr", err)):
        if text:
            parts.append(f"{f' {name} ':-^40}\n{text}" + ("" if text.endswith("\n") else "\n"))
    return "".join(parts)


def constant(text: str, folder: Path) -> str:
    """Text without what differs from run to run: times, sizes, versions, widths of columns."""
    text = text.replace(str(folder.resolve()), "DIR").replace(sys.prefix, "ENVIRONMENT")
    for pattern, name in _CHANGING:
        text = pattern.sub(name, text)
    text = re.sub(r"(?<=\S) {2,}", "  ", text)
    return _TASK_TIMES.sub(lambda found: "".join(sorted(found[0].splitlines(True))), text)


def shape(value: Any, path: str = "") -> Iterator[str]:
    """What JSON is made of, a line a key: ``runs[].metrics.loss: number``."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from shape(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        yield from dict.fromkeys(line for item in value for line in shape(item, f"{path}[]"))
    else:
        kinds = {bool: "truth", int: "number", float: "number", str: "text", type(None): "null"}
        yield f"{path}: {kinds.get(type(value)) or f'empty {type(value).__name__}'}"
