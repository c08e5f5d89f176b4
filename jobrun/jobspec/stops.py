"""``stop`` and ``fail`` of a spec as conditions with their places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jobrun.conditions.kinds import KINDS
from jobrun.errors import Where
from jobrun.jobspec.source import SpecNode, SpecSource
from jobrun.model.job import ConditionSpec

__all__ = ["condition_specs"]


def condition_specs(source: SpecSource) -> list[ConditionSpec]:
    """Return every condition that stands where one can, of a kind that there is."""
    found: list[ConditionSpec] = []
    for section in ("stop", "fail"):
        node = source.root.get(section)
        entries = node.value if node is not None and isinstance(node.value, list) else [node]
        for entry in entries:
            if entry is not None and isinstance(entry.value, dict):
                found += _entry(source, section, entry)
    return found


def _entry(source: SpecSource, section: str, entry: SpecNode) -> Iterator[ConditionSpec]:
    for kind, node in entry.value.items():
        if kind in KINDS:
            marks = {"": source.where(node), **dict(_marks(source, node, ""))}
            text = _text(source, node)
            if text is not None:
                marks["text"] = text
            yield ConditionSpec(section, kind, node.plain(), marks)


def _marks(source: SpecSource, node: SpecNode, prefix: str) -> Iterator[tuple[str, Where]]:
    """Yield the places below a condition: ``loss``, ``loss.epochs``; of their keys ``loss:``."""
    if isinstance(node.value, dict):
        for key, below in node.value.items():
            path = f"{prefix}{key}"
            yield path, source.where(below)
            yield path + ":", source.where(node.keys[key])
            yield from _marks(source, below, path + ".")


def _text(source: SpecSource, node: SpecNode) -> Where | None:
    """Return where the text of a scalar begins, if all of it stands there as it is."""
    if not isinstance(node.value, str) or node.indent < 0 or node.place is not None:
        return None
    where = source.where(node)
    return replace(where, column=where.column + node.indent)
