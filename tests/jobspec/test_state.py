"""The keys ``state`` and ``constant`` of a spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobrun.errors import SpecError
from jobrun.jobspec.schema import schema_text
from jobrun.jobspec.validate import validate_spec
from jobrun.model.job import Job

SPEC = """\
setup:
  - {{call: code:build, out: [net, env, teacher]}}
{keys}
epoch:
  - {{call: code:step, update: net}}
stop: {{epochs: 1}}
"""


def job_of(folder: Path, keys: str) -> Job:
    path = folder / "job.yaml"
    path.write_text(SPEC.format(keys=keys))
    return validate_spec(path)


@pytest.mark.parametrize(
    ("keys", "state"),
    [
        ("state: net", {"net": None}),
        ("state: [net, env, rng.numpy]", {"net": None, "env": None, "rng.numpy": None}),
        ("state: [net, {env: code:EnvState}]", {"net": None, "env": "code:EnvState"}),
        ("state: {net: , env: code:EnvState}", {"net": None, "env": "code:EnvState"}),
    ],
)
def test_each_form(tmp_path: Path, keys: str, state: dict[str, Any]) -> None:
    assert job_of(tmp_path, keys).state == state


def test_constants(tmp_path: Path) -> None:
    assert job_of(tmp_path, "state: net\nconstant: teacher").constant == ("teacher",)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            "state: 3",
            "'state': expected a name, a list of names, or a mapping {name: adapter}, got 3",
        ),
        ("state: [net, net]", "'state' has 'net' twice"),
        ("state: [.net]", "'.net' cannot name a blob"),
        ("state: [3]", "expected a name, got 3"),
        ("state: {net: 3}", "expected an adapter, module:Class, got 3"),
        ("state: [net, {env: EnvState}]", "expected an adapter, module:Class, got 'EnvState'"),
        ("state: net\nconstant: [teachr]", "did you mean 'teacher'?"),
        ("state: [nett]", ":3:9: error: 'state' names 'nett', which no task of 'setup' writes"),
    ],
)
def test_each_error_has_its_place(tmp_path: Path, keys: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        job_of(tmp_path, keys)
    assert message in str(caught.value)


def test_the_schema_describes_them() -> None:
    assert '"state"' in schema_text()
    assert "rng.python, rng.numpy, rng.torch" in schema_text()
