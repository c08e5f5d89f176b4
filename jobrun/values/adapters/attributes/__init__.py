"""Attributes of live objects that the states of their libraries leave out."""

from __future__ import annotations

from jobrun.values.adapters.attributes.baseline import Parts, WithAttributes, taken

__all__ = ["Parts", "WithAttributes", "taken"]
