"""Every malformed spec gives its golden text: all its problems, each with a place.

``JOBRUN_UPDATE_GOLDEN=1`` writes the texts anew; read what changed before you keep it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobrun.errors import SpecError
from jobrun.jobspec.validate import validate_spec

FOLDER = Path(__file__).parent / "malformed"
SPECS = sorted(FOLDER.glob("*.yaml"))


def messages(spec: Path) -> str:
    with pytest.raises(SpecError) as caught:
        validate_spec(spec.name)
    assert caught.value.exit_code == 3
    assert caught.value.problems
    for problem in caught.value.problems:
        assert problem.where is not None
    return str(caught.value) + "\n"


@pytest.mark.parametrize("spec", SPECS, ids=lambda p: p.stem)
def test_malformed_spec_gives_its_golden_messages(
    spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER)
    golden = spec.with_suffix(".txt")
    text = messages(spec)
    if os.environ.get("JOBRUN_UPDATE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_every_golden_text_has_its_spec() -> None:
    assert len(SPECS) >= 40
    assert {p.stem for p in FOLDER.glob("*.txt")} == {p.stem for p in SPECS}
