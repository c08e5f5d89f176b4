"""Objects with ``state_dict()`` and ``load_state_dict(state)``, whatever library they are of.

That is the protocol of PyTorch, which many others follow.  A state may have any keys (those of
optimizers are integers); its leaves are plain, or taken apart by the adapters of values.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from jobrun.values.adapters.base import Plain

__all__ = ["STATE_DICT", "has_state_dict"]


class StateDictAdapter:
    """Reads and restores the state by the object's own two methods."""

    name = "state_dict"
    version = 1

    def state(self, obj: Any) -> Plain:
        """Return ``obj.state_dict()``."""
        return obj.state_dict()

    def restore(self, obj: Any, state: Plain) -> Any:
        """Call ``obj.load_state_dict(state)``; return ``obj``."""
        obj.load_state_dict(state)
        return obj

    def copy(self, obj: Any) -> Any:
        """Return ``copy.deepcopy(obj)``."""
        return copy.deepcopy(obj)


STATE_DICT: Final = StateDictAdapter()


def has_state_dict(obj: Any) -> bool:
    """Return whether ``obj`` is an object, and no class, with both methods."""
    return not isinstance(obj, type) and all(
        callable(getattr(type(obj), name, None) or getattr(obj, name, None))
        for name in ("state_dict", "load_state_dict")
    )
