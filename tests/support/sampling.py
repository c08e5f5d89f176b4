"""Which cases of a test with very many stand for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

__all__ = ["sample"]


def sample(cases: Sequence[Sequence[Hashable]], n: int) -> list[int]:
    """The numbers of an n-th of the cases (rounded up), in which every value is about as frequent.

    A case is the values of its parameters.  Every n-th case would not do: where the last parameter
    has n values, it is the same one each time.
    """
    uses: Counter[Hashable] = Counter()
    left = [i for first in range(n) for i in range(first, len(cases), n)]
    chosen: list[int] = []
    while len(chosen) * n < len(cases):
        best = min(left, key=lambda i: sum(uses[v] for v in cases[i]))
        left.remove(best)
        chosen.append(best)
        uses.update(cases[best])
    return sorted(chosen)
