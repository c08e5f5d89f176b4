"""The JSON Schema: closed, described, and true of every spec there is."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ValidationError

from jobrun.errors import SpecError
from jobrun.jobspec.keys import fields
from jobrun.jobspec.model import SpecModel
from jobrun.jobspec.parsing import parse
from jobrun.jobspec.pipes import SourceModel
from jobrun.jobspec.repair import read
from jobrun.jobspec.schema import DIALECT, schema_text, spec_schema

ROOT = Path(__file__).parents[2]
MALFORMED = Path(__file__).parent / "malformed"
SCHEMA = spec_schema()
VALIDATOR = Draft202012Validator(SCHEMA)


def tree_of(text: str) -> Any:
    """A spec as an editor has it: JSON values."""
    return json.loads(json.dumps(parse(text.encode(), "spec.yaml").root.plain()))


def faults(text: str) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(tree_of(text))]


def objects() -> list[dict[str, Any]]:
    return [SCHEMA, *SCHEMA["$defs"].values()]


# The schema by itself.


def test_it_is_a_json_schema_of_its_dialect() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == DIALECT == Draft202012Validator.META_SCHEMA["$id"]
    assert json.loads(schema_text()) == SCHEMA


def test_every_object_of_the_language_is_closed_and_described() -> None:
    assert len(objects()) > 15
    for schema in objects():
        assert schema["additionalProperties"] is False
        assert schema["description"]


def test_every_key_has_a_description() -> None:
    keys = [(s["title"], key, p) for s in objects() for key, p in s["properties"].items()]
    assert len(keys) > 80
    assert [(title, key) for title, key, p in keys if not p.get("description")] == []


KEYS = [(s["title"], key, p) for s in objects() for key, p in s["properties"].items()]


def values(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schemas of all values below one, with the way to them; models are not followed."""
    yield path, schema
    for number, form in enumerate(schema.get("anyOf", ())):
        yield from values(form, f"{path} form {number}")
    for part in ("items", "additionalProperties"):
        if isinstance(schema.get(part), dict):
            yield from values(schema[part], f"{path} {part}")


VALUES = [found for title, key, p in KEYS for found in values(p, f"{title} {key}")]


def test_editors_find_a_description_wherever_the_cursor_is() -> None:
    assert len(VALUES) > 200
    assert [path for path, s in VALUES if not s.get("description") and "$ref" not in s] == []


def test_forms_of_a_value_have_titles_of_their_own() -> None:
    """yaml-language-server joins the descriptions of forms that have the same title."""
    for path, schema in VALUES:
        titles = [form["title"] for form in schema.get("anyOf", ())]
        assert len(set(titles)) == len(titles), path


def test_patterns_have_a_message_in_words() -> None:
    patterns = [(path, s) for path, s in VALUES if "pattern" in s]
    assert len(patterns) > 20
    assert [p for p, s in patterns if not s.get("patternErrorMessage", "").startswith("exp")] == []


def test_numbers_that_may_be_something_else_have_a_message_in_words() -> None:
    """Editors report the first form of a value; its type alone would hide the others."""
    task = SCHEMA["$defs"]["TaskModel"]["properties"]
    for key, words in (("every", "the name of a var"), ("timeout", "90s, 15m, 2h")):
        first, other = task[key]["anyOf"]
        assert first["type"] in ("integer", "number")
        assert other["type"] == "string"
        assert words in first["errorMessage"]


