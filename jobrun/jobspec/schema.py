"""The language as a JSON Schema, for editors: made from the models, never by hand.

It accepts every spec that ``validate`` accepts.  What needs more than one key to be looked at with
another (whether a blob is written, a task exists, an expression holds) is left to ``validate``.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from jobrun.conditions.builtin import KINDS
from jobrun.jobspec.model import SpecModel

__all__ = ["DIALECT", "FILE", "schema_text", "spec_schema"]

FILE = "jobrun.schema.json"
"""What the schema is called beside the specs."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _Generator(GenerateJsonSchema):
    """Without what editors would show and nobody needs: titles of keys, defaults that are null."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """A key's name is its title."""
        return False

    def default_schema(self, schema: Any) -> dict[str, Any]:
        """A default of null, or an empty one, says only that the key may be left out."""
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
        keys[kind] = dict(sorted({**keys[kind], **form}.items()))
    made["$defs"] = dict(sorted(made["$defs"].items()))
    head = {"$schema": DIALECT, "title": "jobrun spec", "description": made.pop("description")}
    return {**head, **{k: v for k, v in made.items() if k not in head}}


def schema_text() -> str:
    """Return the schema as the text of a file."""
    return json.dumps(spec_schema(), indent=2, ensure_ascii=False) + "\n"
