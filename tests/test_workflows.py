"""The workflows of the project are YAML, and call commands and options that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click import Context, Option

from jobrun.cli.app import app

WORKFLOWS = sorted((Path(__file__).parent.parent / ".github" / "workflows").glob("*.yml"))


def commands(workflow: Path) -> list[list[str]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    lines = [step.get("run", "") for job in jobs for step in job["steps"]]
    return [line.split() for text in lines for line in re.findall(r"^jobrun (.*)$", text, re.M)]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_commands_and_options_exist(workflow: Path) -> None:
    found = commands(workflow)
    assert found
    for name, *words in found:
        command = app.get_command(Context(app), name)
        assert command is not None
        known = {o for p in command.params if isinstance(p, Option) for o in p.opts}
        assert {w for w in words if w.startswith("-")} <= known
