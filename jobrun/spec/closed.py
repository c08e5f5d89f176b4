"""What all models of the language have in common: the world is closed, and some keys are short."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict

from jobrun.spec.faults import Fault, refuse
from jobrun.spec.scalars import show

__all__ = ["ClosedModel", "short_for"]


class ClosedModel(BaseModel):
    """A mapping in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def short_for(key: str, what: str) -> Callable[[Any], Any]:
    """``every: 3`` is short for ``every: {epochs: 3}``."""

    def validate(value: Any) -> Any:
        if value is None or isinstance(value, list | bool):
            raise refuse(Fault(f"wants {what}, not {show(value)}"))
        return value if isinstance(value, dict) else {key: value}

    return validate
