"""The language as a JSON Schema, for editors: made from the models, never by hand.

It accepts every spec that ``validate`` accepts.  What needs more than one key to be looked at with
another (whether a blob is written, a task exists, an expression holds) is left to ``validate``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from jobrun.conditions.kinds import KINDS
from jobrun.core.text import either
from jobrun.jobspec.model import SpecModel

__all__ = ["DIALECT", "FILE", "schema_text", "spec_schema"]

FILE = "jobrun.schema.json"
"""The name of the schema's file beside the specs."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _Generator(GenerateJsonSchema):
    """Without titles of keys and defaults that are null; everything in the order of the models."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False: a key's name is its title."""
        return False

    def sort(self, value: Any, parent_key: str | None = None) -> Any:
        """Leave the keys in their order, in examples above all."""
        return value

    def default_schema(self, schema: Any) -> dict[str, Any]:
        """Drop a default of null, or an empty one: it means only that the key may be left out."""
        made = super().default_schema(schema)
        if made.get("default") in (None, [], {}):
            made.pop("default", None)
        return made


def spec_schema() -> dict[str, Any]:
    """Return the schema of a spec, JSON Schema 2020-12."""
    made = SpecModel.model_json_schema(schema_generator=_Generator)
    keys = made["$defs"]["ConditionsModel"]["properties"]
    for kind, condition in KINDS.items():
        form = dict(condition.schema)
        made["$defs"] |= form.pop("$defs", {})
        keys[kind] |= form
    made["$defs"] = dict(sorted(made["$defs"].items()))
    for model in (made, *made["$defs"].values()):
        for key, value in model["properties"].items():
            _describe_forms(value, key, value["description"])
    head = {"$schema": DIALECT, "title": "jobrun spec", "description": made.pop("description")}
    return {**head, **{k: v for k, v in made.items() if k not in head}}


def _describe_forms(schema: dict[str, Any], key: str, text: str) -> None:
    """Give each form of a key's value a title of its own, and the description of the key.

    An editor shows those of the form that it has matched.  What a list or a mapping of names holds
    is described by its model, if it has one, else like the key.
    """
    for form in schema.get("anyOf", ()):
        form.setdefault("title", f"{key}: {_form_name(form)}")
        form.setdefault("description", text)
        _describe_forms(form, key, text)
    for part in _parts(schema):
        if "$ref" not in part:
            part.setdefault("description", text)
        _describe_forms(part, key, text)


def _parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the schemas of the items of a list and of the values of a mapping."""
    for part in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(part, dict):
            yield part


_FORM_NAMES = {
    "array": "list",
    "boolean": "true or false",
    "integer": "whole number",
    "null": "no value",
    "object": "mapping",
}


def _form_name(form: dict[str, Any]) -> str:
    """Return a form of a value in a few words."""
    if "$ref" in form:
        return _FORM_NAMES["object"]
    if "const" in form:
        return str(form["const"])
    if "enum" in form:
        return either(form["enum"])
    return _FORM_NAMES.get(form["type"], str(form["type"]))


def schema_text() -> str:
    """Return the schema as the text of a file."""
    return json.dumps(spec_schema(), indent=2, ensure_ascii=False) + "\n"
