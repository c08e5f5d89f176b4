"""Objects at several places of what is saved: one plain form, and one object again.

An adapter that walks over nested objects keeps the plain form of each in ``Forms``: an object that
is met again has the same form, the very same dict or list, which a checkpoint stores as a tie.  On
the way back ``Objects`` keeps what was made of each form.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from jobrun.values.adapters.base import Plain

__all__ = ["Forms", "Objects"]


class Forms:
    """The plain forms of the objects that one walk has met."""

    def __init__(self) -> None:
        # The object is kept beside its form, so that its id stays its own.
        self._forms: dict[int, tuple[Any, Plain]] = {}

    def __len__(self) -> int:
        return len(self._forms)

    def of(self, obj: Any, make: Callable[[], Plain]) -> Plain:
        """Return the form of an object: the one that it has already, or ``make()``."""
        found = self._forms.get(id(obj))
        if found is None:
            found = self._forms[id(obj)] = (obj, make())
        return found[1]


class Objects:
    """The objects that one walk over plain forms has restored.

    Those of ``setup`` that can change are filled, but for the ones at the places ``remade``, where
    new ones are made.
    """

    def __init__(self, remade: Container[str] = ()) -> None:
        self._remade = remade
        # The form is kept beside what was made of it, so that its id stays its own.
        self._made: dict[int, tuple[Plain, Any]] = {}
        self._claimed: dict[int, Any] = {}

    def of(self, form: Plain, make: Callable[[], Any]) -> Any:
        """Return the object of a form, a dict, list or value: the one made already, or ``make()``.

        Numbers, strings and tuples are not looked up: equal ones may be one object by chance.
        """
        if isinstance(form, _BY_CHANCE):
            return make()
        found = self._made.get(id(form))
        if found is None:
            found = self._made[id(form)] = (form, make())
        return found[1]

    def fills(self, obj: Any, place: str) -> bool:
        """Return whether an object of ``setup`` at a place is to be filled; it is claimed then."""
        return place not in self._remade and self.claims(obj)

    def claims(self, obj: Any) -> bool:
        """Claim an object of ``setup`` to be filled; return False if it was claimed before.

        One object of ``setup`` may stand at two places where the checkpoint has two.
        """
        if id(obj) in self._claimed:
            return False
        self._claimed[id(obj)] = obj
        return True


_BY_CHANCE = (bool, int, float, complex, str, bytes, tuple, type(None))
