"""Tensors that torch makes over read-only inputs: the call is then checked for writing into them.

torch has no read-only tensors: ``from_numpy``, ``as_tensor``, ``asarray`` and ``frombuffer`` of a
read-only array make one that can be written to, with a warning, once in a process.  Most are only
read.  So the inputs of a call that makes one are compared by checksums, as under ``--check``: taken
when torch warns, which is before the tensor is there, and compared after the call.  The warning is
not shown then: a call that writes into such a tensor is an error.  Elsewhere torch warns as it does
without jobrun.

Nothing warns of ``torch.from_dlpack`` (torch ignores DLPack's read-only flag), of pointers, and of
native code: only ``--check`` finds what is written through these.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, Final, cast

__all__ = ["calls", "watch_views"]

_TEXTS: Final = ("The given NumPy array is not writ", "The given buffer is not writ")


class _Calls(threading.local):
    """The call that runs on this thread: what takes the checksums of its inputs, or None."""

    look: Callable[[], None] | None = None


calls: Final = _Calls()


class _Views:
    """In place of the pattern of a filter of warnings: stops those answered by a look."""

    pattern: Final = "(?!)"
    """Matches nothing; read by code that copies filters (scikit-learn, for its threads)."""

    def __init__(self) -> None:
        self._texts = _TEXTS  # the module's names are None while Python ends, and it warns then too

    def match(self, text: str) -> bool:
        """Return whether the warning has been dealt with."""
        if not text.startswith(self._texts):
            return False
        look = calls.look
        _warn_always()
        if look is None:
            return False
        look()
        return True


_VIEWS: Final = _Views()


def watch_views() -> None:
    """See each warning of torch about a tensor over read-only memory, from now on."""
    filters = cast("list[Any]", warnings.filters)
    if not any(item[1] is _VIEWS for item in filters[:1]):
        filters[:] = [item for item in filters if item[1] is not _VIEWS]
        filters.insert(0, ("ignore", _VIEWS, UserWarning, None, 0))
    _warn_always()


def _warn_always() -> None:
    """Let torch warn each time, where it is imported: by default it does once in a process."""
    warn_always = getattr(sys.modules.get("torch"), "set_warn_always", None)
    if warn_always is not None:
        warn_always(True)
