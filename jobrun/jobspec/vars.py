"""``vars`` and ``nodes``: constants by name, and the nodes with their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from pydantic_core import PydanticCustomError

from jobrun.errors import UsageError
from jobrun.jobspec.faults import FieldFault, expected, refuse
from jobrun.jobspec.fields import annotated
from jobrun.jobspec.name_validators import twice
from jobrun.jobspec.names import blob_fault, output_fault, plain_fault
from jobrun.jobspec.scalars import show
from jobrun.model.job import numbered

__all__ = ["Nodes", "Vars", "node_count_setting"]


def _vars(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise expected("a mapping of names to values", value, "vars: {rate: 0.1, rows: 64}")
    faults: list[FieldFault] = []
    for key, item in value.items():
        if not isinstance(key, str):
            text = f"has the key {show(key)}, which is not a name"
            faults.append(FieldFault(text, "quote it", (key,), key=True))
            continue
        fault = output_fault(key) or (f"{key!r} is the name of a node's blob" * (":" in key))
        if fault:
            faults.append(FieldFault(f"has a wrong name: {fault}", path=(key,), key=True))
        faults += _var_faults(item, (key,))
    if faults:
        raise refuse(*faults)
    return value


def _var_faults(value: Any, path: tuple[Any, ...]) -> list[FieldFault]:
    """Return what is wrong with a var: it has the form of a blob, without templates in strings."""
    if isinstance(value, str) and "${" in value:
        return [FieldFault("holds '${…}', which is for 'with' and paths", path=path)]
    if isinstance(value, list):
        return [f for i, v in enumerate(value) for f in _var_faults(v, (*path, i))]
    found: list[FieldFault] = []
    if isinstance(value, dict):
        for key, item in value.items():
            fault = blob_fault(key) if isinstance(key, str) else f"{show(key)} is not a name"
            if fault:
                found.append(FieldFault(f"has a wrong key: {fault}", "", (*path, key), key=True))
            found += _var_faults(item, (*path, key))
    return found


_MOST_NODES = 10_000


def _count_fault(value: Any) -> str:
    """Return what is wrong with a number of nodes, or an empty string."""
    return "" if 1 <= value <= _MOST_NODES else f": expected 1 to {_MOST_NODES}, got {value}"


def _nodes(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        if wrong := _count_fault(value):
            raise refuse(FieldFault(wrong))
        return value
    if isinstance(value, list):
        items: list[tuple[Any, tuple[Any, ...]]] = [(v, (i,)) for i, v in enumerate(value)]
        faults = twice(list(enumerate(value)))
    elif isinstance(value, dict):
        items, faults = [(k, (k,)) for k in value], []
    else:
        raise expected("a number, a list of names, or a mapping of names to vars or numbers", value)
    if not items:
        raise refuse(FieldFault("names no node", "name one, or remove the key"))
    for name, path in items:
        fault = plain_fault(name) if isinstance(name, str) else f"{show(name)} is not a name"
        if fault is None and name == "best":
            fault = "'best' stands for the best checkpoint"
        if fault:
            faults.append(
                FieldFault(f"has a wrong name: {fault}", "", path, isinstance(value, dict))
            )
    if isinstance(value, dict):
        faults += _node_vars_faults(value)
    if faults:
        raise refuse(*faults)
    return value


def _node_vars_faults(nodes: Mapping[Any, Any]) -> list[FieldFault]:
    found: list[FieldFault] = []
    for name, own in nodes.items():
        if isinstance(own, int) and not isinstance(own, bool):
            if wrong := _count_fault(own):
                found.append(FieldFault(wrong, "", (name,)))
            elif twin := next((n for n in numbered(str(name), own) if n in nodes), None):
                found.append(FieldFault(f"has {twin!r} twice", f"{name}: {own}", (twin,), key=True))
            continue
        try:
            _vars(own)
        except PydanticCustomError as error:
            found += [
                FieldFault(f.message, f.hint, (name, *f.path), f.key, f.offset)
                for f in (error.context or {})["faults"]
            ]
    return found


Vars = Annotated[dict[str, Any], annotated(_vars, dict[str, Any] | None)]
_SomeNames = Annotated[list[str], Field(min_length=1)]
_Count = Annotated[int, Field(ge=1, le=_MOST_NODES)]
_VarsByNode = Annotated[dict[str, dict[str, Any] | _Count | None], Field(min_length=1)]
Nodes = Annotated[Any, annotated(_nodes, _Count | _SomeNames | _VarsByNode)]


def node_count_setting(nodes: Any, count: int) -> str:
    """Return the ``NAME=VALUE`` of ``--set`` that sets the number of nodes to ``count``.

    Raises UsageError if ``nodes`` of the spec is not one number.
    """
    if type(nodes) is int:
        return f"nodes={count}"
    if isinstance(nodes, Mapping) and len(nodes) == 1:
        ((name, own),) = nodes.items()
        if type(own) is int:
            return f"nodes.{name}={count}"
    raise UsageError(
        "--nodes sets the number of nodes, and the spec names them one by one"
        if nodes is not None
        else "--nodes sets the number of nodes, and the spec has none",
        hint="with 'nodes: 8' or 'nodes: {trainer: 8}' their number can change; --map-node "
        "OLD=NEW gives the parts of a checkpoint to nodes of any names",
    )
