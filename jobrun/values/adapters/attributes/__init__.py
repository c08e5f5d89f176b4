"""Attributes of live objects that the states of their libraries leave out."""

from __future__ import annotations

from jobrun.values.adapters.attributes.baseline import ATTRIBUTES, Attributes, Parts

__all__ = ["ATTRIBUTES", "Attributes", "Parts"]
