"""``jobrun smoke``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

SHOWN = """\
sum.yaml:
  spec:            ok, TIME: job sum, 3 tasks
  train:           ok, TIME: 2 epochs on 1 thread, inputs checked: 2 epochs done
  kill and resume: ok, TIME: 2 epochs on 4 threads, killed after a save of an epoch
  compare:         ok, TIME: 1 blob the same, bit for bit
"""


def test_a_good_spec(
    write: Callable[..., None], jobrun: Callable[..., Any], folder: Path, normalised: Any
) -> None:
    write()
    done = jobrun("smoke", "sum.yaml", "--junit", "out.xml", GITHUB_STEP_SUMMARY="summary.md")
    assert (done.code, normalised(done.out), done.err) == (0, SHOWN, "")
    assert sorted(p.name for p in folder.iterdir() if p.name != "__pycache__") == [
        "out.xml",
        "steps.py",
        "sum.yaml",
        "summary.md",
    ]
    assert [s.get("tests") for s in ElementTree.parse(folder / "out.xml").getroot()] == ["4"]
    assert "| `sum.yaml` |" in (folder / "summary.md").read_text()


def test_several_specs_the_worst_code_and_json(
    write: Callable[..., None], jobrun: Callable[..., Any], folder: Path
) -> None:
    write(("return 1 / total", "raise SystemError(1)"))
    (folder / "bad.yaml").write_text("name: [")
    done = jobrun("smoke", "bad.yaml", "sum.yaml", "--json", "--dir", "kept")
    result = json.loads(done.out)
    assert done.code == result["exit_code"] == 3
    assert [[s["status"] for s in r["steps"]] for r in result["specs"]] == [
        ["failed"],
        ["ok", "failed"],
    ]
    assert (folder / "kept" / "2-sum" / "undisturbed" / "checkpoint_0").is_dir()


def test_a_step_summary_that_cannot_be_written_fails_nothing(
    write: Callable[..., None], jobrun: Callable[..., Any]
) -> None:
    write()
    done = jobrun("smoke", "sum.yaml", "-q", GITHUB_STEP_SUMMARY="none/summary.md")
    assert done.code == 0
    text = "the step summary none/summary.md cannot be written: No such file or directory"
    assert done.err == f"warning: {text}\n"


def test_what_failed_is_shown(write: Callable[..., None], jobrun: Callable[..., Any]) -> None:
    write(("return 1 / total", "raise SystemError('no loss')"))
    done = jobrun("smoke", "sum.yaml")
    assert done.code == 1
    assert re.search(r"train: +FAILED: sum.yaml:\d+:\d+: task 'loss_of'.*SystemError", done.out)
    assert "raise SystemError('no loss')" in done.err
