"""Modules and optimizers of Flax NNX, which change in place; those of Linen are plain trees."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from jobrun.core.late_imports import imported
from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.attributes import Parts, WithAttributes, taken
from jobrun.values.adapters.base import Plain
from jobrun.values.adapters.pytree import PYTREE

__all__ = ["ADAPTERS"]


class NnxAdapter(WithAttributes):
    """Modules, optimizers and metrics of ``flax.nnx``: variables, random streams, and switches.

    Switches are attributes such as ``deterministic``.  Variables that are shared by several
    modules are saved once, and stay shared.  Other attributes are saved if they have changed (see
    ``attributes``).
    """

    name = "flax.nnx"
    version = 1

    def __init__(self) -> None:
        super().__init__(_parts)

    def state(self, obj: Any) -> Plain:
        """Return ``variables``, nested as the modules are, and ``switches``, by path."""
        nnx = imported("flax.nnx")
        switches = {path: getattr(node, name) for path, node, name in _switches(obj)}
        variables = nnx.to_pure_dict(nnx.state(obj))
        return {"variables": variables, "switches": switches, **self._attributes.state(obj)}

    def restore(self, obj: Any, state: Plain) -> Any:
        """Set variables and switches; raises ValueRefusedError, naming the path, for others."""
        nnx = imported("flax.nnx")
        parts = dict(state) if isinstance(state, dict) else {}
        attributes = taken(parts)
        if set(parts) != {"variables", "switches"}:
            raise ValueRefusedError("the state is not that of a Flax module")
        now = nnx.state(obj)
        made = PYTREE.restore(nnx.to_pure_dict(now), state["variables"])
        switches = {path: (node, name) for path, node, name in _switches(obj)}
        saved = state["switches"]
        if not isinstance(saved, dict) or set(saved) != set(switches):
            raise ValueRefusedError(
                f"the module has the switches {sorted(switches)}, the saved one has {saved!r}"
            )
        nnx.replace_by_pure_dict(now, made)
        nnx.update(obj, now)
        for path, (node, name) in switches.items():
            setattr(node, name, saved[path] is True)
        self._attributes.restore(obj, attributes)
        return obj

    def copy(self, obj: Any) -> Any:
        """Return a module with variables of its own."""
        return copy.deepcopy(obj)


def _switches(obj: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield the path, the module and the name of each attribute that is a bool."""
    nnx = imported("flax.nnx")
    for path, node in nnx.iter_graph(obj):
        if isinstance(node, nnx.Module):
            for name, value in sorted(vars(node).items()):
                if type(value) is bool:
                    yield ".".join(map(str, (*path, name))), node, name


def _parts(module: Any) -> Parts:
    """Return the modules within a module, and its variables."""
    nnx = imported("flax.nnx")
    nodes = {".".join(map(str, path)): node for path, node in nnx.iter_graph(module)}
    holders = {name: node for name, node in nodes.items() if "_pytree__nodes" in _fields(node)}
    variables = {name: node for name, node in nodes.items() if isinstance(node, nnx.Variable)}
    return Parts(holders, holders | variables, lambda node: partial(_is_variable, node))


def _fields(obj: Any) -> dict[str, Any]:
    return getattr(obj, "__dict__", {})


def _is_variable(holder: Any, key: str) -> bool:
    """Return whether an attribute is part of the variables, a switch, or Flax's own."""
    own = vars(holder)
    inside = own.get("_pytree__nodes", {}).get(key)
    return bool(inside) or key.startswith("_pytree__") or type(own[key]) is bool


_NNX: Final = NnxAdapter()
ADAPTERS: Final = {"flax.nnx.module.Module": _NNX, "flax.nnx.pytreelib.Pytree": _NNX}
