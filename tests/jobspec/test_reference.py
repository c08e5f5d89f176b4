"""The page of the language names every key, and each part of a spec in it is in the language."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from jobrun.docs import page
from jobrun.jobspec.build import built
from jobrun.jobspec.resolve import load
from jobrun.jobspec.schema import spec_schema

TEXT = page("spec")
SCHEMA = spec_schema()
PARTS = re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.M | re.S)

SECTIONS = {
    "Spec": "At the top",
    "Task": "Tasks",
    "Retries": "Tasks",
    "Shell": "Tasks",
    "File": "Tasks",
    "Load": "Tasks",
    "Source": "Pipes",
    "Pipe": "Pipes",
    "Buffer": "Pipes",
    "MapStep": "Pipes",
    "DoStep": "Pipes",
    "StepEvery": "Pipes",
    "Conditions": "Conditions",
    "Patience": "Conditions",
    "Checkpoint": "Checkpoints",
    "Every": "Checkpoints",
    "Keep": "Checkpoints",
    "Best": "Checkpoints",
    "Compression": "Checkpoints",
    "Upload": "Checkpoints",
    "Session": "Sessions",
    "NodeReduction": "Nodes",
}


def section(title: str) -> str:
    return re.split(r"^## ", TEXT.partition(f"\n## {title}\n")[2], maxsplit=1, flags=re.M)[0]


@pytest.mark.parametrize("title", [*SECTIONS])
def test_every_key_is_named_where_it_belongs(title: str) -> None:
    schema = SCHEMA if title == "Spec" else SCHEMA["$defs"][f"{title}Model"]
    text = section(SECTIONS[title])
    quoted = " ".join(re.findall(r"`([^`]*)`", text))
    words = set(re.findall(r"\w+", quoted))
    assert set(schema["properties"]) <= words, set(schema["properties"]) - words


def test_no_model_is_forgotten() -> None:
    assert {f"{t}Model" for t in SECTIONS if t != "Spec"} == set(SCHEMA["$defs"])


@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_in_the_language(part: str, tmp_path: Path) -> None:
    text = part if re.search(r"^stop:", part, re.M) else part + "stop: never\n"
    (tmp_path / "part.yaml").write_text(text, encoding="utf-8")
    spec = load(tmp_path / "part.yaml")
    assert not [*spec.problems, *built(spec).problems]
    assert Draft202012Validator(SCHEMA).is_valid(spec.tree)


def test_there_are_parts() -> None:
    assert len(PARTS) >= 7
