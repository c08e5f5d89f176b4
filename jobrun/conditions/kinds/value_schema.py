"""The JSON Schema of what values of conditions have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["EPOCHS", "or_var"]

EPOCHS: Final = {"minimum": 1, "type": "integer"}
"""A number of epochs."""


def or_var(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a value, or of the name of a var that has it."""
    return {"anyOf": [form, {"type": "string"}]}
