"""Bytes as people write them."""

from __future__ import annotations

__all__ = ["size"]


def size(count: int) -> str:
    """Bytes for people, in powers of 1000."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB" if amount < 999.5 else f"{amount:.0f} TB"
