"""Checking a spec without running it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jobrun.errors import BindError
from jobrun.jobspec.validate import validate_spec

EVERY_KEY = Path(__file__).parent / "valid" / "every_key.yaml"


def test_nothing_heavy_is_imported_to_validate() -> None:
    code = (
        "import sys; from jobrun.jobspec.validate import validate_spec; validate_spec(sys.argv[1]);"
        "print(sorted({'numpy', 'zarr', 'rich', 'click', 'job'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, str(EVERY_KEY)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_import_binds_the_functions(tmp_path: Path) -> None:
    (tmp_path / "build_mod.py").write_text("def start(size): return size\n")
    spec = tmp_path / "s.yaml"
    spec.write_text(
        "epoch: [{call: build_mod:start, in: {size: epoch}, out: x}]\nstop: {epochs: 1}\n"
    )
    assert validate_spec(spec, import_=True)
    with pytest.raises(BindError, match="has no parameter 'sise'"):
        validate_spec(_with(spec, "in: {size:", "in: {sise:"), import_=True)


def _with(spec: Path, old: str, new: str) -> Path:
    spec.write_text(spec.read_text().replace(old, new))
    return spec
