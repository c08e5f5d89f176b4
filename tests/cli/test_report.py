"""``jobrun report``: which runs, which file, and watching; the page itself: tests/html_report."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Call = Callable[..., Any]


def test_it_writes_a_file_and_says_its_size(call: Call, write: Call, folder: Path) -> None:
    write()
    call("train", "sum.yaml")
    result = call("report", "sum")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("report.html written (")
    assert "sum: finished" in (folder / "report.html").read_text()
    assert call("report", "-o", "other.html", "-q").err == ""
    assert (folder / "other.html").is_file()


def test_json_names_the_runs(call: Call, write: Call, folder: Path) -> None:
    write()
    call("train", "sum.yaml")
    call("train", "sum.yaml", "--fresh")
    found = json.loads(call("report", "sum", "sum-2", "sum", "--json").out)
    assert found["runs"] == ["runs/sum", "runs/sum-2"]
    assert found["bytes"] == (folder / "report.html").stat().st_size


def test_a_sweep_stands_for_its_runs(call: Call, write: Call, folder: Path) -> None:
    write()
    spec = folder / "sum.yaml"
    spec.write_text(spec.read_text() + "matrix: {step: [2, 5]}\n")
    call("train", "sum.yaml", "-q")
    found = json.loads(call("report", "sum", "--json").out)
    assert [Path(run).name for run in found["runs"]] == ["step=2", "step=5"]
    assert "<h1>sum: 2 runs</h1>" in (folder / "report.html").read_text()


def test_a_run_that_is_not_there(call: Call, folder: Path) -> None:
    result = call("report", "nothing")
    assert (result.code, result.out) == (5, "")
    assert "no run 'nothing'" in result.err
    assert not (folder / "report.html").exists()


def test_watching_ends_with_the_run(
    start: Callable[..., subprocess.Popen[str]], call: Call, write: Call, folder: Path
) -> None:
    write(("return", "import time; time.sleep(0.3); return"))
    training = start("train", "sum.yaml", "--epochs", "30", apart=True)
    page = folder / "report.html"
    _wait_for(folder / "runs" / "sum" / "run.json")
    watching = start("report", "sum", "--watch")
    _wait_for(page)
    assert 'data-refresh="5.0"' in page.read_text()
    training.send_signal(signal.SIGINT)
    training.wait(50)
    assert watching.wait(50) == 0
    text = page.read_text()
    assert 'data-refresh="0"' in text
    assert "interrupted" in text


def test_watching_a_sweep_shows_the_runs_that_begin_later(
    start: Callable[..., subprocess.Popen[str]], write: Call, folder: Path
) -> None:
    held = folder / "held"
    code = (
        "import pathlib, time\n"
        "    while step == 5 and pathlib.Path('held').exists(): time.sleep(0.02)\n"
        "    return total + step"
    )
    write(("return total + step", code))
    spec = folder / "sum.yaml"
    spec.write_text(spec.read_text() + "matrix: {step: [5, 2]}\n")
    held.touch()
    training = start("train", "sum.yaml", "--jobs", "1")
    _wait_for(folder / "runs" / "sum" / "step=5" / "run.json")
    watching = start("report", "sum", "--watch")
    page = folder / "report.html"
    _wait_for(page)
    assert "<h1>sum: 1 run</h1>" in page.read_text()
    held.unlink()
    assert (training.wait(50), watching.wait(50)) == (0, 0)
    assert "<h1>sum: 2 runs</h1>" in page.read_text()


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.05)
