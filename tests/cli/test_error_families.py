"""Every class of error as a user meets it: what, where, why, and what to do next.

The golden texts are in ``golden/errors.txt``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from golden import check, constant, transcript

from jobrun import errors
from jobrun.runs.rundir import RunDir

Call = Callable[..., Any]
GOLDEN = Path(__file__).parent / "golden" / "errors.txt"
PAGE = Path(__file__).parent.parent.parent / "jobrun" / "docs" / "troubleshooting.md"
FAILS = ("return total + step", "return total + step if total < 104 else 1 / 0")
PIPE = (
    '  - {call: "steps:add", in: {total, step}, out: total}\n',
    "  - name: read\n"
    "    pipe: {file: rows.csv, from: [x], batch: 2}\n"
    '    do: [{call: "steps:add", in: {total, step: x}, out: total}]\n',
)


@dataclass(frozen=True)
class Met:
    """How an error is met: what the spec or the code has in place of what, and what is typed."""

    kind: type[errors.JobrunError]
    title: str
    line: str = "train sum.yaml"
    change: tuple[str, str] = ("", "")
    harm: Callable[[Path], object] = lambda folder: None
    held: bool = False


def tear(folder: Path) -> None:
    success = folder / "runs/sum/checkpoint_1/_SUCCESS"
    success.write_bytes(success.read_bytes()[:-9])


MET = [
    Met(errors.UsageError, "a key that there is not", "train sum.yaml --set stpe=3"),
    Met(errors.UsageError, "a file that cannot be written", "graph sum.yaml -o gone/sum.svg"),
    Met(
        errors.SpecError,
        "several problems",
        change=("metrics: {loss: min}\nstop: {epochs: 3}", "metrics: {lss: min}\nstp: {epochs: 0}"),
    ),
    Met(errors.BindError, "no such module", change=("steps:add", "stesp:add")),
    Met(errors.BindError, "no such function", change=("steps:add", "steps:ad")),
    Met(errors.BindError, "a parameter too few", change=("add(total, step)", "add(total)")),
    Met(
        errors.BindError,
        "a parameter too many",
        change=("add(total, step)", "add(total, step, lr)"),
    ),
    Met(errors.BindError, "code that fails on import", change=("def start", "1 / 0\n\ndef start")),
    Met(errors.BindError, "code that is no Python", change=("def start():", "def start()")),
    Met(errors.BindError, "no such reporter", "train sum.yaml --reporter tensorbord"),
    Met(errors.TaskError, "a function fails", change=FAILS),
    Met(errors.TaskError, "a number of results", change=("out: total}", "out: [total, more]}")),
    Met(
        errors.DataError,
        "a row that is too short",
        change=PIPE,
        harm=lambda f: (f / "rows.csv").write_text("x,y\n1,2\n3\n"),
    ),
    Met(
        errors.ValueRefusedError,
        "a value that cannot be saved",
        change=("return 100", "return object()"),
    ),
    Met(errors.RunRefusedError, "another job", "train sum.yaml --set step=9"),
    Met(errors.NotFoundError, "no such run", "show smu"),
    Met(errors.NotFoundError, "no such checkpoint", "load-blobs sum --epoch 7"),
    Met(errors.NotFoundError, "no such blob", "load-blobs sum totl"),
    Met(errors.DamagedError, "a torn checkpoint", "load-blobs sum --id 1", harm=tear),
    Met(errors.LockedError, "a run that is held", held=True),
    Met(errors.SaveError, "no directory for the run", "train sum.yaml --fresh --runs-dir sum.yaml"),
    Met(
        errors.StoreError,
        "an upload that is refused",
        change=("stop: {epochs: 3}", "stop: {epochs: 3}\nupload: taken"),
        harm=lambda folder: (folder / "taken").write_text("a file"),
    ),
]


def meets(met: Met, call: Call, write: Call, folder: Path) -> str:
    """The text of one, after a run that has failed in its third epoch."""
    write(FAILS)
    call("train", "sum.yaml")
    write(*([met.change] if met.change[0] else []))
    met.harm(folder)
    fresh = "" if met.kind in (errors.RunRefusedError, errors.LockedError) else " --fresh"
    line = met.line + (fresh if met.line == "train sum.yaml" else "")
    holder = RunDir(folder / "runs/sum")
    if met.held:
        holder.lock()
    result = call(*line.split())
    as_json = call(*line.split(), "--json")
    told = json.loads(as_json.out)
    if told.get("event") == "RunEnded":  # the error has come after it
        told = json.loads(call(*line.split(), "--progress", "json").err.splitlines()[-1])
    if met.held:
        holder.unlock()
    assert result.code == as_json.code == met.kind.exit_code
    assert told["error"]["type"] == met.kind.__name__
    title = f"# {met.kind.__name__}: {met.title}\n"
    return title + transcript(f"jobrun {line}", result.code, "", constant(result.err, folder))


def test_every_error_says_what_where_why_and_what_next(
    call: Call, write: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = []
    for number, met in enumerate(MET):
        home = folder / str(number)
        home.mkdir()
        monkeypatch.chdir(home)
        texts.append(meets(met, call, lambda *c, at=number: write(*c, at=str(at)), home))
    check(GOLDEN, "\n".join(texts))


def test_every_class_is_met() -> None:
    classes = {getattr(errors, name) for name in errors.__all__}
    concrete = {c for c in classes if isinstance(c, type) and issubclass(c, errors.JobrunError)}
    of_clusters = {errors.ClusterLostError, errors.WorkerLostError}  # see tests/session/dask
    assert {met.kind for met in MET} == concrete - {errors.JobrunError} - of_clusters


def told(title: str) -> str:
    """The message of an error in the golden texts: from its first line on, without progress."""
    golden = GOLDEN.read_text(encoding="utf-8")
    found = re.search(rf"^# \w+: {re.escape(title)}\n(.*?)(?=^# \w+: |\Z)", golden, re.M | re.S)
    assert found, title
    lines = found[1].partition("stderr ----------------\n")[2].rstrip().splitlines()
    first = next(i for i, line in enumerate(lines) if "error: " in line)
    return "\n".join(lines[first:])


def test_the_troubleshooting_page_shows_the_messages_as_they_are() -> None:
    """The texts under its headings are those of the errors of that title."""
    page = PAGE.read_text(encoding="utf-8")
    block = re.compile(r"^### ([^\n]+)\n\n```text\n(.*?)```$", re.M | re.S)
    titles = [heading for heading, _ in block.findall(page)]

    def shown(match: re.Match[str]) -> str:
        heading = match[1]
        return f"### {heading}\n\n```text\n{told(heading[0].lower() + heading[1:])}\n```"

    check(PAGE, block.sub(shown, page))
    assert len(titles) >= 20
