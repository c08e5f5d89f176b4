"""A random generator for the code of the cluster, which runs beside tasks in a worker's process.

``dask.sizeof`` samples the items of large messages with the module ``random``, on the thread of the
event loop, while a task draws from the same global generator, whose state a job may name under
``state``: its numbers would depend on which messages came when.
"""

from __future__ import annotations

import random
import sys
from importlib.util import find_spec, module_from_spec
from types import BuiltinMethodType, MethodType, ModuleType

__all__ = ["give_own_random"]

_PACKAGES = ("dask", "distributed", "tornado")


def give_own_random() -> None:
    """Replace ``random`` in the modules of the cluster's packages by a copy of the module."""
    own: ModuleType | None = None
    shared: object = getattr(random.randint, "__self__", None)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in _PACKAGES:
            continue
        for attribute, value in list(vars(module).items()):
            is_function = isinstance(value, BuiltinMethodType | MethodType)
            if value is random or (is_function and value.__self__ is shared):
                own = own or _copy()
                setattr(module, attribute, own if value is random else getattr(own, value.__name__))


def _copy() -> ModuleType:
    spec = find_spec("random")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
