"""The resolved spec as text: the same job, and the origin of each value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobrun.analysis.facts import job_facts
from jobrun.jobspec.parsing import parse
from jobrun.jobspec.render import DEFAULT, origins, render, resolved
from jobrun.jobspec.resolve import load
from jobrun.jobspec.source import SpecNode
from jobrun.jobspec.validate import job_of

ROOT = Path(__file__).parents[2]
SPECS = [
    *sorted((ROOT / "specs").glob("*.yaml")),
    *sorted((ROOT / "jobrun/templates").glob("*/*.yaml")),
    Path(__file__).parent / "valid/every_key.yaml",
]


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
@pytest.mark.parametrize("origin", [None, lambda node: "here"])
def test_it_is_a_spec_of_the_same_job(path: Path, origin: Any, tmp_path: Path) -> None:
    first = load(path)
    copy = tmp_path / "copy.yaml"
    copy.write_text(render(resolved(first), origin), encoding="utf-8")
    second = load(copy)
    a, b = job_of(first), job_of(second)
    assert job_facts(a) == job_facts(b)
    assert a.checkpoint == b.checkpoint
    assert render(resolved(second)) == render(resolved(first)), "nothing is left to resolve"


def test_every_default_is_written_out(tmp_path: Path) -> None:
    path = tmp_path / "my job.yaml"
    path.write_text(
        "x-a: &a {from: x}\n"
        "epoch: [{pipe: *a, do: [{call: m:f, in: x, retries: {times: 2}}]}]\n"
        "stop: never\n"
    )
    assert render(resolved(load(path))) == (
        "name: my-job\n"
        "seed: 0\n"
        "epoch:\n"
        "  - pipe: {from: x, batch: 1, shuffle: false, drop_last: false, threads: 1}\n"
        "    do:\n"
        "      - call: m:f\n"
        "        in: x\n"
        "        retries: {times: 2, backoff: 1.0}\n"
        "stop: never\n"
        "checkpoint:\n"
        "  every: 1\n"
        "  keep: all\n"
        "  on_error: warn\n"
        "  on_success: keep\n"
        "  link: alternate\n"
        "  compress: none\n"
        "  async: true\n"
        "session: local\n"
    )


def test_a_script_is_shown_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text('epoch: [{shell: {script: "cd x\\n\\n  ls\\n"}}]\nstop: never\n')
    text = render(resolved(load(path)))
    assert "      script: |\n        cd x\n\n          ls\n" in text


def test_where_each_value_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("epoch:\n  - {call: m:f, with: {a: [1, 2]}}\nstop: {epochs: 3}\n")
    root = resolved(load(path, ["epoch.f.with.a.0=7"], epochs=9))

    def origin(node: SpecNode) -> str:
        return str(node.place.file if node.place is not None else node.line + 1)

    found = origins(root, origin)
    assert found["name"] == found["checkpoint.keep"] == DEFAULT.file == "default"
    assert found["epoch.0.call"] == "2"
    assert found["epoch.0.with.a.0"] == "--set epoch.f.with.a.0=7"
    assert found["epoch.0.with.a.1"] == "2"
    assert found["stop.epochs"] == "--epochs 9"


_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=12)
    | st.text("ab \n|:-#{,'\"", max_size=12)
    | st.sampled_from(["no", "1e-4", "012", "<<", "~", "a: b", "*x", "${x}", "- ", "m:f", "a_:*"])
)
_trees = st.recursive(
    _scalars,
    lambda t: (
        st.lists(t, max_size=3) | st.dictionaries(st.text("ab/:0\n#", min_size=1), t, max_size=3)
    ),
    max_leaves=8,
)


def nodes(value: Any) -> SpecNode:
    if isinstance(value, dict):
        value = {k: nodes(v) for k, v in value.items()}
    elif isinstance(value, list):
        value = [nodes(v) for v in value]
    return SpecNode(value, 0, 0, 1)


@settings(max_examples=200, deadline=None)
@given(_trees, st.booleans())
@example("a\x85\nb", False)
@example("\n", False)
@example(" x\ny", True)
@example(["x\n\n", {"in": {"a": None}}], True)
def test_what_is_written_is_read_back(tree: Any, with_origin: bool) -> None:
    root = nodes({"x": tree, "in": tree})
    text = render(root, (lambda _: "o") if with_origin else None)
    back = parse(text.encode(), "s").root.plain()
    assert repr(back) == repr(root.plain()), text
