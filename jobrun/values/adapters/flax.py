"""Modules and optimizers of Flax NNX, which change in place; those of Linen are plain trees."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from jobrun.core.late_imports import imported
from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.base import Plain
from jobrun.values.adapters.pytree import PYTREE

__all__ = ["ADAPTERS"]


class NnxAdapter:
    """``flax.nnx.Module``: all variables, random streams, and switches such as ``deterministic``.

    Variables that are shared by several modules are saved once, and stay shared.
    """

    name = "flax.nnx"
    version = 1

    def state(self, obj: Any) -> Plain:
        """Return ``variables``, nested as the modules are, and ``switches``, by path."""
        nnx = imported("flax.nnx")
        switches = {path: getattr(node, name) for path, node, name in _switches(obj)}
        return {"variables": nnx.to_pure_dict(nnx.state(obj)), "switches": switches}

    def restore(self, obj: Any, state: Plain) -> Any:
        """Set variables and switches; raises ValueRefusedError, naming the path, for others."""
        nnx = imported("flax.nnx")
        if not isinstance(state, dict) or set(state) != {"variables", "switches"}:
            raise ValueRefusedError("the state is none of a module of Flax")
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


ADAPTERS: Final = {"flax.nnx.module.Module": NnxAdapter()}
