"""Warnings of parts of live objects that share memory, and will not after a resume.

A resume fills what ``setup`` has made, so what shares memory there shares it again.  An array that
tasks have put into an object is made anew, by itself: from then on a change in place of what it
shared memory with does not reach it, and the run continues with other numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from jobrun.core.blob_paths import Key
from jobrun.values.boxes import Value
from jobrun.values.shared_memory import Held, SharedPart, shared_parts

__all__ = ["LostSharing", "Restored"]

_MOST: Final = 3
"""Warnings for one object: a list of views may grow in each epoch."""


class Restored(NamedTuple):
    """How a resume restores a part: into memory of ``setup``, and as one with its equals."""

    fills: bool
    ties: bool


class LostSharing:
    """What is lost, each told once."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._counts: Counter[Key] = Counter()

    def warnings(
        self,
        states: Mapping[Key, tuple[Value, Sequence[Held]]],
        restored: Callable[[SharedPart], Restored],
    ) -> Iterator[str]:
        """Yield a warning for each object of which a part shares memory that is lost."""
        found: dict[Key, list[tuple[SharedPart, SharedPart]]] = {}
        for group in shared_parts(states):
            for part, other in _lost(group, restored):
                if not {str(part), str(other)} <= self._told:
                    found.setdefault(part.key, []).append((part, other))
        for key, pairs in found.items():
            self._told.update(str(part) for pair in pairs for part in pair)
            self._counts[key] += 1
            if self._counts[key] <= _MOST:
                yield _text(pairs)


def _lost(
    group: Sequence[SharedPart], restored: Callable[[SharedPart], Restored]
) -> Iterator[tuple[SharedPart, SharedPart]]:
    """Yield the parts of a group that a resume makes by themselves, each with one it is part of."""
    known = [(part, restored(part)) for part in group]
    named: set[int] = set()
    for part, how in known:
        if how.fills or id(part) in named:
            continue
        for other, its in known:
            one_again = how.ties and its.ties and part.key == other.key and part.box is other.box
            if other is not part and not one_again and part.shares(other):
                named.add(id(other))
                yield part, other
                break


def _text(pairs: Sequence[tuple[SharedPart, SharedPart]]) -> str:
    part, other = pairs[0]
    more = f" (and {len(pairs) - 1} more)" if len(pairs) > 1 else ""
    return (
        f"{str(part)!r} under 'state' shares memory with {str(other)!r}{more}, and 'setup' has not "
        "made it so: a resumed run gets each by itself, so a change of one in place will not reach "
        "the other; let 'setup' share the memory, take a view where it is used, or keep a copy "
        "(x.copy(), x.clone())"
    )
