"""``jobrun render``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RENDERED = """\
name: sum
seed: 0
vars: {step: 2}
init:
  - {call: steps:start, out: total}
epoch:
  - call: steps:add
    in: {total, step}
    out: total
  - call: steps:loss_of
    in: {total}
    out: loss
metrics: {loss: min}
stop: {epochs: 3}
checkpoint:
  every: 1
  keep: all
  on_error: warn
  on_success: keep
  link: alternate
  compress: none
  async: true
session: local
"""
ORIGIN = """\
name: sum                                         # sum.yaml:1
seed: 0                                           # default
vars: {step: 5}                                   # --set step=5
init:
  - {call: steps:start, out: total}               # sum.yaml:4
epoch:
  - call: steps:add                               # sum.yaml:6
    in: {total, step}                             # sum.yaml:6
    out: total                                    # sum.yaml:6
  - call: steps:loss_of                           # sum.yaml:7
    in: {total}                                   # sum.yaml:7
    out: loss                                     # sum.yaml:7
metrics: {loss: min}                              # sum.yaml:8
stop: {epochs: 4}                                 # --epochs 4
"""


def test_the_spec_with_its_defaults(call: Callable[..., Any], write: Callable[..., None]) -> None:
    write()
    result = call("render", "sum.yaml")
    assert (result.code, result.out, result.err) == (0, RENDERED, "")


def test_where_each_value_comes_from(call: Callable[..., Any], write: Callable[..., None]) -> None:
    write()
    result = call("render", "sum.yaml", "--origin", "--set", "step=5", "--epochs", "4")
    assert result.out.startswith(ORIGIN)
    assert "  every: 1                                        # default\n" in result.out


def test_what_the_environment_sets(
    call: Callable[..., Any], write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write()
    monkeypatch.setenv("JOBRUN_SET", "step=5 seed=3")
    monkeypatch.setenv("JOBRUN_EPOCHS", "4")
    lines = [
        " ".join(line.split()) for line in call("render", "sum.yaml", "--origin").out.splitlines()
    ]
    assert "vars: {step: 5} # JOBRUN_SET=step=5" in lines
    assert "seed: 3 # JOBRUN_SET=seed=3" in lines
    assert "stop: {epochs: 4} # JOBRUN_EPOCHS=4" in lines


def test_as_json(call: Callable[..., Any], write: Callable[..., None]) -> None:
    write(("{step: 2}", "{step: .inf}"))
    found = json.loads(call("render", "sum.yaml", "--json").out)
    assert found["vars"] == {"step": "Infinity"}
    assert found["epoch"][0] == {
        "call": "steps:add",
        "in": {"total": None, "step": None},
        "out": "total",
    }
    found = json.loads(call("render", "sum.yaml", "--json", "--origin").out)
    assert found["spec"]["checkpoint"]["keep"] == "all"
    assert found["origin"]["checkpoint.keep"] == "default"
    assert found["origin"]["epoch.1.call"] == "sum.yaml:7"


def test_what_is_rendered_is_run(
    shell: Callable[[str], Any], write: Callable[..., None], folder: Path
) -> None:
    write()
    result = shell(
        "jobrun render sum.yaml --set step=5 > full.yaml && jobrun validate --import full.yaml"
        " && jobrun train full.yaml -q && jobrun render - --epochs 1 < full.yaml > short.yaml"
        " && jobrun train short.yaml | head -1"
    )
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("full.yaml: ok: job sum, 3 tasks\n")


def test_a_spec_that_is_none(call: Callable[..., Any], folder: Path) -> None:
    (folder / "bad.yaml").write_text("nam: x\n")
    result = call("render", "bad.yaml")
    assert (result.code, result.out) == (3, "")
    assert call("render", "none.yaml").code == 2
