"""``jobrun validate``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_a_good_spec(call: Callable[..., Any], write: Callable[..., None]) -> None:
    write()
    result = call("validate", "sum.yaml")
    assert (result.code, result.out, result.err) == (0, "sum.yaml: ok: job sum, 3 tasks\n", "")
    assert call("-q", "validate", "sum.yaml").out == ""


def test_all_errors_of_all_specs(
    call: Callable[..., Any], write: Callable[..., None], folder: Path
) -> None:
    write()
    (folder / "bad.yaml").write_text("nam: sum\nepoch: []\n")
    result = call("validate", "bad.yaml", "sum.yaml", "none.yaml")
    assert result.code == 3
    assert result.out == "sum.yaml: ok: job sum, 3 tasks\n"
    assert result.err.startswith("bad.yaml:1:1: error: ")
    assert "did you mean 'name'?" in result.err
    assert "none.yaml" in result.err


def test_as_json(call: Callable[..., Any], write: Callable[..., None], folder: Path) -> None:
    write()
    (folder / "bad.yaml").write_text("nam: sum\n")
    result = call("validate", "bad.yaml", "sum.yaml", "--json")
    found = json.loads(result.out)
    assert (result.code, found["exit_code"]) == (3, 3)
    bad, good = found["specs"]
    assert good == {"file": "sum.yaml", "ok": True, "job": "sum", "tasks": 3}
    assert (bad["ok"], bad["problems"][0]["line"], bad["problems"][0]["column"]) == (False, 1, 1)


def test_import_binds_the_functions(call: Callable[..., Any], write: Callable[..., None]) -> None:
    write(("steps:add", "steps:ad"))
    assert call("validate", "sum.yaml").code == 0
    result = call("validate", "--import", "sum.yaml")
    assert result.code == 4
    assert "did you mean 'add'?" in result.err


def test_set_is_part_of_what_is_checked(
    call: Callable[..., Any], write: Callable[..., None]
) -> None:
    write()
    assert call("validate", "sum.yaml", "--set", "step=3").code == 0
    assert call("validate", "sum.yaml", "--set", "stop.epochs=0").code == 3
    assert call("validate", "sum.yaml", "--set", "stpe=3").code == 2


def test_neither_numpy_nor_the_users_code_is_imported(
    write: Callable[..., None], folder: Path
) -> None:
    write()
    (folder / "steps.py").write_text("raise SystemExit('imported')\n")
    code = (
        "import sys\n"
        "from jobrun.cli.app import run\n"
        "code = run(['validate', 'sum.yaml'])\n"
        "print(code, [m for m in ('numpy', 'zarr', 'rich') if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=True
    )
    assert done.stdout.splitlines()[-1] == "0 []"
