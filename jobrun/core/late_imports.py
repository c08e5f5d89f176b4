"""Packages that only some jobs need, imported on first use by one thread at a time.

Several threads of jobrun write, read and report at once.  Packages that import each other in a
circle (``numcodecs`` imports its codecs, and they import it) fail if two threads enter the circle
in two places, so every late import of jobrun, on any thread, happens in this context::

    with importing():
        import zarr
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

__all__ = ["importing"]

_one_at_a_time = RLock()  # an import may itself import late


@contextmanager
def importing() -> Iterator[None]:
    """Keep every other thread of jobrun from importing late while the context lasts."""
    with _one_at_a_time:
        yield
