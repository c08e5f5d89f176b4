"""The models as a JSON Schema: closed, described, and without the nulls of keys left out."""

from __future__ import annotations

from typing import Any

from jobrun.spec.model import SpecModel
from jobrun.spec.problems import keys_of

SCHEMA = SpecModel.model_json_schema()


def objects(schema: Any) -> list[dict[str, Any]]:
    return [SCHEMA, *SCHEMA["$defs"].values()]


def test_every_object_of_the_language_is_closed_and_described() -> None:
    assert len(objects(SCHEMA)) > 8
    for schema in objects(SCHEMA):
        assert schema["additionalProperties"] is False
        assert schema["description"]
        assert all(p.get("description") for p in schema["properties"].values())


def test_keys_that_may_be_left_out_may_not_be_null() -> None:
    nullable = {
        (schema["title"], name)
        for schema in objects(SCHEMA)
        for name, p in schema["properties"].items()
        if {"type": "null"} in p.get("anyOf", ())
    }
    assert nullable == {
        ("SpecModel", group) for group in ("setup", "init", "epoch", "download", "exit")
    }


def test_both_forms_of_a_key_are_in_the_schema() -> None:
    checkpoint = SCHEMA["$defs"]["CheckpointModel"]["properties"]
    assert {"$ref": "#/$defs/EveryModel"} in checkpoint["every"]["anyOf"]
    assert {"minimum": 1, "type": "integer"} in checkpoint["every"]["anyOf"]
    kinds = {p.get("type") for p in SCHEMA["$defs"]["TaskModel"]["properties"]["in"]["anyOf"]}
    assert kinds == {"string", "array", "object"}


def test_the_keys_at_a_path() -> None:
    assert "pipe" in keys_of(("epoch", 3))
    assert "batch" in keys_of(("epoch", 0, "pipe"))
    assert keys_of(("checkpoint", "keep")) == ["last", "every", "best"]
    assert "walltime" in keys_of(("stop", 0))
    assert keys_of(("vars",)) == []
    assert keys_of(("stop", "patience", "loss")) == []
