"""``jobrun schema``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun.jobspec.schema import schema_text


def test_it_is_printed_as_it_is(call: Callable[..., Any]) -> None:
    result = call("schema")
    assert (result.code, result.out, result.err) == (0, schema_text(), "")
    assert call("schema", "--json").out == result.out
    assert json.loads(result.out)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["--write"], "jobrun.schema.json"),
        (["--write", "."], "jobrun.schema.json"),
        (["--write", "my specs"], "my specs/jobrun.schema.json"),
    ],
)
def test_it_is_written_beside_the_specs(
    words: list[str], path: str, call: Callable[..., Any], folder: Path
) -> None:
    (folder / "my specs").mkdir()
    for _ in range(2):  # the second time over the first
        result = call("schema", *words)
        assert (result.code, result.err) == (0, "")
        assert result.out == (
            f"{path} written; specs beside it begin with\n"
            "# yaml-language-server: $schema=./jobrun.schema.json\n"
        )
        assert (folder / path).read_text(encoding="utf-8") == schema_text()
    assert json.loads(call("schema", *words, "--json").out) == {"written": path}
    assert call("-q", "schema", *words).out == ""


def test_a_folder_that_is_not_there(call: Callable[..., Any]) -> None:
    result = call("schema", "--write", "none")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "error: none/jobrun.schema.json: it cannot be written: No such file or directory\n"
    )