def models(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """The models of the language that the keys of one lead to, by their titles."""
    found = {model.__name__.removesuffix("Model"): model}
    for below in set(fields(model).values()) - {None, model, SourceModel}:
        assert below is not None
        found |= models(below)
    return found


MODELS = {**models(SpecModel), "jobrun spec": SpecModel, "Source": SourceModel}


@pytest.mark.parametrize(("title", "key", "schema"), KEYS)
def test_every_key_has_examples_that_are_in_the_language(
    title: str, key: str, schema: dict[str, Any]
) -> None:
    assert schema["examples"]
    validator = Draft202012Validator({**schema, "$defs": SCHEMA["$defs"]})
    for example in schema["examples"]:
        validator.validate(example)
        if title in MODELS:
            assert wrong(MODELS[title], key, example) == []


def wrong(model: type[BaseModel], key: str, value: object) -> list[object]:
    """What a model finds wrong with the value of a key alone."""
    try:
        model.model_validate({key: value})
    except ValidationError as error:
        return [found for found in error.errors() if found["loc"][:1] == (key,)]
    return []


def test_keys_that_may_be_left_out_may_not_be_null() -> None:
    nullable = {
        name
        for schema in objects()
        for name, p in schema["properties"].items()
        if "null" in [form.get("type") for form in p.get("anyOf", ())]
    }
    assert nullable == {"vars", "setup", "init", "epoch", "download", "exit"}


def test_no_default_is_null_or_an_object_of_the_model() -> None:
    defaults = {
        key: p["default"] for s in objects() for key, p in s["properties"].items() if "default" in p
    }
    assert defaults["keep"] == "all"
    assert defaults["every"] == 1
    assert all(isinstance(value, str | int | float | bool) for value in defaults.values())


def test_both_forms_of_a_key_are_in_the_schema() -> None:
    checkpoint = SCHEMA["$defs"]["CheckpointModel"]["properties"]
    number, model = checkpoint["every"]["anyOf"]
    assert (number["type"], number["minimum"]) == ("integer", 1)
    assert model["$ref"] == "#/$defs/EveryModel"
    kinds = {p.get("type") for p in SCHEMA["$defs"]["TaskModel"]["properties"]["in"]["anyOf"]}
    assert kinds == {"string", "array", "object"}


# What it accepts.


def files() -> list[Path]:
    found = [*(ROOT / "specs").glob("*.yaml"), *(ROOT / "jobrun").rglob("*.yaml")]
    found += [p for p in (ROOT / "tests").rglob("*.yaml") if p.parent != MALFORMED]
    return sorted(found)


@pytest.mark.parametrize("path", files(), ids=lambda p: p.stem)
def test_the_specs_of_the_project(path: Path) -> None:
    assert faults(path.read_text(encoding="utf-8")) == []


PAGES = [ROOT / "README.md", *sorted((ROOT / "jobrun/docs").glob("*.md"))]
BLOCK = re.compile(r"^```yaml file=\S+\n(.*?)^```$", re.M | re.S)
EXAMPLES = [
    (p.name, text)
    for p in PAGES
    for text in BLOCK.findall(p.read_text(encoding="utf-8"))
    if not re.search(r"^(apiVersion|on):", text, re.M)  # of Kubernetes, of GitHub
]


@pytest.mark.parametrize(("page", "text"), EXAMPLES)
def test_the_specs_of_the_pages(page: str, text: str) -> None:
    assert faults(text) == []


def texts_in_tests() -> Iterator[str]:
    """Every text of the tests that the language accepts as a spec."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            if not re.search(r"^(stop|epoch):", node.value, re.M):
                continue
            try:
                source = parse(node.value.encode(), "text")
            except SpecError:
                continue
            if not read(source).problems:
                yield node.value


def test_the_specs_within_tests() -> None:
    texts = list(texts_in_tests())
    assert len(texts) > 30
    for text in texts:
        # a job without stop conditions can still be built, and is refused later
        assert [f for f in faults(text) if f != "'stop' is a required property"] == [], text


@pytest.mark.parametrize(
    "task",
    [
        "{call: m.sub:f, in: a}",
        "{call: m:f, in: [a, b], update: {c}, out: {key: d, e}}",
        "{call: m:f, with: {x: {deep: [1, null]}}, after: [a], every: n, retries: 3, timeout: 1h}",
        "{call: m:f, retries: {times: 2, delay: 0.5, backoff: 2}, timeout: 90}",
        "{call: m:f, out: db, thread: same}",
        "{pipe: {from: x}, do: [{call: m:f}], thread: same}",
        '{shell: "prog a b", in: {in.txt: a}, out: {out.npy: b}}',
        "{shell: {script: 'echo', files: {a.raw: float32, b.raw: {dtype: f4, shape: [-1]}}}}",
        "{load: {run: runs/a, blobs: [w]}}",
        "{pipe: {from: x}, do: [{call: m:f}]}",
        "{pipe: {file: a.csv, from: {x: 'p*'}, types: {l: text}}, do: [{call: m:f, every: 3}]}",
        "{pipe: {file: a.parquet, from: {x: [age, income], y: label}}, do: [{call: m:f}]}",
        "{pipe: {file: a.npz}, do: [{call: m:f, every: {batches: n}}], reduce: {loss: sum}}",
        "{pipe: {call: m:f, in: {a}, with: {b: 1}, from: [x]}, map: [], do: [{call: m:f}]}",
        "{pipe: {zip: [{from: x}, {concat: [{from: y}]}], shard: i / n}, do: [{call: m:f}]}",
        "{pipe: {from: x, shuffle: {buffer: 9}, shard: node, batch: b}, do: [{call: m:f}]}",
    ],
)
def test_forms_of_tasks(task: str) -> None:
    assert faults(f"epoch: [{task}]\nstop: never\n") == []


@pytest.mark.parametrize(
    "section",
    [
        "stop: [{epochs: 3}, {when: a > 1}]",
        "stop: {patience: {loss: 3, acc: {epochs: n, min_delta: 0, start: 2}}, walltime: limit}",
        "stop: {walltime: 1.5, blob: done, data_finished: p}\nfail: [{not_finite: a}]",
        "stop: never\ncheckpoint: false",
        "stop: never\ncheckpoint: {every: {seconds: 15m, min_gap: 3}, keep: all, compress: zstd}",
        'stop: never\ncheckpoint: {every: 3, keep: {best: {metric: a}}, compress: {"a*": lz4}}',
        "stop: never\nvars:\nsetup:\nepoch:\nmetrics: {a: null}\nfail: {}",
        "stop: never\nnodes: {a: {lr: 1}, b: null}",
        "stop: never\nversion: 1\nx-any: [1, {2: 3}]",
        "stop: never\nsession: {kind: dask, workers: 2, wait: 90s}\nnodes: [a, b]",
        "stop: never\nupload: s3://bucket/x\nmatrix: {lr: [0.1, 1]}\nreport: [tensorboard]",
        "stop: never\nupload: {call: m:f, with: {a: 1}, what: kept}\nreport: {call: m:f}",
    ],
)
def test_forms_of_sections(section: str) -> None:
    assert faults(section + "\n") == []


# What it refuses.

STRUCTURAL = [
    "03-list-at-top", "04-text-at-top", "29-no-space-after-colon", "30-misspelt-top-level",
    "31-misspelt-task", "32-misspelt-pipe", "33-misspelt-step", "34-misspelt-stop",
    "35-misspelt-checkpoint", "36-misspelt-patience", "37-key-of-another-level",
    "38-keys-of-later", "39-wrong-types", "40-wrong-types-pipe", "41-wrong-types-checkpoint",
    "42-no-value", "43-group-is-a-mapping", "44-function-names", "45-call-and-pipe",
    "46-pipe-reads-nothing", "54-metrics", "55-no-stop", "56-only-fail", "58-stop-values",
    "59-stop-values-more", "78-save-never", "79-compress", "79-shell", "81-task-options",
    "85-sources",
]  # fmt: skip


@pytest.mark.parametrize("name", STRUCTURAL)
def test_malformed_specs_whose_fault_is_one_of_structure(name: str) -> None:
    path = MALFORMED / f"{name}.yaml"
    try:
        text = path.read_text(encoding="utf-8")
        assert faults(text)
    except SpecError:  # of what is no mapping, no tree is made
        assert name in ("03-list-at-top", "04-text-at-top")
        assert faults("stop: never\n") == []
        assert not VALIDATOR.is_valid([])
        assert not VALIDATOR.is_valid("text")


@pytest.mark.parametrize(
    "section",
    [
        "session: {kind: dask, workers: 2, address: 'tcp://a:1'}",
        "session: dusk",
        "upload: {to: a, call: m:f}",
        "upload: {what: kept}",
        "upload: {to: a, with: {b: 1}}",
        "matrix: {lr: 3}",
        "matrix: {lr: []}",
        "report: 3",
    ],
)
def test_sections_that_cannot_be(section: str) -> None:
    text = f"{section}\nstop: never\n"
    assert faults(text)
    source = parse(text.encode(), "a.yaml")
    assert read(source).problems, "the model refuses it too"


@pytest.mark.parametrize(
    "task",
    [
        "{}",
        "{in: a}",
        "{call: m:f, shell: a}",
        "{call: m:f, do: [{call: m:f}]}",
        "{call: m}",
        "{shell: {command: a, script: b}}",
        "{shell: {files: {}}}",
        "{load: {run: a, blobs: b, epoch: 1, id: 1}}",
        "{load: {run: a, blobs: b}, out: c}",
        "{pipe: {from: x}}",
        "{pipe: {from: x}, do: []}",
        "{pipe: {from: x}, do: [{call: m:f}], in: a}",
        "{pipe: {}, do: [{call: m:f}]}",
        "{pipe: {file: a.csv, zip: [{from: x}]}, do: [{call: m:f}]}",
        "{pipe: {zip: [{from: x}], from: y}, do: [{call: m:f}]}",
        "{pipe: {zip: []}, do: [{call: m:f}]}",
        "{pipe: {call: m:f}, do: [{call: m:f}]}",
        "{pipe: {from: x, types: {x: int}}, do: [{call: m:f}]}",
        "{pipe: {from: x, batch: 0}, do: [{call: m:f}]}",
        "{pipe: {from: x, shuffle: {bufer: 3}}, do: [{call: m:f}]}",
        "{pipe: {from: x}, do: [{call: m:f, every: {batches: 1, epochs: 1}}]}",
        "{call: m:f, x-mine: 1}",
        "{call: m:f, timeout: soon}",
        "{call: m:f, thread: other}",
        "{shell: prog, thread: same}",
        "{load: {run: runs/a, blobs: [w]}, thread: same}",
        "{pipe: {from: x}, do: [{call: m:f, thread: same}]}",
    ],
)
def test_tasks_that_cannot_be(task: str) -> None:
    text = f"epoch: [{task}]\nstop: never\n"
    assert faults(text)
    source = parse(text.encode(), "a.yaml")
    assert read(source).problems, "the model refuses it too"
